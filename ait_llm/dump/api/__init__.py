"""Capture of API calls with msprobe's interface, in msprobe's format.

``compare`` and ``compare_distributed`` are here too, where scripts import them from; they are
loaded when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from ait_llm.dump.api.debugger import PrecisionDebugger, module_dump, module_dump_end, save
from ait_llm.dump.api.seeding import seed_all

if TYPE_CHECKING:
    from ait_llm.compare.api.functions import compare, compare_distributed

__all__ = [
    "PrecisionDebugger",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "save",
    "seed_all",
]
_LOADED_LATER = ("compare", "compare_distributed")


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ait_llm.compare.api import functions

    found = globals()[name] = getattr(functions, name)
    return found
