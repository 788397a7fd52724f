"""Every reader of files that come from elsewhere, with the good files to begin with."""

from __future__ import annotations

import earlier_targets
import setting_targets
import table_targets
import tensor_targets
import topology_targets
from dump_targets import TARGETS as DUMPS
from engine import Target

_PARTS = (
    tensor_targets.TARGETS,
    topology_targets.TARGETS,
    table_targets.TARGETS,
    DUMPS,
    setting_targets.TARGETS,
    earlier_targets.TARGETS,
)


def all_targets() -> dict[str, Target]:
    """The targets by name.

    Raises:
        ValueError: two of them have one name.
    """
    found: dict[str, Target] = {}
    for target in (each for part in _PARTS for each in part):
        if target.name in found:
            raise ValueError(f"two targets are called {target.name}")
        found[target.name] = target
    return found
