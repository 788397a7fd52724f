"""Which rows of a tensor belong to tokens, and which are padding that no result depends on.

ATB operators say it themselves: slot numbers below 0, sequence and context lengths. PyTorch models
are given an attention mask. Where neither was saved, nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errcheck.reading import Flags, Reading, flags
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.one_pass import Pass

Where = Literal["tokens", "padding", "unknown"]
_SLOTS = ("ReshapeAndCacheOperation", "ReshapeAndCacheWithStrideOperation")
_POSITIONS = {
    "ReshapeAndCacheOperation": ("key", "value", "keyCache", "valueCache", "slots"),
    "ReshapeAndCacheWithStrideOperation": ("key", "value", "keyCache", "valueCache", "slots"),
    "PagedAttentionOperation": ("query", "key", "value", "blockTable", "contextLen"),
    "SelfAttentionOperation": ("query", "key", "value"),
}
_MOST = 1 << 22  # elements of a mask or of lengths; what is larger is something else
_CONSTANTS = ("weight", "bias", "gamma", "beta", "scale")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one forward pass.

    Attributes:
        valid: True for tokens, False for padding; ``[tokens]``, or ``[batch, sequence]`` with what
            the sequence holds so far.
        source: what says so.
    """

    valid: Flags
    source: str

    @property
    def padded(self) -> bool:
        """True if there is padding."""
        return not bool(self.valid.all())

    def rows(self, shape: Sequence[int]) -> Flags | None:
        """``valid`` as it lies in a tensor of that shape; None if its rows are not these tokens."""
        valid = self.valid
        if valid.ndim == 1:
            if shape[:1] == valid.shape:
                return _along(valid, shape)
            if len(shape) > 2 and math.prod(shape[:2]) == valid.size:
                return _along(valid.reshape(shape[:2]), shape)
            return None
        batch, length = valid.shape
        if len(shape) > 2 and shape[0] == batch and shape[1] == 1 != length:
            return _along(valid[:, -1:], shape)  # a decode step works on the last position
        if len(shape) in (3, 4) and tuple(shape[-2:]) == (length, length) and shape[0] == batch:
            # weights of attention: a key that is padding is hidden later
            pairs = valid[:, :, None] & valid[:, None, :]
            return np.broadcast_to(pairs if len(shape) == 3 else pairs[:, None], tuple(shape))
        if tuple(shape[:2]) == (batch, length):
            return _along(valid, shape)
        if len(shape) > 1 and shape[0] == batch * length:
            return _along(valid.reshape(-1), shape)
        if len(shape) == 4 and (shape[0], shape[2]) == (batch, length):
            return np.broadcast_to(valid[:, None, :, None], shape)
        if len(shape) > 2 and tuple(shape[:2]) == (length, batch):
            return _along(valid.T, shape)
        return None


def _along(valid: Flags, shape: Sequence[int]) -> Flags:
    expanded = valid.reshape(*valid.shape, *[1] * (len(shape) - valid.ndim))
    return np.broadcast_to(expanded, tuple(shape))


def locate(operation: Operation, tensor: Tensor, reading: Reading, tokens: Tokens | None) -> Where:
    """Whether the bad elements of a tensor concern tokens, or padding alone."""
    if reading.state != "values":
        return "unknown"
    try:
        unread = unread_places(operation, tensor)
        if unread is not None:
            return "padding" if not (flags(tensor) & ~unread).any() else "tokens"
        name = (tensor.ir_name or "").lower()
        if tokens is None:
            return "unknown"
        if not tokens.padded or any(word in name for word in _CONSTANTS):
            return "tokens"
        rows = tokens.rows(tensor.shape)
        if rows is None:
            return "unknown"
        return "tokens" if (flags(tensor) & rows).any() else "padding"
    except (AitError, ValueError):
        return "unknown"


def unread_places(operation: Operation, tensor: Tensor) -> Flags | None:
    """Entries of a paged key-value cache that no sequence has; None for anything else.

    ``key`` and ``value`` are ``[blocks, block size, ...]``; sequence ``i`` has the first
    ``contextLen[i]`` entries of the blocks in row ``i`` of ``blockTable``.
    """
    if operation.type != "PagedAttentionOperation" or tensor.role != "in":
        return None
    found = _by_name(operation)
    caches = [found[name].index for name in ("key", "value") if name in found]
    if tensor.index not in caches or len(tensor.shape) < 2:
        return None
    table, lengths = _small(found.get("blockTable")), _small(found.get("contextLen"))
    if table is None or lengths is None or table.ndim != 2:
        return None
    blocks, size = tensor.shape[:2]
    used = np.zeros((blocks, size), np.bool_)
    for row, length in zip(table, lengths.reshape(-1), strict=False):
        for number, block in enumerate(row[: -(-int(length) // size)]):
            if 0 <= block < blocks:
                used[block, : int(length) - number * size] = True
    return np.broadcast_to(
        (~used).reshape(blocks, size, *[1] * (len(tensor.shape) - 2)), tensor.shape
    )


def tokens_of(run: Pass) -> Tokens | None:
    """The tokens of a pass; None if nothing that was saved tells them."""
    if run.traits.library:
        return _atb_tokens(run.operations)
    for operation in run.operations:
        for tensor in operation.inputs:
            if "mask" in (tensor.ir_name or "").lower() and (found := _of_mask(tensor)) is not None:
                return Tokens(found, f"{tensor.ir_name} of {operation.name}")
    return None


def _atb_tokens(operations: Iterable[Operation]) -> Tokens | None:
    """What slots and lengths say; where several do, a token has to be one for all of them."""
    valid: Flags | None = None
    sources: list[str] = []
    for operation in operations:
        for found, source in _atb_claims(operation):
            if valid is None:
                valid = found
            elif valid.shape != found.shape:
                continue
            else:
                valid = valid & found
            if source not in sources:
                sources.append(source)
    return None if valid is None else Tokens(valid, " and ".join(sources))


def _atb_claims(operation: Operation) -> Iterator[tuple[Flags, str]]:
    if operation.is_graph:
        return
    found = _by_name(operation)
    if operation.type in _SLOTS:
        slots = _small(found.get("slots"))
        if slots is not None and slots.ndim == 1:
            yield slots >= 0, "slots"
    query = found.get("query")
    if query is None or not query.shape:
        return
    count = query.shape[0]
    if operation.type == "PagedAttentionOperation":
        lengths = _small(found.get("contextLen"))
        if lengths is not None and lengths.size == count:
            yield lengths.reshape(-1) > 0, "contextLen"
    elif operation.type == "SelfAttentionOperation":
        lengths = _small(found.get("seqLen"))
        # packed: the sequences lie one behind the other, what is left over is padding
        if lengths is not None and 0 < lengths.sum() <= count:
            yield np.arange(count) < lengths.sum(), "seqLen"


def _by_name(operation: Operation) -> dict[str, Tensor]:
    """Inputs by the operator's own names; before ATB 9.1 files do not carry them."""
    inputs = operation.inputs
    named = {each.ir_name: each for each in inputs if each.ir_name}
    if named:
        return named
    found = dict(zip(_POSITIONS.get(operation.type, ()), inputs, strict=False))
    if operation.type == "SelfAttentionOperation":  # the mask before it is optional
        for each in inputs:
            if each.dtype is DType.INT32 and len(each.shape) == 1:
                found.setdefault("seqLen", each)
    return found


def _of_mask(tensor: Tensor) -> Flags | None:
    """Positions that a mask lets through, ``[batch, sequence]``.

    A mask per position holds 0 or False for padding. One per pair of positions adds the lowest
    value to a pair that is hidden (or holds False): the last query sees all tokens of its sequence.
    """
    mask = _small(tensor)
    if mask is None or mask.size == 0:
        return None
    if mask.ndim == 2 and mask.dtype.kind in "iub":
        return mask != 0 if np.isin(mask, (0, 1)).all() else None
    if mask.ndim != 4 or mask.shape[1] != 1:
        return None
    last = mask[:, 0, -1, :]
    if mask.dtype.kind == "b":
        seen = last
    elif mask.dtype.kind in "fV" and not bool((last > 0).any()):
        seen = last > -1e4
    else:
        return None
    return seen if bool(seen.any(axis=-1).all()) else None


def _small(tensor: Tensor | None) -> Array | None:
    if tensor is None or not tensor.has_data or math.prod(tensor.shape) > _MOST:
        return None
    array = tensor.numpy()
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
