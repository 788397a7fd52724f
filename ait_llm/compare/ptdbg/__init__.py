"""Tables of ptdbg's dumps, with its columns, its matching and its advice."""

from ait_llm.compare.ptdbg.parsing import describe_call
from ait_llm.compare.ptdbg.run import compare_distributed, compare_pkl

__all__ = ["compare_distributed", "compare_pkl", "describe_call"]
