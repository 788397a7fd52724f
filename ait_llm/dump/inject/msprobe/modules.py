"""The modules of ``msprobe`` that are ours within a started program, and what they hold.

``msprobe`` itself is an empty package that leads to the other parts of an installed one. Engines
and scripts of several releases take the same few names from different modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

from ait_llm.dump.inject.channel import report

_NAMES = "ait_llm.dump.inject.msprobe.names"
_DEBUGGER = ("PrecisionDebugger", "module_dump", "module_dump_end")
_MODULES: dict[str, tuple[str, ...]] = {
    "msprobe.pytorch": (*_DEBUGGER, "AclGraphDumper", "acl_save", "seed_all", "save"),
    "msprobe.pytorch.aclgraph_dump": ("acl_save",),
    "msprobe.pytorch.aclgraph_dumper": ("AclGraphDumper",),
    "msprobe.pytorch.common": ("seed_all",),
    "msprobe.pytorch.common.utils": ("seed_all",),
    "msprobe.pytorch.debugger": (),
    "msprobe.pytorch.debugger.precision_debugger": _DEBUGGER,
    "msprobe.pytorch.dump": (),
    "msprobe.pytorch.dump.debugger": (),
    "msprobe.pytorch.dump.debugger.precision_debugger": _DEBUGGER,
}


def found(name: str, elsewhere: Sequence[str] = ()) -> ModuleSpec | None:
    """Where Python gets the module of that name from.

    Args:
        name: ``msprobe``, ``msprobe.pytorch`` or something in it.
        elsewhere: folders of an installed msprobe, for its other parts.

    Returns:
        None for what ours does not have; the launcher hears of it.
    """
    if name == "msprobe":
        spec = _spec(name, _Loader((), installed=elsewhere))
        spec.submodule_search_locations = list(elsewhere)
        return spec
    if name not in _MODULES:
        report("absent", name=name)
        return None
    return _spec(name, _Loader(_MODULES[name]))


def _spec(name: str, loader: _Loader) -> ModuleSpec:
    return ModuleSpec(name, cast(Loader, loader), is_package=True)


class _Loader:
    """Fills a module with names of ours."""

    def __init__(self, names: Sequence[str], installed: Sequence[str] = ()) -> None:
        self._names = names
        self._installed = list(installed)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "msprobe":
            report("msprobe", installed=self._installed)
            return
        module.__doc__ = "Stands in the place of msprobe: ait llm dump --msprobe-config."
        module.__path__ = []  # nothing of an installed one below it
        names = importlib.import_module(_NAMES) if self._names else None
        for name in self._names:
            setattr(module, name, getattr(names, name))
        if module.__name__ == "msprobe.pytorch":
            report("pytorch")

        def missing(name: str) -> Any:
            if not name.startswith("_"):
                report("absent", name=f"{module.__name__}.{name}")
            raise AttributeError(
                f"what stands in the place of {module.__name__} has no {name!r} "
                f"(ait llm dump --msprobe-config); it has {', '.join(_MODULES[module.__name__])}"
            )

        module.__dict__["__getattr__"] = missing
