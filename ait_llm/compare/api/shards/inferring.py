"""The layouts of both sides of one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.api.shards.candidates import Shape, candidates, parts_of_unknown
from ait_llm.compare.api.shards.choose import Choice, choose, distance
from ait_llm.compare.api.shards.layout import Layout
from ait_llm.compare.api.shards.pieces import Piece, pieces_of, total
from ait_llm.formats.elements import Array

_GOOD = 1e-2  # closer than anything but the right layout


@dataclass(frozen=True, slots=True)
class Layouts:
    """How the ranks of both sides share one tensor.

    Attributes:
        few: on the side with fewer ranks; ``replicate`` if it is one rank.
        many: on the other.
    """

    few: Layout
    many: Layout

    def __str__(self) -> str:
        return str(self.many) if self.few.kind == "replicate" else f"{self.few} | {self.many}"


@dataclass(frozen=True, slots=True)
class Inferred:
    """Layouts, and the tensors that they make.

    Attributes:
        layouts: of both sides.
        whole: the tensor as the side with fewer ranks has it.
        choice: the parts of the other side.
    """

    layouts: Layouts
    whole: Array
    choice: Choice


def infer(
    few: Sequence[Array],
    many: Sequence[Array],
    given: Layouts | None = None,
    remembered: Layouts | None = None,
    more: Sequence[Layout] = (),
    ids: Array | None = None,
) -> Inferred | None:
    """Find out how both sides share a tensor; None if nothing fits or the values do not confirm it.

    Args:
        few: the parts of the side with fewer ranks.
        many: those of the other.
        given: what the user says; the values need not confirm it.
        remembered: of the same tensor in an earlier call, for values that are wrong everywhere.
        more: layouts of ``many`` that only the call itself permits.
        ids: indices into the whole table, for these.
    """
    best: Inferred | None = None
    for layout, whole in _wholes(few, given):
        shapes = [part.shape for part in many]
        permitted = [given.many] if given else [*candidates(whole.shape, shapes), *more]
        if given is None and more:  # of two ranks one alone may fit another layout
            permitted = [
                each for each in permitted if _fit_all(each, whole, many, ids)
            ] or permitted
        choice = choose(permitted, whole, many, ids)
        if choice is None:
            continue
        if choice.is_closer_than(best.choice if best is not None else None):
            best = Inferred(Layouts(layout, choice.layout), whole, choice)
        if choice.distance < _GOOD:
            break
    if best is not None and (given is not None or _is_confirmed(best.choice, len(few))):
        return best
    return infer(few, many, remembered, None, (), ids) if remembered is not None else None


def _fit_all(layout: Layout, whole: Array, parts: Sequence[Array], ids: Array | None) -> bool:
    """True if every part is what a layout says."""
    if layout.kind == "sum":
        pieces: Sequence[Piece] | None = [Piece(0, (whole,), (total(parts),))]
    else:
        pieces = pieces_of(layout, whole, parts, ids)
    return pieces is not None and all(distance(piece) < _GOOD for piece in pieces)


def _is_confirmed(choice: Choice, few: int) -> bool:
    """True if the values decide; small integers agree by chance, so all of them must."""
    if few > 1 and all(piece.whole[0].dtype.kind in "bui" for piece in choice.pieces):
        return all(distance(piece) == 0 for piece in choice.pieces)
    return choice.is_confirmed


def layouts_of_shapes(few: Sequence[Shape], many: Sequence[Shape]) -> Iterator[Layouts]:
    """Layouts that shapes alone permit; sides of several ranks each must share alike."""
    if len(few) == 1:
        for layout in candidates(few[0], many):
            yield Layouts(Layout("replicate"), layout)
        return
    for ours in parts_of_unknown(few):
        whole = whole_shape(ours, few)
        if whole is None:
            continue
        for layout in candidates(whole, many):
            if layout.kind == ours.kind:
                yield Layouts(ours, layout)


def whole_shape(layout: Layout, parts: Sequence[Shape]) -> Shape | None:
    """Shape of what parts of a side make up."""
    if layout.kind != "shard":
        return parts[0]
    if layout.axis >= len(parts[0]):
        return None
    length = sum(part[layout.axis] for part in parts) // layout.groups
    return (*parts[0][: layout.axis], length, *parts[0][layout.axis + 1 :])


def _wholes(few: Sequence[Array], given: Layouts | None) -> Iterator[tuple[Layout, Array]]:
    """What the parts of the side with fewer ranks may make up."""
    if len(few) == 1:
        yield Layout("replicate"), few[0]
        return
    shapes = [part.shape for part in few]
    for layout in [given.few] if given is not None else parts_of_unknown(shapes):
        whole = _assembled(layout, few)
        if whole is not None:
            yield layout, whole


def _assembled(layout: Layout, parts: Sequence[Array]) -> Array | None:
    if layout.kind == "replicate":
        return parts[0]
    if layout.kind == "sum":
        return total(parts) if len({part.shape for part in parts}) == 1 else None
    shape = whole_shape(layout, [part.shape for part in parts])
    if shape is None or layout.kind != "shard":
        return None
    whole = np.empty(shape, parts[0].dtype)
    pieces = pieces_of(layout, whole, parts)
    if pieces is None:
        return None
    for piece in pieces:
        for place, values in zip(piece.whole, piece.part, strict=True):
            place[...] = values
    return whole
