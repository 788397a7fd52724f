"""The places of the tokens that a pass reads, in their requests."""

from __future__ import annotations

import re
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers
from ait_llm.program.one_pass import Pass
from ait_llm.program.token_ids import POSITIONS, ROTARY, called, ids_of, joined

_PLACES = (*POSITIONS, "input_cache_position")
_BEGINS = "input_cu_seq_lens_q", "input_cu_seqlens"
_ATTENTION = ("aten._scaled_dot_product", "aten.scaled_dot_product", "scaled_dot_product_attention")
_ASKS_WHICH_KEYS = frozenset({"__le__", "le", "aten.le.Tensor"})
_CACHED_KEYS = re.compile(r"past_key_values(_[0-9]+)?_key(s)?$")


def places_of(run: Pass, count: int) -> Array | None:
    """Places in their requests of so many tokens of one row; None where the capture has none.

    Operators alone have no name for them: rotary modules look at them, and else there are as many
    keys before those of the pass. So there are in a cache that grows, and in a mask that is made of
    the places of keys and of tokens.
    """
    for name in _PLACES:
        parts = [found for tensor in called(run, name) if (found := ids_of(tensor)) is not None]
        if parts:
            places = joined(parts).reshape(-1)
            if len(places) == count:
                return places
    for operation in run.operations:
        if ROTARY.search(operation.name):
            for tensor in operation.inputs:
                told = ids_of(tensor)
                if told is not None and told.shape in ((count,), (1, count)):
                    return told.reshape(-1)
        elif operation.type.startswith(_ATTENTION) and len(operation.inputs) > 1:
            query, key = (_shape_of(tensor) for tensor in operation.inputs[:2])
            if len(query) == len(key) == 4 and query[2] == count <= key[2]:
                return np.arange(key[2] - count, key[2])
            return None
    found = _places_by_cache(run, count)
    return _places_by_mask(run, count) if found is None else found


def _places_by_mask(run: Pass, count: int) -> Array | None:
    """The same where places of all keys are held to those of tokens, as a causal mask does.

    Keys are ``[…, keys]``, tokens ``[…, tokens, 1]``.
    """
    for operation in run.operations:
        if operation.type not in _ASKS_WHICH_KEYS or len(operation.inputs) != 2:
            continue
        keys, tokens = (_shape_of(tensor) for tensor in operation.inputs)
        is_pair = len(keys) > 1 and tokens[-2:] == (count, 1)
        if not is_pair or prod(keys) != keys[-1] or prod(tokens) != count:
            continue
        known = [integers(tensor) for tensor in operation.inputs]
        if known[0] is None or known[1] is None:
            continue
        every, places = (each.reshape(-1) for each in known if each is not None)
        if np.array_equal(every, np.arange(len(every))) and places[-1] == every[-1]:
            return places
    return None


def _places_by_cache(run: Pass, count: int) -> Array | None:
    """The same where the model is given keys and returns them with those of its tokens."""
    tensors = run.operations[0].tensors if run.operations else ()
    lengths = {
        side: [shape[2] for each in tensors if (shape := _keys_of(each, side))]
        for side in ("in", "out")
    }
    before, behind = max(lengths["in"], default=0), max(lengths["out"], default=0)
    return np.arange(before, behind) if before + count == behind else None


def _keys_of(tensor: Tensor, side: str) -> tuple[int, ...]:
    """Dims of keys of a layer, ``[requests, heads, tokens, dim]``; empty for anything else."""
    if tensor.role != side or not _CACHED_KEYS.search(tensor.stem):
        return ()
    shape = _shape_of(tensor)
    return shape if len(shape) == 4 else ()


def first_place(run: Pass, count: int) -> int | None:
    """Place of the first of so many tokens of one request; None where that is not known."""
    places = places_of(run, count)
    return int(places[0]) if places is not None and (np.diff(places) == 1).all() else None


def lengths_of(run: Pass, count: int) -> list[int] | None:
    """How many tokens of a row each request has, where the model is told where they begin."""
    for name in _BEGINS:
        for tensor in called(run, name):
            begins = ids_of(tensor)
            if begins is not None and begins.ndim == 1 and begins[0] == 0 and begins[-1] == count:
                lengths = [int(each) for each in np.diff(begins) if each]
                return lengths if min(lengths, default=0) > 0 else None
    return None


def _shape_of(tensor: Tensor) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except AitError:
        return ()
