"""Units as tasks of a Ray cluster."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ait_llm import __version__
from ait_llm.engine.model import Lost, Result, Unit
from ait_llm.engine.placement import Node, able, least_busy
from ait_llm.engine.ray_silence import asking
from ait_llm.engine.ray_tasks import Failure, compute, probe_function
from ait_llm.errors import UsageError
from ait_llm.storage import is_url, redacted

_POLL_SECONDS = 0.2  # how long a stop waits at most
_ATTEMPTS = 4  # of each unit, on any node
_AHEAD = 1  # units that wait at a node for each that it computes
_PROBE_SECONDS = 60.0
_CANCEL_SECONDS = 5.0


class RemoteTraceback(Exception):
    """Carries the traceback of a worker as the cause of its exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(slots=True)
class _Attempt:
    index: int
    unit: Any
    node: Node | None = None
    made: int = 0
    deaths: int = 0  # of workers on nodes that live on


class RayEngine:
    """Sends each unit to a node that sees the data; the cluster is connected already.

    A unit whose worker process dies is computed again, on another node where its own is gone.

    Args:
        limit: units at the same time; None for as many as the cluster has processors.
    """

    remote = True

    @asking()
    def __init__(self, limit: int | None = None) -> None:
        import ray

        self._limit = limit
        self._task = ray.remote(compute)  # workers fetch it once
        self._preparing: list[Any] = []
        self._nodes = _alive()
        self._probed: dict[str, frozenset[str]] = {}

    @property
    def slots(self) -> int:
        """Units at the same time."""
        total = max(1, sum(node.slots for node in self._nodes))
        return total if self._limit is None else min(self._limit, total)

    def look_for(self, roots: Sequence[str]) -> None:
        """See :class:`~ait_llm.engine.model.Engine`."""
        nodes = self.nodes_for(roots)
        for root in roots:
            if not is_url(root) and not Path(root).exists():
                where = ", ".join(dict.fromkeys(node.name for node in nodes))
                raise UsageError(
                    f"{root}: is not on this machine but on {where}; start the command there, for "
                    "it lists the dump itself, or give a URL"
                )

    @asking()
    def prepare(self, function: Callable[[None], object], roots: Sequence[str] = ()) -> None:
        """See :class:`~ait_llm.engine.model.Engine`."""
        import ray

        token, reference = uuid.uuid4().hex, ray.put(function)
        self._preparing = [
            _on(node, self._task).remote(token, [reference], None, 1)
            for node in self.nodes_for(roots)
            for _ in range(node.slots if self._limit is None else min(node.slots, self._limit))
        ]

    def run(
        self,
        function: Callable[[Unit], Result],
        units: Sequence[Unit],
        *,
        roots: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> Generator[tuple[int, Result | Lost], None, None]:
        """See :class:`~ait_llm.engine.model.Engine`; after a stop what is under way is cancelled.

        Raises:
            UsageError: no node sees all roots, or the nodes have another version of this package.
        """
        nodes = self.nodes_for(roots)
        run = _Run(self._task, function, units, roots, nodes, self._limit, stop)
        yield from run.results()

    def nodes_for(self, roots: Sequence[str]) -> list[Node]:
        """The nodes that can read all roots.

        Raises:
            FormatError: no node sees a root.
            UsageError: no node sees all of them, or has this version of the package.
        """
        for root in roots:
            if "memory://" in root:
                raise UsageError(
                    f"{redacted(root)}: is in the memory of this process, where other processes "
                    "do not see it; leave out --engine ray"
                )
        unknown = [root for root in roots if not is_url(root) and root not in self._probed]
        if unknown or not roots:
            self._probe(unknown)
        paths = [root for root in roots if not is_url(root)]
        seen = (
            replace(node, seen=frozenset(p for p in paths if node.id in self._probed[p]))
            for node in self._nodes
        )
        return able(list(seen), paths)

    @asking()
    def _probe(self, roots: Sequence[str]) -> None:
        """Ask every node what it sees."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = ray.remote(probe_function())
        asked = {
            probe.options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            ).remote(roots): node
            for node in self._nodes
        }
        answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=_PROBE_SECONDS)
        for reference in late:
            ray.cancel(reference, force=True)
        seen: dict[str, set[str]] = {root: set() for root in roots}
        present = []
        for reference in answered:
            node = asked[reference]
            try:
                answer = ray.get(reference)
            except ray.exceptions.RayError:
                continue  # it went away meanwhile
            if node.slots and answer["version"] != __version__:
                has = f"ait-llm {answer['version']}" if answer["version"] else "no ait-llm"
                raise UsageError(
                    f"node {node.name} of the Ray cluster has {has}, this is {__version__}; "
                    "install the same version on all nodes"
                )
            present.append(node)
            for root in answer["seen"]:
                seen[root].add(node.id)
        self._nodes = present
        self._probed |= {root: frozenset(ids) for root, ids in seen.items()}


class _Run:
    """One call of :meth:`RayEngine.run`."""

    @asking()
    def __init__(
        self,
        task: Any,
        function: Callable[[Any], Any],
        units: Sequence[Any],
        roots: Sequence[str],
        nodes: list[Node],
        limit: int | None,
        stop: threading.Event | None,
    ) -> None:
        import ray

        self._waiting = deque(_Attempt(index, unit) for index, unit in enumerate(units))
        if isinstance(units, list):
            units.clear()
        self._roots = roots
        self._nodes = nodes
        self._limit = limit
        self._stop = stop if stop is not None else threading.Event()
        self._lost: list[str] = []
        self._running: dict[Any, _Attempt] = {}
        self._busy: dict[str, int] = {}
        self._token = uuid.uuid4().hex
        self._function = ray.put(function)
        self._task = task

    def results(self) -> Generator[tuple[int, Any], None, None]:
        """Results and losses as they come."""
        try:
            while (self._waiting or self._running) and not self._stop.is_set():
                yield from self._hand_out()
                if not self._running:
                    continue
                yield from self._collect(1, _POLL_SECONDS)
            if self._running:  # stopped; what is finished counts
                yield from self._collect(len(self._running), 0)
        finally:
            self._cancel()

    def _collect(self, count: int, seconds: float) -> Generator[tuple[int, Any], None, None]:
        """Wait so long for so many, and take those that are there."""
        import ray

        with asking():
            done, _ = ray.wait(list(self._running), num_returns=count, timeout=seconds)
        for reference in done:
            attempt = self._running.pop(reference)
            assert attempt.node is not None
            self._busy[attempt.node.id] -= 1
            yield from self._collected(reference, attempt)

    @asking()
    def _cancel(self) -> None:
        """End what is under way; a task that is just about to start overhears the first request."""
        import ray

        left = list(self._running)
        end = time.monotonic() + _CANCEL_SECONDS
        while left and time.monotonic() < end:
            for reference in left:
                ray.cancel(reference, force=True)
            _, left = ray.wait(left, num_returns=len(left), timeout=_POLL_SECONDS)

    def _hand_out(self) -> Generator[tuple[int, Lost], None, None]:
        if not self._nodes:
            while self._waiting:
                attempt = self._waiting.popleft()
                yield attempt.index, Lost(self._nowhere())
            return
        ahead = _AHEAD if self._limit is None else 0
        while self._waiting and (self._limit is None or len(self._running) < self._limit):
            node = least_busy(self._nodes, self._busy, ahead)
            if node is None:
                return
            attempt = self._waiting.popleft()
            attempt.node = node
            attempt.made += 1
            with asking():
                reference = _on(node, self._task).remote(
                    self._token, [self._function], attempt.unit, attempt.made
                )
            self._running[reference] = attempt
            self._busy[node.id] = self._busy.get(node.id, 0) + 1

    def _collected(
        self, reference: Any, attempt: _Attempt
    ) -> Generator[tuple[int, Any], None, None]:
        import ray

        try:
            with asking():
                result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # not even the unit's own code ran
            raise UsageError(
                f"a worker of the Ray cluster cannot run this version: {_first_line(error.cause)}"
            ) from error
        except ray.exceptions.RayError as error:
            yield from self._failed(attempt, error)
            return
        if isinstance(result, Failure):
            raise result.error from RemoteTraceback(result.trace)
        yield attempt.index, result

    def _failed(
        self, attempt: _Attempt, error: Exception
    ) -> Generator[tuple[int, Lost], None, None]:
        """The worker or its node died."""
        import ray

        assert attempt.node is not None
        name, alive = attempt.node.name, {node.id for node in _alive()}
        self._lost += [node.name for node in self._nodes if node.id not in alive]
        self._nodes = [node for node in self._nodes if node.id in alive]
        attempt.deaths += attempt.node.id in alive
        if attempt.deaths < _ATTEMPTS:
            self._waiting.appendleft(attempt)
            return
        what = "died"
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            what = "was killed because memory ran out"
        yield (
            attempt.index,
            Lost(f"its worker process {what} in each of {_ATTEMPTS} attempts, at last at {name}"),
        )

    def _nowhere(self) -> str:
        paths = " and ".join(map(redacted, self._roots)) or "its data"
        which = "node" if len(self._lost) == 1 else "nodes"
        verb = "was" if len(self._lost) == 1 else "were"
        return (
            f"{which} {', '.join(self._lost)} {verb} lost, and no other node with processors sees "
            f"{paths}"
        )


def _on(node: Node, task: Any) -> Any:
    """A task for one processor of a node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return task.options(
        num_cpus=1,
        max_retries=0,  # where it is tried again is decided by us
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    )


@asking()
def _alive() -> list[Node]:
    import ray

    nodes: Any = ray.nodes  # without types
    return [
        Node(
            each["NodeID"],
            str(each["NodeManagerAddress"]),
            int(each["Resources"].get("CPU", 0)),
        )
        for each in nodes()
        if each["Alive"]
    ]


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
