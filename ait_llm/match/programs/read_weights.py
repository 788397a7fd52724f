"""Weights of operators that answer each other, where operators were captured without modules.

A ledger says which part of which parameter an operator of torch was given. Two operators of one
type whose results are the same value read the same weight, as far as both were given a part of the
same shape, laid out alike. One side may keep several of them as one parameter, such as the weights
of all experts: then its share of it is compared. What lies otherwise in memory is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.model import Match, Source
from ait_llm.match.programs.links import LIKELY
from ait_llm.match.programs.weight_parts import WeightPart, part_of
from ait_llm.match.views import View
from ait_llm.program.describe import shape_of


class ReadWeights:
    """The weights that paired operators read, each pair of them once.

    Args:
        golden, mine: saved parameters of either side by name.
        known: names of pairs of them that modules have told.
        without: modules whose weights are not compared.
    """

    def __init__(
        self,
        golden: Mapping[str, Tensor],
        mine: Mapping[str, Tensor],
        known: Iterable[tuple[str, str]] = (),
        without: frozenset[str] = frozenset(),
    ) -> None:
        self._golden, self._mine = golden, mine
        self._known = set(known)
        self._without = without
        self._seen: set[tuple[WeightPart, WeightPart]] = set()

    def of(self, match: Match) -> Iterator[tuple[Source, Source]]:
        """Golden's weights and mine that the operators of a match read, which were not told yet."""
        golden, mine = match.golden, match.mine
        if not self._golden or not self._mine or not _is_plain(match):
            return
        theirs, ours = golden.operation.weights, mine.operation.weights
        for stem in theirs.keys() & ours.keys():
            one, other = part_of(theirs[stem]), part_of(ours[stem])
            if one is None or other is None or one.shape != other.shape:
                continue
            if one.strides != other.strides or (one.name, other.name) in self._known:
                continue
            if not self._without.isdisjoint(map(_module, (one.name, other.name))):
                continue
            saved = self._golden.get(one.name), self._mine.get(other.name)
            if saved[0] is None or saved[1] is None or (one, other) in self._seen:
                continue
            self._seen.add((one, other))
            same_shape = shape_of(saved[0]) == shape_of(saved[1])
            views: tuple[tuple[View, ...] | None, ...]
            if same_shape and one.start(saved[0]) == other.start(saved[1]):
                self._known.add((one.name, other.name))
                views = (), ()  # one parameter on both sides, as it was saved
            else:
                views = one.views(saved[0]), other.views(saved[1])
            if views[0] is None or views[1] is None:
                continue
            yield (
                _source(golden, one.name, saved[0], views[0]),
                _source(mine, other.name, saved[1], views[1]),
            )


def _is_plain(match: Match) -> bool:
    """True for whole results of two operators of one type."""
    golden, mine = match.golden, match.mine
    return (
        (golden.tensor.role, mine.tensor.role) == ("out", "out")
        and golden.operation.type == mine.operation.type
        and not (golden.views or mine.views or match.alternatives or match.is_self_check)
        and match.confidence >= LIKELY
    )


def _module(path: str) -> str:
    """The module that has a parameter."""
    return path.rpartition(".")[0]


def _source(reader: Source, path: str, tensor: Tensor, views: tuple[View, ...]) -> Source:
    """A parameter of the module that has it, at the place of the operator that reads it."""
    module, _, name = path.rpartition(".")
    owner: Operation = replace(reader.operation, name=module)
    return Source(owner, tensor, reader.order, views, name)
