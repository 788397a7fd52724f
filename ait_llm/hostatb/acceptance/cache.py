"""Key and value caches, and rotary position embedding."""

from __future__ import annotations

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank, require_ranks
from ait_llm.opcheck.golden.base import Refusal

_BYPASS, _BLOCKS = 1, 2  # kvCacheCfg: no values; both in FRACTAL_NZ
_KV_HEAD, _ROPE = 1, 2  # compressType


def _kv_cache(params: Params, inputs: Descs, status: Refusal = Refusal.DIM_COUNT) -> None:
    new, _layer, cache, offsets, lengths = inputs
    require_rank(0, new, 2, 4, status=status)
    for index, rank in ((1, 1), (2, 4), (3, 1), (4, 1)):
        require_rank(index, inputs[index], rank, status=status)
    _, batch, _, hidden = cache.shape
    step = {DType.FLOAT16: 16, DType.INT8: 32}.get(cache.dtype, 1)
    require_input(hidden % step == 0, 2, cache, f"[..., {step} * n]")
    own = new.shape[1] if len(new.shape) == 2 else new.shape[2] * new.shape[3]
    require_input(own == hidden, 0, new, f"[n, {hidden}]")
    for index, desc in ((3, offsets), (4, lengths)):
        require_input(desc.shape == (batch,), index, desc, f"[{batch}]")


def _kv_cache_setup(params: Params, inputs: Descs) -> None:
    _kv_cache(params, inputs, Refusal.DIM)


accept(
    Acceptance(
        "KvCacheOperation",
        lambda _: "KvCacheOperation",
        inputs=_kv_cache,
        setup_inputs=_kv_cache_setup,
    )
)


def _reshape(params: Params) -> None:
    config, kind = int(params["kvCacheCfg"]), int(params["compressType"])
    require_param(config == 0 or kind == 0, "compressType", kind, f"0 (kvCacheCfg {config})")


def _reshape_table(params: Params) -> str:
    config, kind = int(params["kvCacheCfg"]), int(params["compressType"])
    name = {0: "", _BYPASS: "SISO", _BLOCKS: "Atlas800A2NZ"}[config]
    name += {0: "", _KV_HEAD: "KvHeadCompressAlibi", _ROPE: "KvHeadCompressRope"}[kind]
    return "ReshapeAndCacheOperation" + name


def _reshape_keys_only(inputs: Descs) -> None:
    key, cache, slots = inputs
    require_ranks(inputs, (3, 4, 1))
    require_input(slots.shape == key.shape[:1], 2, slots, f"[{key.shape[0]}]")
    wanted = list(key.shape[1:])
    require_input(list(cache.shape[2:]) == wanted, 1, cache, f"[n, m, ...] + {wanted}")


def _reshape_blocks(inputs: Descs) -> None:
    key, value, key_cache, value_cache = inputs[:4]
    fits = value.shape[:2] == key.shape[:2]
    require_input(fits, 1, value, f"{list(key.shape[:2])} + [d]")
    size = key_cache.shape[2]
    require_input(size % 16 == 0, 2, key_cache, "[n, m, 16 * s, w]")
    require_input(value_cache.shape[2] == size, 3, value_cache, f"[n, m, {size}, w]")
    width = 32 if key.dtype is DType.INT8 else 16
    for index, new, wide in ((2, key, width), (3, value, 16)):
        cache = inputs[index]
        columns = new.shape[1] * new.shape[2]
        fits = cache.shape[1] * wide == columns and cache.shape[3] == wide
        require_input(fits, index, cache, f"[n, {columns} / {wide}, {size}, {wide}]")


def _reshape_inputs(params: Params, inputs: Descs) -> None:
    config, kind = int(params["kvCacheCfg"]), int(params["compressType"])
    if config == _BYPASS:
        _reshape_keys_only(inputs)
        return
    require_ranks(inputs[:5], (3, 3, 4, 4, 1))
    if config == _BLOCKS:
        _reshape_blocks(inputs)
        return
    key, value, key_cache, value_cache = inputs[:4]
    fits = value.shape[:2] == key.shape[:2] and (kind == 0 or value.shape[2] == key.shape[2])
    require_input(fits, 1, value, f"{list(key.shape[:2])} + [d]")
    blocks = key_cache.shape[:2]
    require_input(value_cache.shape[:2] == blocks, 3, value_cache, f"{list(blocks)} + ...")
    if kind:
        require_input(key.shape[2] % 32 == 0, 0, key, "[n, h, 32 * d]")
    for index, new in ((2, key), (3, value)):
        wanted = (new.shape[1] if kind == 0 else 1, new.shape[2])
        fits = inputs[index].shape[2:] == wanted
        require_input(fits, index, inputs[index], f"[n, m] + {list(wanted)}")


accept(
    Acceptance(
        "ReshapeAndCacheOperation",
        _reshape_table,
        _reshape,
        _reshape_inputs,
        counted_as(Refusal.DIM),
    )
)


def _omni(params: Params, inputs: Descs) -> None:
    require_ranks(inputs, (3, 3, 4, 4, 1, 1, 1, 1))
    key, value, key_cache, value_cache, slots, windows, lengths, offsets = inputs
    heads, size = key.shape[1:]
    require_input(size % 32 == 0, 0, key, "[n, h, 32 * d]")
    require_input(value.shape == key.shape, 1, value, str(list(key.shape)))
    total = heads * lengths.shape[0]
    for index, desc in ((4, slots), (5, windows), (7, offsets)):
        require_input(desc.shape == (total,), index, desc, f"[{total}]")
    wanted = (*key_cache.shape[:2], 1, size)
    for index, desc in ((2, key_cache), (3, value_cache)):
        require_input(desc.shape == wanted, index, desc, str(list(wanted)))
    require_input(total < 500, 6, lengths, f"{heads} * n < 500")


accept(
    Acceptance(
        "ReshapeAndCacheOmniOperation",
        lambda _: "ReshapeAndCacheOmniOperation",
        inputs=_omni,
        outputs=counted_as(Refusal.DIM),
    )
)

_MOST_COLUMNS = 147456 // 32  # of blocks that a load takes


def _load(params: Params) -> None:
    if int(params["kvCacheCfg"]) == 0:
        for name in ("hasSeqStarts", "isSeqLensCumsumMode"):
            require_param(not params[name], name, True, "false (kvCacheCfg 0)")


def _load_lengths(params: Params, inputs: Descs) -> None:
    table, lengths = inputs[2:4]
    key, value = inputs[4:6]
    require_input(value.shape[:1] == key.shape[:1], 5, value, f"[{key.shape[0]}, ...]")
    more = 1 if params["isSeqLensCumsumMode"] else 0
    wanted = table.shape[0] + more
    require_input(lengths.shape[0] == wanted, 3, lengths, f"[{wanted}]")


def _load_inputs(params: Params, inputs: Descs) -> None:
    rows = int(params["kvCacheCfg"]) == 1
    keys, values = inputs[:2]
    require_ranks(inputs, (4, 4, 2, 1, 3, 3, 1) if rows else (4, 4, 2, 1, 2, 2))
    blocks = (0, 1, 2) if rows else (0, 2)
    fits = all(keys.shape[index] == values.shape[index] for index in blocks)
    require_input(fits, 1, values, f"~ {list(keys.shape)}")
    _load_lengths(params, inputs)
    for index, cache in ((0, keys), (1, values)):
        width = 32 if cache.dtype is DType.INT8 else 16
        if rows:
            fits = cache.shape[2] * cache.shape[3] % width == 0
            require_input(fits, index, cache, f"h * d = {width} * n")
        else:
            require_input(cache.shape[2] % 16 == 0, index, cache, f"[n, m, 16 * s, {width}]")
            fits = cache.shape[3] == width and cache.shape[1] <= _MOST_COLUMNS
            require_input(fits, index, cache, f"[n, <= {_MOST_COLUMNS}, s, {width}]")
    if params["hasSeqStarts"]:
        require_input(inputs[6].shape == inputs[2].shape[:1], 6, inputs[6], "[batch]")


accept(
    Acceptance(
        "PagedCacheLoadOperation",
        lambda params: f"PagedCacheLoadOperation{'ND' if int(params['kvCacheCfg']) else ''}",
        _load,
        _load_inputs,
        counted_as(Refusal.DIM),
    )
)


def _rope(params: Params, inputs: Descs) -> None:
    query, key, cosine, sine, lengths = inputs
    for index, desc in ((0, query), (1, key)):
        require_rank(index, desc, 2, 4, status=Refusal.DIM)
    for index, desc, rank in ((2, cosine, 2), (3, sine, 2), (4, lengths, 1)):
        require_rank(index, desc, rank, status=Refusal.DIM)
    sizes = []
    for desc in (query, key):
        half = len(desc.shape) // 2
        shape = desc.shape
        sizes.append(shape if half == 1 else (shape[0] * shape[1], shape[2] * shape[3]))
    (tokens, columns), (key_tokens, key_columns) = sizes
    require_input(key_tokens == tokens, 1, key, f"tokens = {tokens}", Refusal.SIZE)
    head = cosine.shape[1]
    for index, desc in ((2, cosine), (3, sine)):
        require_input(16 <= desc.shape[1] <= 4096, index, desc, "[n, 16 to 4096]")
    require_input(sine.shape == cosine.shape, 3, sine, str(list(cosine.shape)), Refusal.SIZE)
    fits = columns % key_columns == 0
    require_input(fits, 0, query, f"hidden = {key_columns} * n", Refusal.SIZE)
    require_input(key_columns % head == 0, 1, key, f"hidden = {head} * n")
    coefficient, layout = params["rotaryCoeff"], params["cosFormat"]
    fits = coefficient in (2, 4, head) and head % coefficient == 0
    require_param(fits, "rotaryCoeff", coefficient, f"2, 4, {head}")
    require_param(layout in (0, 1), "cosFormat", layout, "0, 1")


accept(Acceptance("RopeOperation", lambda _: "RopeOperation", inputs=_rope))

_ROPE_MEMORY = 196352  # bytes on the chip, which one row has to fit in


def _rope_concat(params: Params, inputs: Descs) -> None:
    query, cosine, sine, other = inputs
    for index, rank in enumerate((2, 2, 2, 3)):
        require_rank(index, inputs[index], rank, status=Refusal.DIM)
    tokens, size = query.shape[0], cosine.shape[1]
    require_input(cosine.shape[0] == tokens, 1, cosine, f"[{tokens}, d]")
    require_input(size <= 64 and size % 16 == 0, 1, cosine, "[n, 16 * d <= 64]")
    require_input(sine.shape == cosine.shape, 2, sine, str(list(cosine.shape)))
    heads, columns = other.shape[1:]
    require_input(query.shape[1] // heads == size, 0, query, f"[n, {heads} * {size}]")
    fits = other.shape[0] == tokens and columns % 16 == 0
    fits = fits and size * 26 + columns * 2 < _ROPE_MEMORY
    require_input(fits, 3, other, f"[{tokens}, h, 16 * n], {size} * 26 + 32 * n < {_ROPE_MEMORY}")


accept(
    Acceptance(
        "RopeQConcatOperation",
        lambda _: "RopeQConcatOperation",
        inputs=_rope_concat,
        outputs=counted_as(Refusal.DIM),
    )
)
