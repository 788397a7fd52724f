"""SelfAttention: flash attention over packed tokens, contiguous caches or cached prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ait_llm.core import DType
from ait_llm.opcheck.golden.attention_core import attend
from ait_llm.opcheck.golden.attention_half import attention_of
from ait_llm.opcheck.golden.attention_int8 import attend_int8
from ait_llm.opcheck.golden.base import (
    ATTENTION,
    Arithmetic,
    KernelArithmetic,
    Noting,
    Params,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.contiguous_cache import Caches
from ait_llm.opcheck.golden.masks import Mask
from ait_llm.opcheck.golden.paged_cache import read_pages
from ait_llm.opcheck.golden.self_attention_config import (
    NAME,
    CalcType,
    Config,
    Kept,
    KernelType,
    kept,
    kernel_type,
    read_config,
)
from ait_llm.opcheck.golden.self_attention_mask import Place, mask_of
from ait_llm.opcheck.golden.self_attention_shape import infer_shape, joined
from ait_llm.opcheck.golden.support import refused, tensor_at, torch_dtype


def _tokens(config: Config, tensor: Tensor, heads: int) -> Tensor:
    """Any layout as ``[rows, heads, D]``."""
    if tensor.dim() == 4 and config.head_major:
        tensor = tensor.transpose(1, 2)
    if tensor.dim() == 4:
        tensor = tensor.reshape(-1, *tensor.shape[2:])
    width = math.prod(tensor.shape[1:])
    return tensor.reshape(tensor.shape[0], heads, width // heads)


def _starts(lengths: Sequence[int], tensor: Tensor, config: Config) -> list[int]:
    """First row of each sequence: packed, or each at its padded place in a 4-D tensor."""
    if tensor.dim() == 4 and tensor.shape[0] == len(lengths):
        padded = tensor.shape[2] if config.head_major else tensor.shape[1]
        if sum(lengths) < len(lengths) * padded:
            return [index * padded for index in range(len(lengths))]
    starts, first = [], 0
    for length in lengths:
        starts.append(first)
        first += length
    return starts


def _places(config: Config, named: dict[str, Tensor], tokens: int) -> list[Place]:
    """Query rows and number of keys of every sequence that runs.

    Rows of switched-off sequences may be absent from the query; the number of tokens tells.
    """
    length = named["length"].to(torch.int64)
    rows = (length[0] if length.dim() == 2 else length.reshape(-1)).tolist()
    if length.dim() == 2:
        keys = length[1].tolist()
    elif "key_length" in named:
        keys = named["key_length"].reshape(-1).tolist()
    elif "offset" in named:
        keys = named["offset"].reshape(-1).tolist()
    else:
        keys = rows
    active = [True] * len(rows)
    if "status" in named:
        active = [bool(flag) for flag in named["status"].reshape(-1).tolist()]
    if tokens < sum(rows):
        rows = [count if on else 0 for count, on in zip(rows, active, strict=True)]
    starts = _starts(rows, named["query"], config)
    if starts and max(s + n for s, n in zip(starts, rows, strict=True)) > tokens:
        raise refused(NAME, f"seqLen adds up to {sum(rows)}; the query has {tokens} tokens")
    key_starts = _starts(keys, named.get("key", named["query"]), config)
    return [
        Place(index, starts[index], rows[index], keys[index], key_starts[index])
        for index in range(len(rows))
        if active[index] and rows[index] > 0
    ]


def _keys_and_values(
    config: Config, named: dict[str, Tensor], caches: Caches | None, place: Place
) -> tuple[Tensor, Tensor]:
    """Keys ``[ks, Hk, D]`` and values ``[ks, Hk, Dv]`` of one sequence."""
    if caches is not None:
        keys, values = (
            caches.read(name, place.number, place.keys) for name in ("key_cache", "value_cache")
        )
        return keys, values
    if config.calc is CalcType.PREFIX_ENCODER:
        table = named["tables"][place.number]
        heads = config.kv_heads
        keys, values = (
            read_pages(NAME, named[name], table, place.keys, heads=heads)
            for name in ("key", "value")
        )
        return keys, values
    rows = slice(place.key_first, place.key_first + place.keys)
    keys = _tokens(config, named["key"], config.kv_heads)[rows]
    if len(keys) < place.keys:
        raise refused(NAME, f"key has too few tokens for sequence {place.number}")
    if config.value_size:
        return keys, keys[..., : config.value_size]
    return keys, _tokens(config, named["value"], config.kv_heads)[rows]


def _row_scale(
    config: Config, named: dict[str, Tensor], place: Place, decoding: bool
) -> Tensor | None:
    """logN per row position, while decoding per sequence."""
    if "log_n" not in named:
        return None
    factors = named["log_n"].reshape(-1)
    if decoding:
        return factors[place.number : place.number + 1]
    return factors[: place.rows]


def _alternatives(params: Params) -> tuple[Params, ...]:
    """Clamping after the mask, as the default kernel does for long keys."""
    if read_config(params).clamp is None or "clampAfterMask" in params:
        return ()
    return ({**params, "clampAfterMask": True},)


def _kernel(params: Params) -> KernelArithmetic:
    """By kernel type and chip: the default kernel keeps float16 throughout, but not on all chips.

    What an exponential of its own does to a result follows no statistics of roundings.
    """
    own = kernel_type(params) is KernelType.EXP_M8V2
    return replace(ATTENTION, half_sums=kept(params) is Kept.SUMS, unknown=own)


@golden_op(NAME, infer_shape=infer_shape, alternatives=_alternatives, kernel=_kernel, by_soc=True)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention of each sequence's rows over its keys.

    Inputs depend on ``calcType`` (see :func:`read_config`): with caches (calcType 0 to 2) the new
    keys and values are appended to them first and the caches returned as updated inputs.
    """
    config = read_config(params)
    present = [tensor for tensor in inputs if tensor is not None]
    if len(present) != len(config.names):
        raise refused(
            NAME,
            f"got {len(present)} inputs; with these parameters it takes "
            f"{len(config.names)}: {', '.join(config.names)}",
        )
    named = {name: tensor_at(NAME, present, i) for i, name in enumerate(config.names)}
    query = _tokens(config, named["query"], config.heads)
    places = _places(config, named, len(query))
    caches = Caches(config, named) if "layer" in named else None
    updated = {}
    if caches is not None and "key" in named:
        for name, cache in (("key", "key_cache"), ("value", "value_cache")):
            caches.append(cache, _tokens(config, named[name], config.kv_heads), places)
            updated[config.names.index(cache)] = caches.tensors[cache]
    decoding = config.decodes([place.rows for place in places])
    pieces: list[tuple[Place, Tensor]] = []
    felt = _unfelt(config, query, arithmetic)
    for place in places:
        if place.keys == 0:
            continue
        keys, values = _keys_and_values(config, named, caches, place)
        mask = mask_of(config, named, place, len(keys), decoding=decoding)
        row_scale = _row_scale(config, named, place, decoding)
        rows = query[place.first : place.first + place.rows]
        own = None if felt is None else felt[place.first : place.first + place.rows]
        pieces.append(
            (place, _attend(config, named, rows, keys, values, mask, row_scale, arithmetic, own))
        )
    output = _assemble(config, named, query, pieces, arithmetic)
    idle = torch.ones(len(query), dtype=torch.bool)
    for place, _ in pieces:
        idle[place.first : place.first + place.rows] = False
    if not bool(idle.any()):
        return Result((output,), updated, sensitivity=_sensitivity(felt, output))
    original = named["query"]
    if original.dim() == 4 and config.head_major:
        idle = idle.reshape(original.shape[0], 1, original.shape[2], 1)
    elif original.dim() == 4:
        idle = idle.reshape(*original.shape[:2], 1)
    else:
        idle = idle.reshape(-1, *(1,) * (output.dim() - 1))
    return Result((output,), updated, {0: idle})


def _unfelt(config: Config, query: Tensor, arithmetic: Arithmetic) -> Tensor | None:
    """Room for what roundings on the way do to each row ``[rows, H]``; None where none is kept."""
    # Where the chip is not known, a cheaper sample does for the kernel of high precision.
    told = config.kept is Kept.SUMS or config.one_core
    told &= query.dtype == torch.float16 and not config.int8
    told &= config.kernel is not KernelType.EXP_M8V2
    if not told or not isinstance(arithmetic, Noting) or not arithmetic.felt:
        return None
    return torch.full(query.shape[:2], math.nan)


def _sensitivity(felt: Tensor | None, output: Tensor) -> dict[int, Tensor]:
    """Of packed tokens, whose rows are those of the output or its heads side by side."""
    if felt is None or bool(felt.isnan().any()):
        return {}
    if output.shape[:-1] == felt.shape:
        return {0: felt.unsqueeze(-1)}
    if output.shape[:-1] == felt.shape[:1]:
        return {0: felt.square().mean(-1, keepdim=True).sqrt_()}
    return {}


def _attend(
    config: Config,
    named: dict[str, Tensor],
    rows: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Mask,
    row_scale: Tensor | None,
    arithmetic: Arithmetic,
    felt: Tensor | None,
) -> Tensor:
    if config.int8:
        return attend_int8(
            rows,
            keys,
            values,
            scale=config.scale,
            score_scale=named["score_scale"],
            value_scale=named["value_scale"],
            probability_scale=named.get("probability_scale"),
            mask=mask,
            row_scale=row_scale,
        )
    query = arithmetic.widen(rows)
    if config.query_scale != 1.0:
        query = arithmetic.widen((query * config.query_scale).to(rows.dtype))
    half_sums = config.kept is Kept.SUMS
    attention = attention_of(
        arithmetic,
        rows.dtype,
        half_sums=half_sums,
        plain=config.kept is Kept.PROBABILITIES,
        eighth_power=config.kernel is KernelType.EXP_M8V2,
    )
    if felt is not None:
        attention = partial(attend, sensitivity=felt, stored=True, half_sums=half_sums)
    return attention(
        query,
        arithmetic.widen(keys),
        arithmetic.widen(values),
        scale=config.scale,
        mask=mask,
        clamp=config.clamp,
        clamp_last=config.clamp_last,
        row_scale=row_scale,
    )


def _assemble(
    config: Config,
    named: dict[str, Tensor],
    query: Tensor,
    pieces: Sequence[tuple[Place, Tensor]],
    arithmetic: Arithmetic,
) -> Tensor:
    """All rows in the output's layout and dtype; rows without a sequence are undefined."""
    original = named["query"]
    value_size = pieces[0][1].shape[2] if pieces else config.value_size or query.shape[2]
    wide = torch.float32 if config.int8 else arithmetic.widen(query[:0]).dtype
    rows = torch.zeros(len(query), config.heads, value_size, dtype=wide)
    for place, piece in pieces:
        rows[place.first : place.first + place.rows] = piece
    dtype = original.dtype
    if config.int8:
        mask_dtype = named["mask"].dtype if "mask" in named else torch.float16
        known = config.out_dtype is not DType.UNDEFINED
        dtype = torch_dtype(config.out_dtype) if known else mask_dtype
    if config.head_major and original.dim() == 4:
        batch, heads, length, _ = original.shape
        shaped = rows.reshape(batch, length, heads, value_size).transpose(1, 2).contiguous()
    else:
        shaped = rows.reshape(joined(original.shape, config.heads, value_size))
    return arithmetic.round(shaped, dtype)
