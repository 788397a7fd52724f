"""LaserAttention and its gradient, in both layouts of queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.core import TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    require_input,
    require_output,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank, require_shape
from ait_llm.opcheck.golden.base import Refusal

_BNSD, _SBH = "BNSD", "SBH"
_BLOCK, _MOST_HEADS = 256, 512
_DEFAULT, _DEEP_QUERY, _DEEP_KEY = 128, 192, 256  # sizes of a head


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What queries, keys and values are made of."""

    batch: int
    heads: int
    queries: int
    keys: int


def _create(params: Params) -> None:
    heads, layout, scale = params["headNum"], params["inputLayout"], params["scaleValue"]
    before, precise = params["preTokens"], params["innerPrecise"]
    require_param(heads > 0, "headNum", heads, "> 0")
    require_param(layout in (_BNSD, _SBH), "inputLayout", layout, f"{_BNSD}, {_SBH}")
    require_param(0 < scale <= 1, "scaleValue", scale, "0 < scaleValue <= 1")
    require_param(before >= 1 and before % _BLOCK == 0, "preTokens", before, f"{_BLOCK} * n")
    require_param(precise == 1, "innerPrecise", precise, "1")


def _check_heads(params: Params, query: TensorDesc, heads: int) -> None:
    require_input(heads == params["headNum"], 0, query, f"heads = {params['headNum']}")
    require_input(heads <= _MOST_HEADS, 0, query, f"heads <= {_MOST_HEADS}")


def _bnsd(params: Params, inputs: Descs) -> _Sizes:
    query, key, value = inputs[:3]
    require_rank(0, query, 4)
    batch, heads, rows, size = query.shape
    before = params["preTokens"]
    _check_heads(params, query, heads)
    require_input(rows % _BLOCK == 0, 0, query, f"sequence = {_BLOCK} * n")
    require_input(size in (_DEFAULT, _DEEP_QUERY), 0, query, f"head = {_DEFAULT}, {_DEEP_QUERY}")
    fits = rows >= before if size == _DEFAULT else rows == before
    require_input(fits, 0, query, f"preTokens = {before}")
    require_rank(1, key, 4)
    key_size = _DEFAULT if size == _DEFAULT else _DEEP_KEY
    fits = key.shape[0] == batch and heads % key.shape[1] == 0 and key.shape[2] % _BLOCK == 0
    require_input(fits and key.shape[3] == key_size, 1, key, f"[{batch}, n, s, {key_size}]")
    require_rank(2, value, 4)
    require_shape(2, value, batch, *key.shape[1:3], _DEFAULT)
    return _Sizes(batch, heads, rows, key.shape[2])


def _sbh(params: Params, inputs: Descs) -> _Sizes:
    query, key, value = inputs[:3]
    require_rank(0, query, 3)
    rows, batch, width = query.shape
    before = params["preTokens"]
    require_input(rows % _BLOCK == 0, 0, query, f"sequence = {_BLOCK} * n")
    require_input(rows == before, 0, query, f"sequence = {before}")
    heads = width // _DEEP_QUERY
    _check_heads(params, query, heads)
    require_rank(1, key, 3)
    key_heads = key.shape[2] // _DEEP_KEY
    fits = key.shape[0] % _BLOCK == 0 and key.shape[1] == batch
    divides = key_heads > 0 and heads % key_heads == 0
    require_input(fits and divides, 1, key, f"[{_BLOCK} * n, {batch}, heads * {_DEEP_KEY}]")
    require_rank(2, value, 3)
    fits = value.shape[:2] == key.shape[:2] and value.shape[2] // _DEFAULT == key_heads
    require_input(fits, 2, value, f"[{key.shape[0]}, {batch}, {key_heads} * {_DEFAULT}]")
    return _Sizes(batch, heads, rows, key.shape[0])


def _sizes(params: Params, inputs: Descs) -> _Sizes:
    return (_bnsd if params["inputLayout"] == _BNSD else _sbh)(params, inputs)


def _check_absent(inputs: Descs, indices: Sequence[int]) -> None:
    for index in indices:
        require_input(inputs[index].is_absent, index, inputs[index], "[]", Refusal.DIM_COUNT)


def _check_mask(index: int, mask: TensorDesc, sizes: _Sizes) -> None:
    if mask.is_absent:
        return
    require_rank(index, mask, 2)
    square = sizes.queries == sizes.keys
    wanted = (sizes.queries, sizes.keys)
    require_input(square and mask.shape == wanted, index, mask, str(list(wanted)))


def _attention_shape(params: Params, sizes: _Sizes) -> tuple[int, ...]:
    if params["inputLayout"] == _BNSD:
        return sizes.batch, sizes.heads, sizes.queries, _DEFAULT
    return sizes.queries, sizes.batch, sizes.heads * _DEFAULT


def _check_attention(params: Params, index: int, desc: TensorDesc, sizes: _Sizes) -> None:
    wanted = _attention_shape(params, sizes)
    require_rank(index, desc, len(wanted))
    require_shape(index, desc, *wanted)


def _inputs(params: Params, inputs: Descs) -> None:
    sizes = _sizes(params, inputs)
    _check_absent(inputs, (3, 4, 5))
    _check_mask(6, inputs[6], sizes)
    _check_absent(inputs, (7, 8, 9))


def _outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """The third output is not looked at."""
    for index in (0, 1, 3):
        require_output(index, outputs[index], inferred[index])


def _grad_inputs(params: Params, inputs: Descs) -> None:
    sizes = _sizes(params, inputs)
    _check_attention(params, 3, inputs[3], sizes)
    _check_absent(inputs, (4, 5, 6))
    _check_mask(7, inputs[7], sizes)
    for index in (8, 9):
        require_rank(index, inputs[index], 3)
        require_shape(index, inputs[index], sizes.batch, sizes.heads, sizes.queries)
    _check_attention(params, 11, inputs[11], sizes)
    _check_absent(inputs, (12, 13, 14))


def _grad_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """The last output is not looked at."""
    for index in range(3):
        require_output(index, outputs[index], inputs[index])


accept(
    Acceptance(
        "LaserAttentionOperation",
        lambda _: "LaserAttentionOperation",
        _create,
        _inputs,
        _outputs,
        _inputs,
        lambda _: range(3, 10),
        free=(2,),
    )
)
accept(
    Acceptance(
        "LaserAttentionGradOperation",
        lambda _: "LaserAttentionGradOperation",
        _create,
        _grad_inputs,
        _grad_outputs,
        _grad_inputs,
        lambda _: (4, 5, 6, 7, 12, 13, 14),
        free=(3,),
    )
)
