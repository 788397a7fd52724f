"""Taps in device graphs (CUDA graphs, ACLGraph): what a replay fills is read when it has run.

While a device records a graph, Python runs once and the device's work is noted down. A tap then
copies its values into memory that stays where it is, and notes what they are; nothing here waits
for the device. Each replay does the copies again; behind it, on the same stream, what was noted is
delivered with what the memory holds now. Graphs of several sizes share the memory of a tap, which
is as large as the largest: what one replay has left is on its way to the host, in stream order,
before the next one writes.

Where statistics alone are wanted, they are computed within the graph, and six numbers are kept.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.pytorch.statistics import NotKept, Reduced, reduced
from ait_llm.dump.taps.operator import ENTER_ROOT, deliver, receiver_of

STATIC_BYTES = 4 << 30
"""Memory of a device that taps of graphs may take in one process."""

KINDS = (("torch.cuda.graphs", "CUDAGraph"), ("torch_npu.npu.graphs", "NPUGraph"))
"""Classes of device graphs by their modules: ``capture_begin``, ``capture_end``, ``replay``."""


@dataclass(slots=True)
class _Noted:
    """A tap as it was recorded: what :func:`deliver` takes."""

    number: str
    event: str
    path: str
    values: list[tuple[str, object]]
    texts: list[str]


@dataclass(slots=True)
class StaticMemory:
    """Memory at fixed addresses, by tap.

    Attributes:
        limit: bytes that may be taken.
        taken: bytes that are.
    """

    limit: int = STATIC_BYTES
    taken: int = 0
    _held: dict[tuple[object, ...], Tensor] = field(default_factory=dict)

    def keep(self, key: tuple[object, ...], value: Tensor) -> Tensor | None:
        """Copy a value to its place, which the same key has in every graph.

        Returns:
            The copy; None if there is no room for it.
        """
        size = value.numel() * value.element_size()
        key = (*key, value.device)
        place = self._held.get(key)
        if place is None or place.numel() < size:
            # a smaller place lives on with the graphs that were recorded with it
            if self.taken + size > self.limit:
                return None
            self.taken += size
            place = self._held[key] = torch.empty(size, dtype=torch.uint8, device=value.device)
        target = place[:size].view(value.dtype).view(value.shape)
        return target.copy_(value)


class Follower(Protocol):
    """What is told when a device records a graph."""

    def recording_begins(self) -> None:
        """A device begins."""

    def recording_ends(self) -> None:
        """It has recorded one."""


class Recordings:
    """What was tapped while graphs were recorded.

    Args:
        memory: where values are kept.
    """

    def __init__(self, memory: StaticMemory) -> None:
        self.memory = memory
        self._open: list[_Noted] | None = None
        self._calls: Counter[tuple[str, str, str]] = Counter()
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._tapes: weakref.WeakKeyDictionary[Any, list[_Noted]] = weakref.WeakKeyDictionary()

    @property
    def is_open(self) -> bool:
        """True while a graph is recorded."""
        return self._open is not None

    def follow(self, follower: Follower) -> None:
        """Tell this one of the graphs that are recorded from now on, as long as it lives."""
        self._followers.add(follower)

    def begin(self) -> None:
        """A device begins to record a graph."""
        self._open = []
        self._calls.clear()
        for each in list(self._followers):
            each.recording_begins()

    def end(self, graph: Any) -> None:
        """It has recorded this one."""
        if self.is_open:
            for each in list(self._followers):
                each.recording_ends()
        tape, self._open = self._open, None
        if tape:
            self._tapes[graph] = tape

    def note(
        self,
        number: str,
        event: str,
        path: str,
        values: Sequence[tuple[str, Tensor]],
        texts: Sequence[str],
    ) -> None:
        """Record a tap, with a copy of its values.

        Args:
            number, event, path, values, texts: see :data:`ait_llm.dump.taps.operator.SCHEMA`.
        """
        receiver = receiver_of(number)
        if receiver is None or self._open is None:
            return
        place = (number, event, path)
        # a module that runs several times in a graph has memory for each
        key = (*place, self._calls[place])
        self._calls[place] += 1
        kept: list[tuple[str, object]] = []
        with torch.no_grad():
            for name, value in values:
                only = receiver.wants_numbers_only and event != ENTER_ROOT  # it tells the step
                kept.append((name, self._kept((*key, name), value, numbers_only=only)))
        self._open.append(_Noted(number, event, path, kept, list(texts)))

    def _kept(self, key: tuple[object, ...], value: Tensor, *, numbers_only: bool) -> object:
        found = reduced(value) if numbers_only else None
        place = self.memory.keep(key, value if found is None else found.numbers)
        if place is None:
            return NotKept(f"taps of device graphs may take {self.memory.limit} bytes")
        return place if found is None else Reduced(found.dtype, found.shape, place)

    def replayed(self, graph: Any) -> None:
        """A graph ran again: deliver what its taps have now."""
        for noted in self._tapes.get(graph, ()):
            receiver = receiver_of(noted.number)
            if receiver is not None and receiver.is_tapping:
                values = [(name, _now(value)) for name, value in noted.values]
                deliver(noted.number, noted.event, noted.path, values, noted.texts)


def _now(value: object) -> object:
    """The numbers as they are, since they are read later, when the next replay may have run."""
    if isinstance(value, Reduced):
        return Reduced(value.dtype, value.shape, value.numbers.clone())
    return value


recordings = Recordings(StaticMemory())
"""Those of this process."""


def tap(
    values: list[Tensor],
    clock: Tensor,
    capture: str,
    event: str,
    path: str,
    names: list[str],
    texts: list[str],
) -> None:
    """What the operator does."""
    named = list(zip(names, values, strict=True))
    if recordings.is_open:
        recordings.note(capture, event, path, named, texts)
    else:
        deliver(capture, event, path, named, texts)


@functools.cache
def watch_graphs() -> None:
    """Follow the graphs of devices, now or when their modules are imported."""
    for module, name in KINDS:
        watch = functools.partial(_watch_kind, module, name)
        if module in sys.modules:
            watch()
        else:
            when_imported(module, watch)


def _watch_kind(module: str, name: str) -> None:
    kind = getattr(sys.modules.get(module), name, None)
    if isinstance(kind, type):
        watch_graph(kind, recordings)


def watch_graph(kind: type, found: Recordings) -> None:
    """Follow the graphs of a class.

    Args:
        kind: has ``capture_begin``, ``capture_end`` and ``replay``.
        found: is told of them.
    """
    if "ait_watched" in vars(kind):
        return
    begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay  # type: ignore[attr-defined]

    @functools.wraps(begin)
    def begin_and_note(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(graph, *args, **kwargs)
        found.begin()
        return result

    @functools.wraps(end)
    def end_and_note(graph: Any, *args: Any, **kwargs: Any) -> Any:
        found.end(graph)
        return end(graph, *args, **kwargs)

    @functools.wraps(replay)
    def replay_and_deliver(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = replay(graph, *args, **kwargs)
        found.replayed(graph)
        return result

    kind.capture_begin = begin_and_note  # type: ignore[attr-defined]
    kind.capture_end = end_and_note  # type: ignore[attr-defined]
    kind.replay = replay_and_deliver  # type: ignore[attr-defined]
    kind.ait_watched = True  # type: ignore[attr-defined]
