"""The token ids that a forward pass reads, found without building its program.

A generating program reads its prompt first and then, pass by pass, the tokens that it chose. The
ids of all passes tell what was chosen, whatever chose it: the largest logit, a sample, another run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers
from ait_llm.program.one_pass import Pass

# The decoder's tokens are those that are chosen, where a model has an encoder as well.
_DECODER = "input_decoder_input_ids"
_NAMES = (_DECODER, "input_input_ids", "input_idx")
_ENCODER = re.compile(r"\.encoder(\.|$)")
_MASK = "input_attention_mask"
POSITIONS = ("input_positions", "input_position_ids")
"""What engines that pack requests call the place of each token in its own request."""
ROTARY = re.compile(r"[Rr]otary|Rope|RoPE|(^|[._])rope")
_GATHERS = re.compile(r"Gather(Operation|V2|V2D)?$")
"""Operators of the acceleration library and of the graph engine that look rows up."""
_FUNCTION = "embedding"
"""The call of ``torch.nn.functional``, which is given indices and table."""
_INDICES = "input_1"
"""What an operator that looks rows up is given besides its table, which is a parameter."""
_LOOKED_AT = 40
"""Operators at the start of a pass among which one is given the mask."""
_DEEP = 3
"""Dots in the name of a module that is no model and no embedding of one."""


@dataclass(frozen=True, slots=True)
class TokenIds:
    """What one pass reads.

    Attributes:
        ids: ``[requests, tokens]``, or ``[tokens]`` of requests that are packed.
        mask: True where a token is no padding, as ``ids``; None where nothing is padded.
        begins: the encoder ran, so that the tokens are those that a generation begins with.
        positions: of packed tokens in their requests, as ``ids``; None where they are not known.
        unsure: a batch of which no mask was found, though it may have one: the capture has
            operators alone.
    """

    ids: Array
    mask: Array | None = None
    begins: bool = False
    positions: Array | None = None
    unsure: bool = False

    @property
    def newest(self) -> Array:
        """The newest token of each request; all of them where requests are packed."""
        return self.ids if self.ids.ndim == 1 else self.ids[:, -1]

    def prompts(self) -> list[tuple[int, ...]]:
        """The tokens of each request without padding.

        Packed requests are told apart by their positions; without these they are one entry.
        """
        if self.ids.ndim == 1:
            if self.positions is None:
                return [tuple(map(int, self.ids))]
            starts = [int(place) for place in np.flatnonzero(self.positions == 0) if place]
            return [tuple(map(int, part)) for part in np.split(self.ids, starts)]
        masks = self.mask if self.mask is not None else np.ones(self.ids.shape, dtype=bool)
        return [tuple(map(int, row[kept])) for row, kept in zip(self.ids, masks, strict=True)]

    def goes_on_from(self, before: TokenIds) -> bool:
        """True if a generation that read ``before`` may have gone on with this.

        It reads one further token of each request, or all of them again with one more.
        """
        if self.begins or self.ids.ndim != before.ids.ndim or not self.ids.size:
            return False
        if self.ids.ndim == 1:
            return len(self.ids) <= len(before.ids)
        if len(self.ids) != len(before.ids):
            return False
        if self.ids.shape[1] == 1 or np.array_equal(self.ids[:, :-1], before.ids):
            return True
        # a beam search goes on from some of its rows, in an order of its own
        known = {row.tobytes() for row in before.ids}
        return all(row.tobytes() in known for row in np.ascontiguousarray(self.ids[:, :-1]))


def token_ids(run: Pass) -> TokenIds | None:
    """The tokens that a pass reads; None where the capture does not have them.

    Known are what models of transformers and litgpt call them, and what the first embedding looks
    up; parts of a prompt that is read in several calls are joined.
    """
    for name in _NAMES:
        parts = [found for tensor in called(run, name) if (found := ids_of(tensor)) is not None]
        if parts:
            return _with_mask(run, joined(parts), begins=name == _DECODER and _encodes(run))
    looked_up = _lookup(run)
    if looked_up is None:
        return None
    ids = ids_of(looked_up[1])
    return None if ids is None else _with_mask(run, ids, begins=False, named=False)


def vocabulary(run: Pass) -> int | None:
    """Rows of the table that token ids are looked up in; None where it was not captured."""
    looked_up = _lookup(run)
    if looked_up is None or looked_up[0] is None:
        return None
    try:
        shape = looked_up[0].shape
    except AitError:
        return None
    return shape[0] if len(shape) == 2 else None


def is_padding(rest: Sequence[int]) -> bool:
    """True for what a program that computes fixed sizes reads behind its prompt: one token."""
    return len(rest) > 1 and len(set(rest)) == 1


def stated_vocabulary(run: Pass) -> int | None:
    """Rows of the first table that a module says it has, where its weights were not captured."""
    stated = (
        operation.definition.get("num_embeddings")
        for operation in run.operations
        if "Embedding" in operation.type
    )
    return next((rows for rows in stated if isinstance(rows, int)), None)


def looked_up(run: Pass) -> tuple[Operation, Tensor | None] | None:
    """The operation that looks token ids up, and its table where it was captured."""
    for operation in run.operations:
        found = _looked_up(operation)
        if found is not None:
            return operation, found[0]
    return None


def _lookup(run: Pass) -> tuple[Tensor | None, Tensor] | None:
    """Table and indices of the first operation that gathers rows of an embedding."""
    for operation in run.operations:
        looked_up = _looked_up(operation)
        if looked_up is not None:
            return looked_up
    return None


def called(run: Pass, name: str) -> Iterator[Tensor]:
    """What the outermost operation that is given something of that name gets, call by call."""
    owner: str | None = None
    for operation in run.operations:
        if operation.name.count(".") >= _DEEP or operation.name != (owner or operation.name):
            continue
        for tensor in operation.tensors:
            if tensor.role == "in" and tensor.stem == name:
                owner = operation.name
                yield tensor
                break


def joined(parts: Sequence[Array]) -> Array:
    """Chunks of one prompt, one behind the other, where they are that."""
    if len({part.shape[:-1] for part in parts}) > 1:
        return parts[0]
    return np.concatenate(parts, axis=-1)


def _looked_up(operation: Operation) -> tuple[Tensor | None, Tensor] | None:
    """Table, where it is given, and indices of an operation that gathers rows of an embedding."""
    inputs = operation.inputs
    if operation.type == _FUNCTION:
        return (inputs[1], inputs[0]) if len(inputs) > 1 and _is_table(inputs[1]) else None
    if operation.type.startswith(("aten.embedding", "ait_ggml.embedding")):
        if len(inputs) > 1:
            return inputs[0], inputs[1]
        return (None, inputs[0]) if inputs and inputs[0].stem == _INDICES else None
    if _GATHERS.match(operation.type):
        return (inputs[0], inputs[1]) if len(inputs) > 1 and _is_table(inputs[0]) else None
    if "Embedding" in operation.type and "Rotary" not in operation.type:
        if len(inputs) == 2 and _is_table(inputs[1]):  # a capture of API calls has parameters too
            return inputs[1], inputs[0]
        return (None, inputs[0]) if len(inputs) == 1 else None
    return None


def _is_table(tensor: Tensor) -> bool:
    try:
        return tensor.dtype.is_floating and len(tensor.shape) == 2
    except AitError:
        return False


def ids_of(tensor: Tensor) -> Array | None:
    """The integers of a tensor, ``[requests, tokens]`` or ``[tokens]``; None for anything else."""
    array = integers(tensor)
    return array if array is not None and array.ndim in (1, 2) and array.size else None


def _with_mask(run: Pass, ids: Array, *, begins: bool, named: bool = True) -> TokenIds:
    if ids.ndim == 1:
        return TokenIds(ids, None, begins, _positions(run, ids))
    mask = next((ids_of(tensor) for tensor in called(run, _MASK)), None)
    if mask is None and not named:
        mask = next(_unnamed_masks(run, ids), None)
        if mask is None:
            return TokenIds(ids, None, begins, unsure=len(ids) > 1)
    if mask is None or ids.ndim != 2 or mask.ndim != 2 or len(mask) != len(ids):
        return TokenIds(ids, None, begins)
    if mask.shape[1] < ids.shape[1] or mask.all():
        return TokenIds(ids, None, begins)
    return TokenIds(ids, mask[:, mask.shape[1] - ids.shape[1] :] != 0, begins)


def _unnamed_masks(run: Pass, ids: Array) -> Iterator[Array]:
    """What operators alone are given as a mask: of every row some tokens, the others all alike."""
    for operation in run.operations[:_LOOKED_AT]:
        for tensor in operation.inputs:
            found = ids_of(tensor)
            if found is None or found.ndim != 2 or found.dtype == np.bool_:
                continue
            if len(found) != len(ids) or found.shape[1] < ids.shape[1]:
                continue
            newest = found[:, found.shape[1] - ids.shape[1] :]
            is_mask = found.min() >= 0 and found.max() == 1 and newest.any(axis=1).all()
            if is_mask and len(np.unique(ids[newest == 0])) < 2:
                yield found


def _positions(run: Pass, ids: Array) -> Array | None:
    """The place of each packed token in its request, as the model or a rotary part reads it."""
    named = (tensor for name in POSITIONS for tensor in called(run, name))
    for tensor in (*named, *_turned_by(run)):
        found = ids_of(tensor)
        if found is not None and found.shape == ids.shape and not np.array_equal(found, ids):
            return found
    return None


def _turned_by(run: Pass) -> Iterator[Tensor]:
    """What may be positions: rows that rotary operations look up, or are given to look up."""
    for operation in run.operations:
        if ROTARY.search(operation.type):
            yield from (tensor for tensor in operation.inputs if _is_vector(tensor))
            return
        if _GATHERS.match(operation.type) and _looked_up(operation) is not None:
            yield operation.inputs[1]


def _is_vector(tensor: Tensor) -> bool:
    try:
        return not tensor.dtype.is_floating and len(tensor.shape) == 1
    except AitError:
        return False


def _encodes(run: Pass) -> bool:
    return any(_ENCODER.search(operation.name) for operation in run.operations)
