"""Tensors that hold addresses, which another batch size changes: slots, block tables, row indices.

Where a smaller batch is repeated to match a larger one, the repeated rows lie elsewhere: the
address of row i in repetition k is that of row i plus k times the size of the smaller target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.match.model import Match, Source, Unmatched
from ait_llm.match.operators import Placed
from ait_llm.match.views import Repeat, Shift

# Operation type: input with the addresses, input they point into, dims that one address covers.
_ADDRESSED = {
    "ReshapeAndCacheOperation": (4, 2, 2),
    "PagedAttentionOperation": (3, 1, 1),
    "GatherOperation": (1, 0, 1),
}
# Operation type: inputs and outputs that are caches.
_CACHES = {
    "ReshapeAndCacheOperation": ((2, 3), (0, 1)),
    "PagedAttentionOperation": ((1, 2), ()),
}
_MAX_ADDRESSES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Content:
    """What tells an address tensor apart wherever it appears within a top-level operation."""

    top: int
    golden: bytes
    mine: bytes


class Addresses:
    """Corrects matches of addresses and caches between runs of different batch sizes.

    Args:
        pairs: operations that belong together.
        ratio: of the batches, see ``shapes.batch_ratio``; with 1 nothing is corrected.
    """

    def __init__(self, pairs: Sequence[tuple[Placed, Placed]], ratio: int) -> None:
        self._ratio = ratio
        self._amounts: dict[_Content, int | None] = {}
        self._caches: set[tuple[int, tuple[int, ...]]] = set()
        if abs(ratio) > 1:
            for golden, mine in pairs:
                self._note(golden.operation, mine.operation)

    def corrected(self, found: Match | Unmatched) -> Iterator[Match | Unmatched]:
        """The match with addresses moved, or without those that cannot be compared."""
        if abs(self._ratio) <= 1 or isinstance(found, Unmatched):
            yield found
            return
        top = _top(found.mine.record.op_id)
        shape = found.mine.record.shape
        if (top, shape) in self._caches and shape == found.golden.record.shape:
            yield from _apart(found, "a cache of the same size holds another batch")
            return
        content = self._content(found.golden.tensor, found.mine.tensor, top)
        if content is None or content not in self._amounts:
            yield found
            return
        amount = self._amounts[content]
        if amount is None:
            yield from _apart(found, "its addresses depend on the batch")
            return
        yield replace(
            found,
            golden=_moved(found.golden, amount),
            mine=_moved(found.mine, amount),
            reason=f"{found.reason}, its addresses moved",
        )

    def _note(self, golden: Operation, mine: Operation) -> None:
        top = mine.op_id.parts[0]
        if mine.type in _CACHES:
            for tensors, places in zip(
                (mine.inputs, mine.outputs), _CACHES[mine.type], strict=True
            ):
                self._caches.update((top, t.shape) for t in tensors if t.index in places)
        if mine.type not in _ADDRESSED:
            return
        address, target, dims = _ADDRESSED[mine.type]
        sides = [{tensor.index: tensor for tensor in each.inputs} for each in (golden, mine)]
        if any(address not in side or target not in side for side in sides):
            return
        shapes = [side[target].shape for side in sides]
        small, large = shapes if self._ratio > 0 else shapes[::-1]
        content = self._content(sides[0][address], sides[1][address], top)
        if content is None or not small or len(small) < dims:
            return
        size = 1
        for dim in small[:dims]:
            size *= dim
        if small[0] * abs(self._ratio) == large[0]:
            self._amounts[content] = size
        elif mine.type in _CACHES:
            self._amounts[content] = None

    def _content(self, golden: Tensor, mine: Tensor, top: int) -> _Content | None:
        try:
            for tensor in (golden, mine):
                elements = 1
                for dim in tensor.shape:
                    elements *= dim
                is_index = tensor.dtype.label.startswith(("int", "uint"))
                if not is_index or elements > _MAX_ADDRESSES or not tensor.has_data:
                    return None
            return _Content(top, golden.numpy().tobytes(), mine.numpy().tobytes())
        except AitError:
            return None  # comparing it says what is wrong


def _moved(source: Source, amount: int) -> Source:
    repeats = [view for view in source.views if isinstance(view, Repeat)]
    if not repeats:
        return source
    shift = Shift(repeats[0].axis, repeats[0].times, amount)
    return replace(source, views=(*source.views, shift))


def _apart(found: Match, reason: str) -> Iterator[Unmatched]:
    yield Unmatched("golden", found.golden.record, reason)
    yield Unmatched("mine", found.mine.record, reason)


def _top(op_id: str) -> int:
    return int(op_id.partition("_")[0]) if op_id else -1
