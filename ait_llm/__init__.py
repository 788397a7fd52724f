"""Finds the operator whose numbers go wrong in large language model inference.

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ait_llm.on_demand import on_demand

if TYPE_CHECKING:
    from ait_llm.compare import compare as compare
    from ait_llm.compare import compare_data as compare_data
    from ait_llm.decisions.running import tokens as tokens
    from ait_llm.dump.in_process import Run as Run
    from ait_llm.dump.in_process import capture as capture
    from ait_llm.dump.in_process import diff as diff
    from ait_llm.dump.torch_hook import DumpConfig as DumpConfig
    from ait_llm.dump.torch_hook import register_hook as register_hook
    from ait_llm.dumps import open_dump as open_dump
    from ait_llm.invariance.in_process import invariant as invariant
    from ait_llm.transplanting.in_process import transplant as transplant

__version__ = "0.1.0"

_EXPORTS = {
    "DumpConfig": "ait_llm.dump.torch_hook",
    "Run": "ait_llm.dump.in_process",
    "capture": "ait_llm.dump.in_process",
    "compare": "ait_llm.compare",
    "compare_data": "ait_llm.compare",
    "diff": "ait_llm.dump.in_process",
    "invariant": "ait_llm.invariance.in_process",
    "open_dump": "ait_llm.dumps",
    "register_hook": "ait_llm.dump.torch_hook",
    "tokens": "ait_llm.decisions.running",
    "transplant": "ait_llm.transplanting.in_process",
}


__getattr__ = on_demand(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
