"""The use case compare: read, match, measure, judge. Returns values, never prints.

Names are loaded when first used: parts of this package are wanted without the others.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ait_llm.on_demand import on_demand

if TYPE_CHECKING:
    from ait_llm.compare.data import compare_data as compare_data
    from ait_llm.compare.pipeline import compare as compare
    from ait_llm.compare.progress import Progress as Progress
    from ait_llm.compare.progress import stop_on_signals as stop_on_signals

__all__ = ["Progress", "compare", "compare_data", "stop_on_signals"]

__getattr__ = on_demand(
    __name__,
    {
        "Progress": "ait_llm.compare.progress",
        "compare": "ait_llm.compare.pipeline",
        "compare_data": "ait_llm.compare.data",
        "stop_on_signals": "ait_llm.compare.progress",
    },
)


class _CallablePackage(ModuleType):
    """``from ait_llm import compare`` promises the function, and Python hands out this package."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # those of compare
        return import_module("ait_llm.compare.pipeline").compare(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
