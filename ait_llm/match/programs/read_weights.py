"""Weights of operators that answer each other, where operators were captured without modules.

A ledger says which part of which parameter an operator of torch was given. Two operators of one
type whose results are the same value read the same weight, as far as both were given the same part
of one of the same shape; what lies otherwise in memory is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.model import Match, Source
from ait_llm.match.programs.links import LIKELY

_LAYOUT = ("shape", "stride", "offset")


class ReadWeights:
    """The weights that paired operators read, each pair of them once.

    Args:
        golden, mine: saved parameters of either side by name.
        known: names of pairs of them that modules have told.
    """

    def __init__(
        self,
        golden: Mapping[str, Tensor],
        mine: Mapping[str, Tensor],
        known: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._golden, self._mine = golden, mine
        self._known = set(known)

    def of(self, match: Match) -> Iterator[tuple[Source, Source]]:
        """Golden's weights and mine that the operators of a match read, which were not told yet."""
        golden, mine = match.golden, match.mine
        if not self._golden or not self._mine or not _is_plain(match):
            return
        theirs, ours = golden.operation.weights, mine.operation.weights
        for stem in theirs.keys() & ours.keys():
            one, other = _read(theirs[stem]), _read(ours[stem])
            if one is None or other is None or one[1] != other[1]:
                continue
            names = one[0], other[0]
            saved = self._golden.get(names[0]), self._mine.get(names[1])
            if names in self._known or saved[0] is None or saved[1] is None:
                continue
            self._known.add(names)
            yield _source(golden, names[0], saved[0]), _source(mine, names[1], saved[1])


def _is_plain(match: Match) -> bool:
    """True for whole results of two operators of one type."""
    golden, mine = match.golden, match.mine
    return (
        (golden.tensor.role, mine.tensor.role) == ("out", "out")
        and golden.operation.type == mine.operation.type
        and not (golden.views or mine.views or match.alternatives or match.is_self_check)
        and match.confidence >= LIKELY
    )


def _read(record: object) -> tuple[str, tuple[object, ...]] | None:
    """The name of a parameter and which part of it an operator was given."""
    if not isinstance(record, Mapping) or not isinstance(record.get("name"), str):
        return None
    return record["name"], tuple(str(record.get(word)) for word in _LAYOUT)


def _source(reader: Source, path: str, tensor: Tensor) -> Source:
    """A parameter of the module that has it, at the place of the operator that reads it."""
    module, _, name = path.rpartition(".")
    owner: Operation = replace(reader.operation, name=module)
    return Source(owner, tensor, reader.order, (), name)
