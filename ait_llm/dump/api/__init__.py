"""Capture of API calls with msprobe's interface, in msprobe's format, and their comparison."""

from ait_llm.compare.api.functions import compare, compare_distributed
from ait_llm.dump.api.debugger import PrecisionDebugger, module_dump, module_dump_end, save
from ait_llm.dump.api.seeding import seed_all

__all__ = [
    "PrecisionDebugger",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "save",
    "seed_all",
]
