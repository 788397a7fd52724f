"""What other packages add: modules that they install as entry points of a group."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from ait_llm.errors import UsageError


@cache
def load_plugins(group: str) -> None:
    """Import every installed module of a group, once; what it registers is there afterwards.

    Args:
        group: ``ait_llm.dumps`` for kinds of dumps, ``ait_llm.matchers`` for matchers.

    Raises:
        UsageError: one cannot be imported.
    """
    for point in entry_points(group=group):
        try:
            point.load()
        except Exception as error:  # anything can happen in foreign code
            raise UsageError(
                f"{point.name!r} ({point.value}) of the entry points {group} cannot be loaded: "
                f"{error!r}; uninstall or update its package"
            ) from error
