"""Operators against golden operators: those of a dump, and kernels of your own.

Example:
    >>> from ait_llm.opcheck import opcheck
    >>> report = opcheck("out/ait_dump")                            # doctest: +SKIP
    >>> report.verdict                                              # doctest: +SKIP
    <Verdict.PASS: 'PASS'>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ait_llm.opcheck.declared import declare
    from ait_llm.opcheck.golden import KernelArithmetic, Result, golden_op
    from ait_llm.opcheck.kernels import CheckedKernel, check
    from ait_llm.opcheck.pipeline import opcheck
    from ait_llm.opcheck.sweeps.cases import sweep_inputs
    from ait_llm.opcheck.sweeps.report import SweepReport
    from ait_llm.opcheck.sweeps.runner import sweep

# Imported when they are asked for: golden operators need torch, and readers of one module do not.
_PLACES = {
    "CheckedKernel": "kernels",
    "check": "kernels",
    "declare": "declared",
    "KernelArithmetic": "golden",
    "Result": "golden",
    "golden_op": "golden",
    "opcheck": "pipeline",
    "SweepReport": "sweeps.report",
    "sweep": "sweeps.runner",
    "sweep_inputs": "sweeps.cases",
}

__all__ = [
    "CheckedKernel",
    "KernelArithmetic",
    "Result",
    "SweepReport",
    "check",
    "declare",
    "golden_op",
    "opcheck",
    "sweep",
    "sweep_inputs",
]


def __getattr__(name: str) -> Any:  # whatever the module holds
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
