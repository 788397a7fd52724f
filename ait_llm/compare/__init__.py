"""The use case compare: read, match, measure, judge. Returns values, never prints."""

import sys
from types import ModuleType

from ait_llm.compare.data import compare_data
from ait_llm.compare.pipeline import compare
from ait_llm.compare.progress import Progress, stop_on_signals

__all__ = ["Progress", "compare", "compare_data", "stop_on_signals"]


class _CallablePackage(ModuleType):
    """``from ait_llm import compare`` promises the function, and Python hands out this package."""

    __call__ = staticmethod(compare)


sys.modules[__name__].__class__ = _CallablePackage
