"""Rows of requests that read other tokens on the other side are left out of a comparison.

Where a batch goes on with one request parted, the values of the other requests are still those of
the same tokens. Which rows these are is known where a tensor begins with the batch, as hidden
states, ids and logits do; of other layouts, such as pages of a cache, it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ait_llm.errors import AitError
from ait_llm.match.model import Match, Source, Unmatched
from ait_llm.match.views import Reshape, Rows, View, shape_after
from ait_llm.program.one_pass import LeftOut, Pass

_EXPERT = "expert"  # its rows are tokens in an order of their own


def without_requests(
    items: Iterable[Match | Unmatched], golden: Pass, mine: Pass
) -> Iterator[Match | Unmatched]:
    """The same, with views that keep only the rows of the requests that are compared."""
    caches = golden.traits.dotted and mine.traits.dotted  # modules keep no pages of blocks
    for item in items:
        if isinstance(item, Match) and mine.left_out is not None:
            yield _narrowed(item, mine.left_out, caches=caches)
        else:
            yield item


def _narrowed(match: Match, left_out: LeftOut, *, caches: bool) -> Match:
    try:
        shapes = [shape_after(each.tensor.shape, each.views) for each in (match.golden, match.mine)]
        if shapes[0] != shapes[1] or not (
            match.golden.tensor.has_data and match.mine.tensor.has_data
        ):
            return match
    except (AitError, ValueError):
        return match
    if _EXPERT in match.mine.operation.name.lower():
        return match
    views = kept_rows(shapes[0], left_out, caches=caches)
    if not views:
        return match
    return replace(
        match,
        golden=_with(match.golden, views),
        mine=_with(match.mine, views),
        without=tuple(sorted(left_out.requests)),
    )


def _with(source: Source, views: tuple[View, ...]) -> Source:
    return replace(source, views=(*source.views, *views))


def kept_rows(shape: Sequence[int], left_out: LeftOut, *, caches: bool = False) -> tuple[View, ...]:
    """Views that keep the other requests of a tensor; none where its rows are not known.

    Args:
        shape: of the tensor.
        left_out: the requests to leave out.
        caches: caches begin with the batch.
    """
    count, length = left_out.count, left_out.length
    kept = tuple(each for each in range(count) if each not in left_out.requests)
    dims = tuple(shape)
    if dims[:1] == (count,) and _begins_with_batch(dims, left_out, caches):
        return (Rows(0, kept),)
    if left_out.padded and length > 1 and len(dims) == 2 and dims[0] == count * length:
        return (Reshape((count, length, *dims[1:])), Rows(0, kept))
    return ()


def _begins_with_batch(dims: tuple[int, ...], left_out: LeftOut, caches: bool) -> bool:
    """True for ids, hidden states, heads of new tokens, and logits, by their dims."""
    if not left_out.padded:
        return len(dims) < 3
    length = left_out.length
    if len(dims) == 4:  # [batch, heads, tokens, size] or [batch, tokens, heads, size]
        return caches or length in (dims[1], dims[2])
    if len(dims) == 3:
        return dims[1] in (1, length)
    return len(dims) == 1 or length in (1, dims[1])
