"""Capture of API calls with msprobe's interface, in msprobe's format."""

from ait_llm.dump.api.debugger import PrecisionDebugger, module_dump, module_dump_end, save
from ait_llm.dump.api.seeding import seed_all

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end", "save", "seed_all"]
