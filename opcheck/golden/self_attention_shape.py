"""Shape inference of SelfAttention."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Params
from ait_llm.opcheck.golden.self_attention_config import NAME, CalcType, Config, read_config
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    U32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import refused


def _dtypes(config: Config) -> list[tuple[DType, ...]]:
    """Rows of the operator table for the inputs that the parameters imply."""
    lengths = (I32,) if config.calc is CalcType.PA_ENCODER else (I32, U32)
    rows = []
    for real in (F16, BF16):
        for length in lengths:
            for slope in (F32, F16):
                for log_n in (F32, F16):
                    operand = I8 if config.int8 else real
                    types = dict.fromkeys(("query", "key", "value"), operand)
                    types |= dict.fromkeys(("key_cache", "value_cache", "mask"), real)
                    types |= dict.fromkeys(("offset", "length", "layer", "status"), length)
                    types |= dict.fromkeys(("key_length",), length)
                    types |= dict.fromkeys(("tables", "score_offset", "value_offset"), I32)
                    types |= {"slopes": slope, "log_n": log_n}
                    rows.append(tuple(types.get(name, F32) for name in config.names))
    return list(dict.fromkeys(rows))


def _head_size(config: Config, shape: Sequence[int], heads: int, name: str) -> int:
    """Entries of one head of a query, key or value of 2, 3 or 4 dimensions."""
    if len(shape) == 2:
        if shape[1] % heads:
            raise refused(NAME, f"{name} {list(shape)} does not split into {heads} heads")
        return shape[1] // heads
    found = shape[1] if config.head_major and len(shape) == 4 else shape[-2]
    if found != heads:
        raise refused(NAME, f"{name} {list(shape)} does not have {heads} heads")
    return shape[-1]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The query's shape with the head size of the values, heads joined if it has 4 dimensions."""
    config = read_config(params)
    check_count(NAME, descs, len(config.names))
    check_dtypes(NAME, descs, _dtypes(config))
    named = dict(zip(config.names, descs, strict=True))
    at = {name: index for index, name in enumerate(config.names)}
    query = descs[0]
    check_rank(NAME, descs, 0, 2, 3, 4)
    size = _head_size(config, query.shape, config.heads, "query")
    if "key" in named and config.calc is not CalcType.PREFIX_ENCODER:
        check_rank(NAME, descs, at["key"], 2, 3, 4)
        key_size = _head_size(config, named["key"].shape, config.kv_heads, "key")
        if key_size != size:
            raise refused(NAME, f"query heads have {size} entries and key heads {key_size}")
        if config.value_size > key_size:
            raise refused(NAME, f"mlaVHeadSize is {config.value_size}; keys have {key_size}")
    if size > (576 if config.value_size else 256) and config.calc is not CalcType.PA_ENCODER:
        raise refused(NAME, f"head size is {size}; it takes at most 256")
    if "layer" in named:
        for index in (at["key_cache"], at["value_cache"]):
            check_rank(NAME, descs, index, 4, 5)
        batch = named["key_cache"].shape[1]
        for name in ("offset", "length", "status"):
            if name in named:
                check_shape(NAME, descs, at[name], (batch,))
    if "slopes" in named:
        check_shape(NAME, descs, at["slopes"], (config.heads,))
    length = named["length"].shape
    if len(length) == 2 and (config.calc is not CalcType.PA_ENCODER or length[0] != 2):
        raise refused(NAME, f"seqLen has shape {list(length)}; it takes [B] or [2, B]")
    dtype = query.dtype
    if config.int8:
        if config.out_dtype not in (F16, BF16):
            raise refused(NAME, "int8 inputs need outDataType float16 (1) or bf16 (27)")
        dtype = config.out_dtype
    if config.head_major or config.calc is CalcType.PREFIX_ENCODER:
        return (replace(query, dtype=dtype),)
    value_size = size
    if config.value_size:
        value_size = config.value_size
    elif "value" in named:
        value_size = _head_size(config, named["value"].shape, config.kv_heads, "value")
    return (replace(query, joined(query.shape, config.heads, value_size), dtype),)


def joined(shape: Sequence[int], heads: int, value_size: int) -> tuple[int, ...]:
    """Output shape for a query of ``[T, H * D]``, ``[T, H, D]`` or ``[B, S, H, D]``."""
    if len(shape) == 3:
        return (*shape[:2], value_size)
    return (*shape[: len(shape) // 2], heads * value_size)
