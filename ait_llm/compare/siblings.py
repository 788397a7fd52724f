"""The same tensor of another layer, and what it says about one that has no partner."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from ait_llm.core.comparison import Comparison, TensorRecord, Verdict

_COMPARED = (Verdict.PASS, Verdict.FAIL)
_NUMBER = re.compile(r"\d+")
_LEVEL = re.compile(r"(?<=\.)\d+(?=\.|$)")
"""A number that is a whole level of a path, ``3`` of ``layers.3.fc_1``."""
_PART = re.compile(r".*?\.\d+\.[^.]+(?=\.|$)")
_Called = tuple[str, str]
_Place = tuple[str, int, str, int, str]


class Siblings:
    """What was compared of all layers.

    Args:
        comparisons: of the whole report.
    """

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._pairs: dict[object, list[Comparison]] = defaultdict(list)
        self._compared: set[_Place] = set()
        self._comparisons = comparisons
        for item in comparisons:
            if item.verdict in _COMPARED:
                for side, record in sides_of(item):
                    self._pairs[_kind(side, record)].append(item)
                    self._compared.add(_place(side, record, record.op))

    @cached_property
    def _called(self) -> Mapping[object, Mapping[_Called, set[int]]]:
        """What ran within each part of a layer, and where in the run.

        Asked for only where something has no partner.
        """
        found: dict[object, dict[_Called, set[int]]] = defaultdict(lambda: defaultdict(set))
        for item in self._comparisons:
            for side, record in sides_of(item):
                found[_owner(side, record)][_within(record)].add(record.order)
        return found

    def show_a_gap(self, side: str, record: TensorRecord) -> bool:
        """True if another layer's tensor was compared and this one's counterpart was not.

        Where what stands at the place of the counterpart was compared with something else, this
        tensor has none: one mask for all layers, the ids that one rank has unchanged. An empty
        tensor needs none. Layers of several kinds, which call other operators, say nothing of each
        other; what one of two equal layers leaves out on one side alone is missing.
        """
        if record.shape is not None and not prod(record.shape):
            return False
        return any(
            self._is_missing(side, record, item) for item in self._pairs[_kind(side, record)]
        )

    def _is_missing(self, side: str, record: TensorRecord, item: Comparison) -> bool:
        found = dict(sides_of(item))
        sibling, other = found.pop(side), next(iter(found.values()), None)
        if _dims(sibling) != _dims(record) or other is None:
            return False
        name = _renumbered(other.op, _levels(sibling), _levels(record))
        other_side = "mine" if side == "golden" else "golden"
        if not self._are_alike(side, sibling, record):
            return False
        if self._differ(side, sibling, record) and self._differ(
            other_side, other, replace(other, op=name)
        ):
            return False  # both programs have layers of two kinds
        return _place(other_side, other, name) not in self._compared

    def _are_alike(self, side: str, sibling: TensorRecord, record: TensorRecord) -> bool:
        """True if the parts of two tensors call the same, but for what one of them leaves out.

        Each calls the operator of the tensor as often as the other: its calls are told by number.
        """
        one, other = (self._called[_owner(side, each)] for each in (sibling, record))
        if not (one.keys() <= other.keys() or other.keys() <= one.keys()):
            return False
        return len(one[_within(sibling)]) == len(other[_within(record)])

    def _differ(self, side: str, sibling: TensorRecord, record: TensorRecord) -> bool:
        """True if the parts of two tensors are there and do not call the same."""
        one, other = (self._called[_owner(side, each)] for each in (sibling, record))
        return bool(one and other) and one.keys() != other.keys()


def sides_of(item: Comparison) -> Iterator[tuple[str, TensorRecord]]:
    """The tensors of a comparison and whose they are."""
    if item.golden is not None:
        yield "golden", item.golden
    if item.mine is not None:
        yield "mine", item.mine


def _kind(side: str, record: TensorRecord) -> object:
    """What tensors of the same place in any layer have in common; steps may differ by nature."""
    # the number of a node or kernel of a compiled graph is no layer's
    name = record.op if record.graph else _numbers(record).sub("#", record.op)
    return side, record.step, name, record.op_type, record.call, record.name


def _owner(side: str, record: TensorRecord) -> object:
    return side, record.step, record.pid, _part(record)


def _within(record: TensorRecord) -> _Called:
    """The name of an operation within its part, and its type."""
    return _LEVEL.sub("#", record.op[len(_part(record)) :]), record.op_type


def _part(record: TensorRecord) -> str:
    """The part of a layer that a tensor is in, ``layers.3.mlp`` of ``layers.3.mlp.down.aten.mm``.

    Of what the layer itself calls, and outside of layers, it is the module whose code calls it.
    """
    caller = record.op.removesuffix(f".{_own_name(record)}")
    within = _PART.match(caller)
    return caller if within is None else within[0]


def _own_name(record: TensorRecord) -> str:
    """The name of an operation without that of the module around it."""
    if record.op_type and record.op.endswith(f".{record.op_type}"):
        return record.op_type
    return record.op.rpartition(".")[2]


def _numbers(record: TensorRecord) -> re.Pattern[str]:
    """Where a name has the numbers of layers: a path in its levels, others anywhere."""
    return _LEVEL if "." in record.op else _NUMBER


def _levels(record: TensorRecord) -> list[str]:
    return [] if record.graph else _numbers(record).findall(record.op)


def _renumbered(name: str, before: Sequence[str], after: Sequence[str]) -> str:
    """The name of what answers a tensor, where its sibling in another layer is answered so."""
    changed: Mapping[str, str] = dict(zip(before, after, strict=False))
    pattern = _LEVEL if "." in name else _NUMBER
    return pattern.sub(lambda match: changed.get(match[0], match[0]), name)


def _place(side: str, record: TensorRecord, name: str) -> _Place:
    return side, record.step, name, record.call, record.name


def _dims(record: TensorRecord) -> int | None:
    return None if record.shape is None else len(record.shape)
