"""The engine that a user asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ait_llm.core.optional import import_optional
from ait_llm.engine.model import Engine
from ait_llm.errors import UsageError

ENGINES = ("local", "ray")


@contextmanager
def open_engine(
    name: str = "local", address: str | None = None, jobs: int | None = None
) -> Iterator[Engine | None]:
    """An engine that is closed at the end, with all processes that it started.

    Args:
        name: ``local`` or ``ray``.
        address: of a running cluster, ``auto`` or ``HOST:PORT``; None for worker processes of our
            own.
        jobs: units at the same time; None for one for each processor.

    Yields:
        None for ``local``: each use case has threads of its own.

    Raises:
        UsageError: no such engine, an address without a cluster engine, or no cluster there.
        MissingDependencyError: ray is not installed.
    """
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise UsageError("--address is for --engine ray")
        yield None
        return
    import_optional("ray", "--engine ray", "ray")
    from ait_llm.engine.ray_cluster import open_cluster
    from ait_llm.engine.ray_engine import RayEngine

    with open_cluster(address, jobs):
        yield RayEngine(jobs if address is not None else None)
