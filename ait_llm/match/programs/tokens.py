"""Which row of one side is the same token as which row of the other.

Engines pack the tokens of all requests, ``[tokens, hidden]``; plain programs pad them, ``[batch,
seq, hidden]``, on the left or on the right; one run may hold a single request of the other's batch,
or only the newest token where the other computes all of them again. Token ids say which row is
which where both sides have them, else masks, positions and lengths do.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.match.programs.keys import Keys, find_keys
from ait_llm.program.program import Program
from ait_llm.program.roles import is_operator
from ait_llm.program.rows import (
    Rows,
    id_matrices,
    id_vectors,
    mask_with,
    masked_rows,
    request_lengths,
    rows_of,
)
from ait_llm.program.token_ids import is_padding


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that both sides of a pass hold.

    Attributes:
        left, right: how each side lays out its rows.
        pairs: flat row of the left and of the right side for each token that both have, in the
            order of the left side.
        evidence: how it was found.
        certain: False if only sizes say so.
        keys: the same of all tokens so far; None if no mask shows them.
        by_request: an engine says which row is which token of which request.
        is_beginning: one side reads the beginning of what the other reads, as the first part of a
            prompt does: their newest tokens are not the same.
        is_one_program: both sides run modules of the same names and classes, which have their axes
            in one order; only asked where one has other tokens.
    """

    left: Rows
    right: Rows
    pairs: tuple[tuple[int, int], ...]
    evidence: str
    certain: bool
    keys: Keys | None = None
    by_request: bool = False
    is_beginning: bool = False
    is_one_program: bool = False

    @property
    def tells_newest(self) -> bool:
        """True if it is known which token the newest of each side is, and that they may differ."""
        return self.by_request or self.is_beginning

    @property
    def is_plain(self) -> bool:
        """True if the rows of both sides are the same, one by one."""
        count = self.left.count
        return count == self.right.count == len(self.pairs) and all(
            left == right for left, right in self.pairs
        )

    @property
    def are_others(self) -> bool:
        """True if one side has tokens that the other one does not have in this pass."""
        return self.left.count != self.right.count

    @property
    def ends_alike(self) -> bool:
        """True if the last row of each request is the same token on both sides."""
        sides = (self.left, self.right)
        ends = ({(one + 1) * each.seq - 1 for one in range(each.batch or 1)} for each in sides)
        left, right = ends
        last = {pair for pair in self.pairs if pair[0] in left and pair[1] in right}
        return len(last) == len(left) == len(right)

    @property
    def is_same_layout(self) -> bool:
        """True if both sides hold the same rows in the same axes."""
        same = (self.left.batch, self.left.seq) == (self.right.batch, self.right.seq)
        return same and self.is_plain


_ALIKE = 0.9  # of the modules of the side that has fewer


def find_tokens(left: Program, right: Program) -> Tokens | None:
    """Align the tokens of both sides; None if the sizes do not fit at all."""
    found = _tokens_of(left, right)
    if found is None or not found.are_others:
        return found
    modules = [
        {(each.name, each.type) for each in side.operations if not is_operator(each)}
        for side in (left, right)
    ]
    alike = len(modules[0] & modules[1])
    return replace(found, is_one_program=alike >= _ALIKE * min(map(len, modules)) > 0)


def _tokens_of(left: Program, right: Program) -> Tokens | None:
    first, second = rows_of(left), rows_of(right)
    if first is None or second is None:
        return None
    if left.run.same_rows is not None and right.run.same_rows is not None:
        return _scheduled(left, first, right, second)
    if first.batch and not second.batch:
        found = _packed_and_padded(right, second, left, first)
        return None if found is None else _turned(found)
    if second.batch and not first.batch:
        return _packed_and_padded(left, first, right, second)
    if first.batch:
        found = _both_padded(left, first, right, second)
        if found is None:
            return None
        keys = find_keys(left, right, (first, second), found.pairs)
        return replace(found, keys=keys)
    return _both_packed(left, first, right, second)


def _scheduled(left: Program, first: Rows, right: Program, second: Rows) -> Tokens | None:
    """Rows that an engine says are the same tokens; None where the programs have fewer rows."""
    pairs = left.run.same_rows or ()
    if any(one >= first.count or other >= second.count for one, other in pairs):
        return None
    evidence = "by requests and positions"
    found = Tokens(first, second, pairs, evidence, certain=True, by_request=True)
    if first.batch and second.batch:
        return replace(found, keys=find_keys(left, right, (first, second), pairs))
    return found


def _turned(tokens: Tokens) -> Tokens:
    """The same with the sides exchanged."""
    pairs = tuple(sorted((left, right) for right, left in tokens.pairs))
    begins = tokens.is_beginning
    return Tokens(
        tokens.right, tokens.left, pairs, tokens.evidence, tokens.certain, is_beginning=begins
    )


def _both_padded(left: Program, first: Rows, right: Program, second: Rows) -> Tokens | None:
    """Rows of two padded sides."""
    same = (first.batch, first.seq) == (second.batch, second.seq)
    hidden = [masked_rows(left, first), masked_rows(right, second)]
    ids = [_first(id_matrices(left, first)), _first(id_matrices(right, second))]
    if same and not (hidden[0] or hidden[1]):
        return _plain(first, second, "nothing is padded")
    if same and hidden[0] == hidden[1]:
        rows = [row for row in range(first.count) if row not in hidden[0]]
        return _of_pairs(first, second, [(row, row) for row in rows], "by the attention mask")
    if ids[0] is None or ids[1] is None:
        return None
    if same and np.array_equal(ids[0], ids[1]):  # only the masks differ
        rows = [row for row in range(first.count) if row not in hidden[0] | hidden[1]]
        return _of_pairs(first, second, [(row, row) for row in rows], "by token ids")
    ours = _sequences(ids[0], first, hidden[0])
    theirs = _sequences(ids[1], second, hidden[1])
    return _by_sequences(first, second, ours, theirs, keys=(left.run.row_keys, right.run.row_keys))


def _both_packed(left: Program, first: Rows, right: Program, second: Rows) -> Tokens | None:
    """Rows of two packed sides."""
    if first.count == second.count:
        return _plain(first, second, "nothing is padded")
    ids = [_first(id_vectors(left, first)), _first(id_vectors(right, second))]
    if ids[0] is None or ids[1] is None:
        return None
    ours = _requests(left, first, ids[0])
    return _by_sequences(first, second, ours, _requests(right, second, ids[1]))


_Sequence = tuple[tuple[int, ...], Array]  # flat rows, and the token in each


def _sequences(table: Array, rows: Rows, padding: Set[int]) -> list[_Sequence]:
    """The real tokens of each row of a padded batch."""
    found = []
    for number in range(rows.batch):
        every = range(number * rows.seq, (number + 1) * rows.seq)
        kept = tuple(row for row in every if row not in padding)
        found.append((kept, table.reshape(-1)[list(kept)]))
    return found


def _by_sequences(
    first: Rows,
    second: Rows,
    left: Sequence[_Sequence],
    right: Sequence[_Sequence],
    *,
    keys: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Tokens | None:
    """Pair whole sequences, else one that holds the other at its end or at its beginning.

    Where it is known what each has read before, none answers one that has read something else when
    another one has read the same: single tokens may be alike by chance.

    In batches of one size, what is left over answers each other in its order: a request with
    another token is found out only where it is compared.
    """
    pairs: list[tuple[int, int]] = []
    free = list(range(len(right)))
    rest: list[int] = []
    certain = True
    for place, (places, ids) in enumerate(left):
        choice = next(
            (
                (number, found)
                for number in free
                if _may_be(keys, place, number)
                and (found := _overlap(ids, right[number][1])) is not None
            ),
            None,
        )
        if choice is None:
            rest.append(place)
            continue
        number, (start, other, length) = choice
        free.remove(number)
        certain = certain and length > 1
        theirs = right[number][0]
        pairs += [(places[start + k], theirs[other + k]) for k in range(length)]
    if not pairs:
        return None
    if len(left) == len(right):
        for place, number in zip(rest, free, strict=True):
            pairs += _aligned(left[place], right[number])
            certain = False
    begins = certain and len(left) == len(right) == 1 and _begins(left[0][1], right[0][1])
    return Tokens(first, second, tuple(sorted(pairs)), "by token ids", certain, is_beginning=begins)


def _may_be(keys: tuple[Sequence[int], Sequence[int]], place: int, number: int) -> bool:
    """False where another sequence has read what one of two has read before."""
    if place >= len(keys[0]) or number >= len(keys[1]):
        return True
    own, other = keys[0][place], keys[1][number]
    return own == other or not (own in keys[1] or other in keys[0])


def _begins(left: Array, right: Array) -> bool:
    """True if one sequence is the beginning of another, which does not go on with padding."""
    short, long = (left, right) if len(left) <= len(right) else (right, left)
    rest = long[len(short) :]
    if not len(rest) or is_padding(rest.tolist()):
        return False
    return np.array_equal(long[: len(short)], short)


def _aligned(left: _Sequence, right: _Sequence) -> list[tuple[int, int]]:
    """Rows of two sequences that are not the same, from that end at which more tokens agree."""
    length = min(len(left[0]), len(right[0]))
    if not length:
        return []
    at_start = np.count_nonzero(left[1][:length] == right[1][:length])
    at_end = np.count_nonzero(left[1][-length:] == right[1][-length:])
    if at_start >= at_end:
        return [*zip(left[0][:length], right[0][:length], strict=True)]
    return [*zip(left[0][-length:], right[0][-length:], strict=True)]


def _overlap(left: Array, right: Array) -> tuple[int, int, int] | None:
    """Start in both and length of the tokens that two sequences share."""
    short, long = (left, right) if len(left) <= len(right) else (right, left)
    if not len(short):
        return None
    for start in (0, len(long) - len(short)):
        if np.array_equal(long[start : start + len(short)], short):
            # a single token may be anywhere; the newest one is what a cached step computes
            start = len(long) - 1 if len(short) == 1 and long[-1] == short[0] else start
            return (0, start, len(short)) if short is left else (start, 0, len(short))
    return None


def _plain(first: Rows, second: Rows, evidence: str) -> Tokens:
    pairs = tuple((row, row) for row in range(first.count))
    return Tokens(first, second, pairs, evidence, certain=True)


def _of_pairs(first: Rows, second: Rows, pairs: Sequence[tuple[int, int]], evidence: str) -> Tokens:
    return Tokens(first, second, tuple(pairs), evidence, certain=True)


def _first(arrays: Sequence[Array]) -> Array | None:
    return arrays[0] if arrays else None


def _packed_and_padded(packed: Program, left: Rows, padded: Program, right: Rows) -> Tokens | None:
    """Rows of a packed side, given first, and of a padded one."""
    batch, seq, count = right.batch, right.seq, left.count
    ids, matrices = id_vectors(packed, left), id_matrices(padded, right, every=True)
    if count == batch * seq:
        return _full(left, right, ids, matrices)
    if count > batch * seq:
        return _part_of_packed(packed, left, right, ids, matrices)
    mask = mask_with(padded, right, count)
    if mask is not None:
        rows = [int(place) for place in np.flatnonzero(mask)]
        return _of_rows(left, right, rows, "by the attention mask", certain=True)
    lengths = request_lengths(packed, count, batch)
    if lengths is None:
        lengths = next(filter(None, (_split_by(vector, matrices) for vector in ids)), None)
    if lengths is None:
        return None
    for vector in ids:
        for matrix in matrices:
            found = _by_ids(vector, matrix, lengths)
            if found is None:
                continue
            if not _counts_up(vector, lengths):
                return _of_rows(left, right, found, "by token ids", certain=True)
            # positions of a padded batch may count the padding, too
            return _of_rows(left, right, found, "by their positions", certain=False)
    if len(lengths) != batch or max(lengths) > seq:
        return None
    places = [b * seq + s for b, length in enumerate(lengths) for s in range(length)]
    evidence = "by sequence lengths, padding taken to be right"
    return _of_rows(left, right, places, evidence, certain=False)


def _part_of_packed(
    packed: Program, left: Rows, right: Rows, ids: Sequence[Array], matrices: Sequence[Array]
) -> Tokens | None:
    """A padded side that holds some of the requests of a packed one, or their last tokens."""
    if not ids or not matrices:
        return None
    ours = _requests(packed, left, ids[0])
    return _by_sequences(left, right, ours, _sequences(matrices[0], right, frozenset()))


def _requests(program: Program, rows: Rows, ids: Array) -> list[_Sequence]:
    """The tokens of each request of a packed side; all as one where nothing tells them apart."""
    lengths = request_lengths(program, rows.count) or [rows.count]
    ends = [int(end) for end in np.cumsum(lengths)]
    return [
        (tuple(range(end - length, end)), ids[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _split_by(vector: Array, matrices: Sequence[Array]) -> list[int] | None:
    """Lengths of the sequences of a packed vector, each the start or end of a row of a matrix."""
    for matrix in matrices:
        lengths: list[int] = []
        start, free = 0, list(range(matrix.shape[0]))
        while start < len(vector) and free:
            fits = [
                (length, row)
                for row in free
                for length in range(min(matrix.shape[1], len(vector) - start), 0, -1)
                if np.array_equal(matrix[row, :length], vector[start : start + length])
                or np.array_equal(matrix[row, -length:], vector[start : start + length])
            ]
            if not fits:
                break
            length, row = max(fits)
            lengths.append(length)
            free.remove(row)
            start += length
        if start == len(vector) and max(lengths) > 1 and not _counts_up(vector, lengths):
            return lengths
    return None


def _full(left: Rows, right: Rows, ids: Sequence[Array], matrices: Sequence[Array]) -> Tokens:
    """Nothing is padded; sequences may still come in another order."""
    batch, seq = right.batch, right.seq
    plain = list(range(left.count))
    for vector in ids:
        for matrix in matrices:
            if len(np.unique(matrix)) > 1 and np.array_equal(vector, matrix.reshape(-1)):
                return _of_rows(left, right, plain, "by token ids", certain=True)
    for vector in ids:
        for matrix in matrices:
            found = _by_ids(vector, matrix, [seq] * batch)
            if found is not None:
                return _of_rows(left, right, found, "by token ids", certain=True)
    return _of_rows(left, right, plain, "nothing is padded", certain=True)


def _of_rows(
    left: Rows, right: Rows, rows: Sequence[int], evidence: str, *, certain: bool
) -> Tokens:
    """Tokens of a packed side whose rows are these places of a padded one."""
    last = tuple(
        row
        for row, place in enumerate(rows)
        if row + 1 == len(rows) or rows[row + 1] // right.seq != place // right.seq
    )
    # a side with as many rows may have tensors of both axes, too
    axes = (right.batch, right.seq) if left.count == right.count else (0, left.count)
    packed = Rows(*axes, left.count, last)
    ends = sorted((rows[row] // right.seq, rows[row]) for row in last)
    padded = Rows(right.batch, right.seq, right.count, tuple(place for _, place in ends))
    return Tokens(packed, padded, tuple(enumerate(rows)), evidence, certain)


def _by_ids(vector: Array, matrix: Array, lengths: Sequence[int]) -> list[int] | None:
    """Places at which the sequences of a packed vector stand in a padded matrix.

    Each sequence stands at the start or at the end of a row of its own.
    """
    seq = matrix.shape[1]
    rows: list[int] = []
    free = list(range(matrix.shape[0]))
    start = 0
    for length in lengths:
        part = vector[start : start + length]
        start += length
        found = next(
            (
                (row, first)
                for row in free
                for first in dict.fromkeys((0, seq - length))
                if first >= 0 and np.array_equal(matrix[row, first : first + length], part)
            ),
            None,
        )
        if found is None:
            return None
        free.remove(found[0])
        rows += range(found[0] * seq + found[1], found[0] * seq + found[1] + length)
    return rows


def _counts_up(vector: Array, lengths: Sequence[int]) -> bool:
    """True if each sequence goes up by one: positions, not token ids."""
    ends = np.cumsum(lengths)[:-1]
    return all(bool((np.diff(part) == 1).all()) for part in np.split(vector, ends))
