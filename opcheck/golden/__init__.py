"""Definitions of the acceleration library's operators, as plain functions of tensors.

Importing this package registers every operator in :data:`golden_ops`. An operator is one module
of this package that calls :func:`golden_op`; modules are found by listing the package, so a new
operator is a new file.
"""

from __future__ import annotations

import importlib
import pkgutil

from ait_llm.opcheck.golden.base import (
    DEVICE,
    EXACT,
    GOLDEN,
    Arithmetic,
    GoldenOp,
    KernelArithmetic,
    Params,
    Refusal,
    RefusedError,
    Result,
    UnverifiableError,
    collective_op,
    golden_op,
    golden_ops,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "DEVICE",
    "EXACT",
    "GOLDEN",
    "Arithmetic",
    "GoldenOp",
    "KernelArithmetic",
    "Params",
    "Refusal",
    "RefusedError",
    "Result",
    "UnverifiableError",
    "collective_op",
    "golden_op",
    "golden_ops",
]
