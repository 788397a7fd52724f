"""Chains that ran one after another and make one pass, where no value tells.

What was filtered away or described only leaves gaps in the flow of values. Then an operation that
runs again begins another pass, as does one that looks up the same embedding or works on another
number of tokens. Where in the gap the pass begins is seen from the others: of a few ways to cut,
the one is taken that needs the fewest different passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ait_llm.program.executions import Execution, Shape
from ait_llm.program.handed import Chain, chains_of

_ENOUGH = 3  # constant shapes in common by chance are fewer
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chain, and what its tensors say beside their values.

    Attributes:
        executions: in order.
        chain: how they hang together.
        sizes: constant shapes of an execution, with its number of tokens.
        given: shapes of floating point tensors that it reads; what it has computed itself is not
            told from the rest.
        left: shapes of floating point tensors that its last execution writes.
    """

    executions: tuple[Execution, ...]
    chain: Chain
    sizes: frozenset[tuple[frozenset[Shape], int]]
    given: frozenset[Shape]
    left: frozenset[Shape]

    @property
    def is_whole(self) -> bool:
        """True if it looks up tokens and computes something with them."""
        return self.chain.computes and bool(self.chain.tables)

    @property
    def start(self) -> int:
        """Id of the operation that it begins with."""
        return self.executions[0].top

    @property
    def lookup(self) -> tuple[str, int] | None:
        """Type and rows of the table that it looks up first; None if it begins otherwise."""
        first = self.executions[0]
        return None if first.table is None else (first.type, first.table.shape[0])

    def fits(self, after: _Piece) -> bool:
        """True if it may read what another piece wrote last."""
        return not self.given.isdisjoint(after.left)

    def is_like(self, other: _Piece) -> bool:
        """True if both work with weights of the same shapes."""
        return any(_are_alike(one, two) for one, _ in self.sizes for two, _ in other.sizes)


@dataclass(slots=True)
class _Pass:
    """Pieces put together so far, and what must not come twice."""

    pieces: list[_Piece] = field(default_factory=list)
    tops: set[int] = field(default_factory=set)
    tables: set[bytes] = field(default_factory=set)
    sizes: set[tuple[frozenset[Shape], int]] = field(default_factory=set)
    is_whole: bool = False
    computes: bool = False

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.tops |= piece.chain.tops
        self.tables |= piece.chain.tables
        self.sizes |= piece.sizes
        self.is_whole |= piece.is_whole
        self.computes |= piece.chain.computes

    def excludes(self, piece: _Piece) -> bool:
        """True if the piece, which ran next, cannot be of this pass whatever runs again in it."""
        return (
            (self.is_whole and piece.is_whole)
            or (self.computes and self._looks_up_again(piece))
            or self._has_ended(piece)
            or any(
                rows != other and _are_alike(shapes, others)
                for shapes, rows in piece.sizes
                for others, other in self.sizes
            )
        )

    def _looks_up_again(self, piece: _Piece) -> bool:
        """True if it goes back to a table that this pass has looked up already."""
        if piece.chain.computes and not self.tables.isdisjoint(piece.chain.tables):
            return True
        again = piece.lookup is not None and piece.lookup == self.pieces[0].lookup
        return again and not piece.fits(self.pieces[-1])

    def _has_ended(self, piece: _Piece) -> bool:
        """True if a row of operations reads nothing of the width that another one ended with."""
        last = self.pieces[-1]
        if len(last.executions) < 2 or len(piece.executions) < 2:
            return False
        widths = {shape[-1] for shape in piece.given if shape}
        return bool(last.left) and widths.isdisjoint(shape[-1] for shape in last.left if shape)

    @property
    def tops_in_order(self) -> tuple[int, ...]:
        """Ids of the operations, once for each execution."""
        return tuple(each.top for piece in self.pieces for each in piece.executions)


def group(executions: Sequence[Execution], *, is_complete: bool) -> list[list[Execution]]:
    """Executions of each pass, both in the order in which they ran.

    Args:
        executions: of one process, in the order in which they ran.
        is_complete: nothing that ran was left out. Then each pass begins with a look-up if the
            first one does, and an operation may run in it as often as it likes.
    """
    pieces = [_piece(executions, chain) for chain in chains_of(executions)]
    if is_complete and pieces and pieces[0].lookup is not None:
        best = _cut(pieces, lambda now, piece: now.excludes(piece))
    else:
        best = min(_ways(pieces), key=_cost) if pieces else []
    if len(best) == 1:
        best = list(_halves(best[0]))
    return [[each for piece in one.pieces for each in piece.executions] for one in best]


def _piece(executions: Sequence[Execution], chain: Chain) -> _Piece:
    own = tuple(executions[place] for place in chain.places)
    return _Piece(
        own,
        chain,
        frozenset(
            (each.constants, each.rows)
            for each in own
            if each.rows is not None and len(each.constants) >= _ENOUGH
        ),
        frozenset(each.shape for one in own for each in one.reads if each.is_floating),
        frozenset(each.shape for each in own[-1].writes if each.is_floating),
    )


def _ways(pieces: Sequence[_Piece]) -> Iterator[list[_Pass]]:
    """Ways to cut; of those that cost the same the first counts."""
    longest = _cut_before(pieces, ())
    # what begins a pass once begins all passes that it is in
    yield _cut_before(pieces, {each.pieces[0].start for each in longest})
    yield longest
    # as does what follows the operation that the process ended with
    end = pieces[-1].executions[-1].top
    after = {two.start for one, two in pairwise(pieces) if one.executions[-1].top == end}
    yield _cut_before(pieces, after)


def _cut_before(pieces: Iterable[_Piece], starts: Collection[int]) -> list[_Pass]:
    """Passes in which nothing runs again; one also ends before an operation of ``starts``."""

    def begins(now: _Pass, piece: _Piece) -> bool:
        again = piece.start in starts or not now.tops.isdisjoint(piece.chain.tops)
        return again or now.excludes(piece)

    return _cut(pieces, begins)


def _cut(pieces: Iterable[_Piece], begins: Callable[[_Pass, _Piece], bool]) -> list[_Pass]:
    """Pieces one after another, and another pass wherever one begins."""
    found: list[_Pass] = []
    for piece in pieces:
        if not found or begins(found[-1], piece):
            found.append(_Pass())
        found[-1].add(piece)
    return found


def _cost(passes: Sequence[_Pass]) -> tuple[int, int]:
    """What it takes to write them down, and how many look cut in two.

    Each different pass is written in full once, and as one word for each time.
    """
    words = len(passes) + sum(map(len, {each.tops_in_order for each in passes}))
    joints = [(one.pieces[-1], two.pieces[0]) for one, two in pairwise(passes)]
    torn = sum(two.fits(one) and not two.is_like(one) for one, two in joints)
    torn += sum(one.lookup is not None and not one.chain.computes for one, _ in joints)
    return words, torn


def _halves(whole: _Pass) -> Iterator[_Pass]:
    """Two passes where everything ran once, if the row of types begins and ends twice alike."""
    row = [(piece, each) for piece in whole.pieces for each in piece.executions]
    kinds = [each.type for _, each in row]
    again = [place for place, kind in enumerate(kinds) if kind and kind == kinds[0]]
    half = again[1] if len(again) == 2 else 0
    apart = half > 2 and kinds[half - 1] == kinds[-1] and row[half - 1][0] is not row[half][0]
    ran_once = len(row) == len(whole.tops)
    for pieces in (row[:half], row[half:]) if apart and ran_once else (row,):
        one = _Pass()
        for piece in dict.fromkeys(id(piece) for piece, _ in pieces):
            one.add(next(each for each, _ in pieces if id(each) == piece))
        yield one


def _are_alike(one: frozenset[Shape], other: frozenset[Shape]) -> bool:
    """True if two executions work with weights of the same shapes."""
    return len(one & other) >= _ALIKE * max(len(one), len(other))
