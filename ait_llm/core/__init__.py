"""Types that every layer shares. Imports NumPy (with ml_dtypes) and nothing else."""

from ait_llm.core.comparison import (
    Comparison,
    Origin,
    Problem,
    Report,
    Side,
    SideSummary,
    TensorRecord,
    Verdict,
)
from ait_llm.core.dtype import DType
from ait_llm.core.ids import OpId, StepRange, whole_number
from ait_llm.core.registry import Registry
from ait_llm.core.tensor_desc import FORMAT_FRACTAL_NZ, FORMAT_ND, TensorDesc

__all__ = [
    "FORMAT_FRACTAL_NZ",
    "FORMAT_ND",
    "Comparison",
    "DType",
    "OpId",
    "Origin",
    "Problem",
    "Registry",
    "Report",
    "Side",
    "SideSummary",
    "StepRange",
    "TensorDesc",
    "TensorRecord",
    "Verdict",
    "whole_number",
]
