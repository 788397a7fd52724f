"""Precision standards: what an output may differ from golden.

Importing this package registers every standard in :data:`standards`. A standard is one module of
this package that registers a function of an :class:`Output`.
"""

from __future__ import annotations

import importlib
import pkgutil

from ait_llm.judge.standards.base import Computation, Judgement, Output, Standard, standards

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Computation", "Judgement", "Output", "Standard", "standards"]
