"""Capture of API calls with msprobe's interface, in msprobe's format."""

from ait_llm.dump.api.debugger import PrecisionDebugger
from ait_llm.dump.api.seeding import seed_all

__all__ = ["PrecisionDebugger", "seed_all"]
