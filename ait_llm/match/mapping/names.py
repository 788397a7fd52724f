"""What a run calls its tensors, whatever process or step it is from.

An operation goes by the dotted name of its module, or by the type and place of an ATB operation,
counted from the first one of its model: ``LinearOperation_2_0_1``. A tensor goes by the argument
that it is (``input_hidden_states``, ``output_0``, ``weight``) or by its position
(``intensor0``, ``outtensor1``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from ait_llm.dumps.model import Tensor
from ait_llm.match.mapping.patterns import Captured, Pattern, capture, skeleton, skeleton_of
from ait_llm.match.model import Source
from ait_llm.match.operators import Placed, placed
from ait_llm.match.views import View
from ait_llm.program.one_pass import Pass

_ROOT = "root."
_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor with its names.

    Attributes:
        label: the name that a written file has.
        source: the tensor as a side of a match, without views.
    """

    label: str
    source: Source

    @property
    def key(self) -> tuple[int, str]:
        """What tells the tensors of one run apart."""
        return self.source.record.order, self.source.record.name

    def viewed(self, views: tuple[View, ...]) -> Source:
        """The tensor as a side of a match."""
        return replace(self.source, views=views)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation with its tensors.

    Attributes:
        name: without ``root.`` and without the first place of its model.
        call: which call of that name within the pass.
        entries: its tensors by every name that they go by.
        outputs: what it writes, in order.
    """

    name: str
    call: int
    entries: Mapping[str, Entry]
    outputs: tuple[Entry, ...]

    def labels(self) -> dict[str, Entry]:
        """Each tensor once, by the name that a written file has."""
        return {entry.label: entry for entry in self.entries.values()}


class Names:
    """The operations of a run by name."""

    def __init__(self, run: Pass) -> None:
        self.run = run
        self.model = "" if run.model is None else run.model.name
        tops = (each.op_id.parts[0] for each in run.operations if each.op_id.parts)
        is_atb = run.traits.library
        self._base = (run.first_id or min(tops, default=0)) if is_atb else 0
        self._weights: dict[str, list[tuple[str, Tensor]]] = defaultdict(list)
        for name, tensor in run.weights.items():
            owner, _, kind = name.rpartition(".")
            self._weights[owner].append((kind, tensor))
        self._ops: dict[tuple[str, int], Op] = {}
        self.by_key: dict[tuple[int, str], tuple[Op, Entry]] = {}
        for each in placed(run):
            self._add(each)
        self._skeletons: dict[str, list[Op]] = defaultdict(list)
        for op in self._ops.values():
            self._skeletons[skeleton(op.name)].append(op)

    def find(self, pattern: Pattern) -> Iterator[tuple[Captured, Op]]:
        """Operations whose names fit a pattern, in execution order."""
        key = skeleton_of(pattern)
        for op in self._ops.values() if key is None else self._skeletons.get(key, ()):
            captured = capture(pattern, op.name)
            if captured is not None:
                yield captured, op

    def get(self, name: str, call: int) -> Op | None:
        """An operation by its name."""
        return self._ops.get((plain(name), call))

    def nearest(self, text: str) -> list[str]:
        """Names of operations that are spelled nearly so."""
        names = list(dict.fromkeys(op.name for op in self._ops.values()))
        close = get_close_matches(text, names, _NEAREST, 0.4)
        return close or names[:_NEAREST]

    def _add(self, each: Placed) -> None:
        name, call = self._name(each), each.operation.call
        while (name, call) in self._ops:  # not every kind of dump counts calls
            call += 1
        inputs = list(_entries(each, each.operation.inputs))
        outputs = list(_entries(each, each.operation.outputs))
        entries: dict[str, Entry] = {}
        for entry in (*outputs, *inputs):
            entries.setdefault(entry.source.tensor.name, entry)
        for entry in (*inputs, *outputs):
            entries.setdefault(entry.label, entry)
        if call == 0:
            for kind, tensor in self._weights.pop(each.operation.name, ()):
                entries.setdefault(kind, _weight(each, kind, tensor))
        op = Op(name, call, entries, tuple(outputs))
        self._ops[name, call] = op
        for entry in entries.values():
            self.by_key[entry.key] = op, entry

    def _name(self, each: Placed) -> str:
        """``Prefill_layer_8`` of a model that begins with 6 becomes ``Prefill_layer_2``."""
        operation = each.operation
        if not self.run.traits.library:
            return plain(operation.name)
        first, *rest = operation.op_id.parts
        kind = operation.name.removesuffix(f"_{operation.op_id}")
        return "_".join([kind, str(first - self._base), *map(str, rest)])


def plain(name: str) -> str:
    """A dotted name without the ``root.`` that captures put before it."""
    return name.removeprefix(_ROOT)


def _entries(each: Placed, tensors: Sequence[Tensor]) -> Iterator[Entry]:
    stems = [tensor.stem or tensor.name for tensor in tensors]
    for tensor, stem in zip(tensors, stems, strict=True):
        label = stem if stems.count(stem) == 1 else tensor.name
        yield Entry(label, each.source(tensor))


def _weight(each: Placed, kind: str, tensor: Tensor) -> Entry:
    return Entry(kind, replace(each.source(tensor), parameter=kind))
