"""Dumps and reports in the formats of other programs."""

from ait_llm.export.names import Named, named_tensors
from ait_llm.export.scalars import export_scalars
from ait_llm.export.tensors import TENSOR_FORMATS, Exported, export_tensors
from ait_llm.export.trace import Traced, export_trace

__all__ = [
    "TENSOR_FORMATS",
    "Exported",
    "Named",
    "Traced",
    "export_scalars",
    "export_tensors",
    "export_trace",
    "named_tensors",
]
