"""What ``msprobe.pytorch`` holds within a started program: ours, with the launcher's settings.

Whatever file or arguments the program gives, the file of ``--msprobe-config`` holds; the launcher
says so. Both classes tell the launcher that they were made, and what they write to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ait_llm.dump.api import module_dump, module_dump_end, save, seed_all
from ait_llm.dump.api.debugger import PrecisionDebugger as OwnDebugger
from ait_llm.dump.api.graph_dumper import AclGraphDumper as OwnGraphDumper
from ait_llm.dump.api.graph_dumper import acl_save
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.msprobe.settings import VARIABLE, MsprobeSettings

__all__ = [
    "AclGraphDumper",
    "PrecisionDebugger",
    "acl_save",
    "module_dump",
    "module_dump_end",
    "save",
    "seed_all",
]


def _settings(kind: str, config_path: Any, **given: Any) -> MsprobeSettings:
    """The launcher's settings; what the program wants in their place is reported."""
    settings = MsprobeSettings.from_json(os.environ[VARIABLE])
    named = None if config_path is None else str(Path(str(config_path)).absolute())
    report(
        "debugger",
        kind=kind,
        named=None if named == str(settings.config) else named,
        given=sorted(name for name, value in given.items() if value is not None),
    )
    return settings


class PrecisionDebugger(OwnDebugger):
    """:class:`ait_llm.dump.api.PrecisionDebugger` with the launcher's configuration."""

    _started = False

    def __new__(
        cls,
        config_path: Any = None,
        task: Any = None,
        dump_path: Any = None,
        level: Any = None,
        step: Any = None,
        **older: Any,
    ) -> PrecisionDebugger:
        if isinstance(cls._instance, cls):
            return cls._instance
        given = {"task": task, "dump_path": dump_path, "level": level, "step": step, **older}
        settings = _settings("PrecisionDebugger", config_path, **given)
        made = super().__new__(cls, settings.config, dump_path=settings.dump_path)
        assert isinstance(made, PrecisionDebugger)
        return made

    @classmethod
    def start(cls, model: Any = None, *args: Any, **kwargs: Any) -> None:
        if not cls._started:
            cls._started = True
            report("start")
        super().start(model, *args, **kwargs)

    @classmethod
    def step(cls, *_: Any, **__: Any) -> None:
        """End a step. What engines say here is for :class:`AclGraphDumper`."""
        super().step()


class AclGraphDumper(OwnGraphDumper):
    """:class:`ait_llm.dump.api.AclGraphDumper` with the launcher's configuration."""

    def __init__(self, config_path: Any = None) -> None:
        settings = _settings("AclGraphDumper", config_path)
        super().__init__(settings.config, dump_path=settings.dump_path)

    def start(self, model: Any) -> None:
        report("start")
        super().start(model)
