"""Capture of API calls with msprobe's interface, in msprobe's format.

``compare`` and ``compare_distributed`` are here too, where scripts import them from. Everything is
loaded when it is asked for, so that the settings can be read without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ait_llm.compare.api.functions import compare, compare_distributed
    from ait_llm.dump.api.debugger import PrecisionDebugger, module_dump, module_dump_end, save
    from ait_llm.dump.api.graph_dumper import AclGraphDumper, acl_save
    from ait_llm.dump.api.seeding import seed_all

__all__ = [
    "AclGraphDumper",
    "PrecisionDebugger",
    "acl_save",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "save",
    "seed_all",
]
_PLACES = {
    "AclGraphDumper": "ait_llm.dump.api.graph_dumper",
    "PrecisionDebugger": "ait_llm.dump.api.debugger",
    "acl_save": "ait_llm.dump.api.graph_dumper",
    "compare": "ait_llm.compare.api.functions",
    "compare_distributed": "ait_llm.compare.api.functions",
    "module_dump": "ait_llm.dump.api.debugger",
    "module_dump_end": "ait_llm.dump.api.debugger",
    "save": "ait_llm.dump.api.debugger",
    "seed_all": "ait_llm.dump.api.seeding",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return found
