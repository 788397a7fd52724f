"""Tensors that outlive a forward pass, such as the caches of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.replay.program import Key, Program
from ait_llm.replay.values import Values, mark_of

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class _Memory:
    """One tensor.

    Attributes:
        names: what the passes call it.
        place: among the memories of the last pass.
        value: what golden operators left in it.
        mark: digest of what the dumped run left in it; None if that was not captured.
    """

    names: set[str]
    place: int
    value: torch.Tensor
    mark: bytes | None


class Memories:
    """Hands what one pass left in memory to the next.

    A model for prefill and one for decoding give the same cache different names. What the dumped
    run found in a cache is what it had left there, so equal contents are the same memory; between
    memories of equal contents, and where contents were not captured, names decide and then the
    order.
    """

    def __init__(self) -> None:
        self._known: list[_Memory] = []
        self._linked: dict[Key, _Memory] = {}

    def give(self, program: Program, values: Values) -> list[Key]:
        """Give a pass what earlier ones left.

        Returns:
            Memories that an earlier pass wrote under the same name, and that do not hold any more
            what it left.
        """
        self._linked = {}
        changed = []
        for place, key in enumerate(program.memories):
            mark = mark_of(program, key)
            memory = self._find(key, place, mark)
            if memory is not None:
                self._linked[key] = memory
                values.keep(key, memory.value)
            elif any(key[0] in each.names for each in self._known):
                changed.append(key)
        return changed

    def take(self, program: Program, values: Values) -> None:
        """Remember what a pass left."""
        places = {key: place for place, key in enumerate(program.memories)}
        for first, last in values.updated():
            memory = self._linked.get(first)
            mark = mark_of(program, last)
            if memory is None:
                self._known = [each for each in self._known if first[0] not in each.names]
                memory = _Memory(set(), 0, values.computed[last], mark)
                self._known.append(memory)
            memory.names.add(first[0])
            memory.place = places.get(first, memory.place)
            memory.value, memory.mark = values.computed[last], mark

    def _find(self, key: Key, place: int, mark: bytes | None) -> _Memory | None:
        taken = {id(each) for each in self._linked.values()}
        free = [each for each in self._known if id(each) not in taken]
        choices = free
        if mark is not None:
            choices = [each for each in free if each.mark == mark]
            choices = choices or [each for each in free if each.mark is None]
        named = [each for each in choices if key[0] in each.names]
        placed = [each for each in choices if each.place == place]
        sure = choices if mark is not None and choices and choices[0].mark == mark else []
        return next(iter(named or placed or sure), None)
