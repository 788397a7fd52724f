"""Making a change in a program that does not know of it."""

from __future__ import annotations

from ait_llm.dump.changes import made
from ait_llm.dump.changes.calls import ChangedCalls
from ait_llm.dump.changes.engine import ChangedEngine
from ait_llm.dump.changes.process import change_process


def start_change(name: str) -> None:
    """Make a change of all models of this process; ``plain`` only reports their answers."""
    change_process(name)
    if name in ("again", "threads", "memory"):  # no call of the program needs to be another one
        made(name)
    ChangedCalls(name).install()
    ChangedEngine(name).install()
