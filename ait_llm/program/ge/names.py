"""Names of dumped operators to the operators of the graph that they stand for.

The graph engine calls an operator that it fused by the names of its parts, in node order and with
nothing between them: ``SwishMul_8Cast_17`` is ``Swish``, ``Mul_8`` and ``Cast_17``. The type tells
nothing, because every fusion pass has its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

_SEPARATORS = str.maketrans(dict.fromkeys(" ./\\", "_"))
# What the engine puts between two operators, such as trans_TransData_14 or trans_Cast_10.
_INSERTED = re.compile(r"trans_[A-Za-z][A-Za-z0-9]*_[0-9]+")
LONG = "_ub_fusion"
"""Ends the name of a fused operator whose parts' names would take more than 512 characters."""

_MOST_READINGS = 8  # of one name; the tensors of the file choose among them


@dataclass(frozen=True, slots=True)
class Part:
    """One operator within a dumped one.

    Attributes:
        name: as in file names, see :func:`escape`.
        inserted: the graph engine added it; the graph of the framework does not have it.
    """

    name: str
    inserted: bool = False


def escape(name: str) -> str:
    """An operator's name as it stands in file names."""
    return name.translate(_SEPARATORS)


def is_inserted(name: str) -> bool:
    """True for a name that the graph engine gives to operators that it adds."""
    return _INSERTED.fullmatch(name) is not None


class Tiler:
    """Cuts names into names that are known.

    Args:
        graph: escaped names of the graph's operators.
        others: escaped names of dumped operators that are in no graph: what was inserted.
    """

    def __init__(self, graph: Collection[str], others: Collection[str] = ()) -> None:
        self._graph = frozenset(name for name in graph if name)
        self._others = frozenset(name for name in others if name) - self._graph
        lengths = {len(name) for name in self._graph | self._others}
        self._lengths = sorted(lengths, reverse=True)

    def readings(self, name: str) -> list[tuple[Part, ...]]:
        """All ways to read a name, the one with the longest parts first; empty if there is none.

        A name that the graph has is that operator and nothing else. A name that could be read in
        more than eight ways is read in eight.
        """
        if name in self._graph:
            return [(Part(name),)]
        # a dumped operator of that name is no reading of itself
        found = [each for each in self._tilings(name) if len(each) > 1 or name not in self._others]
        # What was inserted is the exception: readings of the graph's own operators come first.
        return sorted(
            found[:_MOST_READINGS], key=lambda parts: sum(part.inserted for part in parts)
        )

    def _tilings(self, name: str) -> list[tuple[Part, ...]]:
        """The first ways to read a name, longest part first, from its end to its beginning."""
        choices: dict[int, list[Part]] = {}
        waiting = [0] if name else []
        while waiting:
            start = waiting.pop()
            if start not in choices and start < len(name):
                choices[start] = list(self._choices(name, start))
                waiting += (start + len(part.name) for part in choices[start])
        endings: dict[int, list[tuple[Part, ...]]] = {0: [], len(name): [()]}
        for start in sorted(choices, reverse=True):
            ways = (
                (part, *rest) for part in choices[start] for rest in endings[start + len(part.name)]
            )
            endings[start] = list(islice(ways, _MOST_READINGS + 1))
        return endings[0] if name else []

    def _choices(self, name: str, start: int) -> Iterator[Part]:
        for length in self._lengths:
            piece = name[start : start + length]
            if len(piece) < length:
                continue
            if piece in self._graph:
                yield Part(piece)
            elif piece in self._others:
                yield Part(piece, inserted=True)
        found = _INSERTED.match(name, start)
        if found is not None and found.group() not in self._others:
            yield Part(found.group(), inserted=True)
