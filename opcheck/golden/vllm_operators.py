"""Operators of vLLM (``torch.ops._C``) as plain functions.

Arguments are those of vLLM's ``torch_bindings.cpp``. Kernels add up in float32; where they round
between two steps, the functions here have both steps, and the bounds allow to round there or not.
Other libraries have operators of the same names: what was recorded must fit the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.core import Registry, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden.base import Arithmetic, GoldenOp, Params, Result, UnverifiableError
from ait_llm.opcheck.golden.custom import signature

_FILLED = ("out", "result")  # what vLLM calls memory for results
engine_ops: Registry[GoldenOp] = Registry("operator of an engine")
Given = Mapping[str, Tensor | None]
Definition = Callable[[Given, Params], tuple[Tensor, ...]]
"""What an operator returns and then what it writes, of its tensors and parameters by name."""


def engine_operator(name: str) -> GoldenOp | None:
    """The golden operator of ``_C::rms_norm``; None where there is none."""
    return engine_ops.get(name) if name in engine_ops else None


def _operator(name: str, schema: str) -> Callable[[Definition], Definition]:
    def add(definition: Definition) -> Definition:
        names = [one.name for one in signature(schema).tensors]
        tensors = signature(schema).tensors
        written = [place for place, one in enumerate(tensors) if one.is_written]
        fills = tuple(one.name for one in tensors if one.is_written and one.name in _FILLED)

        def steps(params: Params) -> Callable[[Sequence[Tensor | None]], tuple[Tensor, ...]]:
            known = signature(schema).plain(params)
            return lambda inputs: definition(dict(zip(names, inputs, strict=True)), known)

        def compute(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
            from ait_llm.opcheck.golden.functions import golden_function

            whole = [*inputs, *[None] * (len(names) - len(inputs))]
            result = golden_function(name, steps(params)).compute(whole, params, how)
            there = [one for one in written if whole[one] is not None or names[one] in fills]
            return Result((), dict(zip(there, result.outputs, strict=True)))

        engine_ops.register(name)(
            GoldenOp(
                name,
                compute,
                partial(_no_shapes, name),
                schema=schema,
                fills=fills,
                steps=steps,
            )
        )
        return definition

    return add


def _no_shapes(name: str, inputs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    raise OperationError(f"{name} returns nothing")


def _there(given: Given, name: str) -> Tensor:
    tensor = given[name]
    if tensor is None:
        raise OperationError(f"{name} was not given")
    return tensor


def _quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _fast(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def _tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _gated(name: str, gate: Callable[[Tensor], Tensor], out: str, *, swapped: bool = False) -> None:
    """The first half of the columns decides how much of the second passes; or the other way."""

    @_operator(name, f"(Tensor! {out}, Tensor input) -> ()")
    def _of_halves(given: Given, params: Params) -> tuple[Tensor, ...]:
        first, second = _there(given, "input").chunk(2, -1)
        return (first * gate(second),) if swapped else (gate(first) * second,)


def _element(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @_operator(name, "(Tensor! out, Tensor input) -> ()")
    def _of_elements(given: Given, params: Params) -> tuple[Tensor, ...]:
        return (function(_there(given, "input")),)


_gated("_C::silu_and_mul", functional.silu, "result")
_gated("_C::mul_and_silu", functional.silu, "out", swapped=True)
_gated("_C::gelu_and_mul", functional.gelu, "out")
_gated("_C::gelu_tanh_and_mul", _tanh, "out")
_element("_C::gelu_new", _tanh)
_element("_C::gelu_fast", _fast)
_element("_C::gelu_quick", _quick)


def _normed(x: Tensor, given: Given, params: Params, dtype: torch.dtype) -> Tensor:
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + params["epsilon"])
    weight = given["weight"]
    if weight is None:
        return wide.to(dtype)
    return wide.to(dtype) * (weight + 1 if params["zero_centered"] else weight)


@_operator(
    "_C::rms_norm",
    "(Tensor! result, Tensor input, Tensor? weight, float epsilon, bool zero_centered=False) -> ()",
)
def _rms_norm(given: Given, params: Params) -> tuple[Tensor, ...]:
    x = _there(given, "input")
    return (_normed(x, given, params, x.dtype),)


@_operator(
    "_C::fused_add_rms_norm",
    "(Tensor! input, Tensor! residual, Tensor? weight, float epsilon, bool zero_centered=False)"
    " -> ()",
)
def _fused_add_rms_norm(given: Given, params: Params) -> tuple[Tensor, ...]:
    """The sum goes to ``residual``, its norm to ``input``."""
    x = _there(given, "input")
    total = x + _there(given, "residual")
    return _normed(total, given, params, x.dtype), total


@_operator(
    "_C::rotary_embedding",
    "(Tensor positions, Tensor! query, Tensor(a!)? key, int head_size, Tensor cos_sin_cache,"
    " bool is_neox) -> ()",
)
def _rotary_embedding(given: Given, params: Params) -> tuple[Tensor, ...]:
    """Query and key ``[tokens, heads * head_size]`` or ``[tokens, heads, head_size]``."""
    size = int(params["head_size"])
    positions = _there(given, "positions").flatten()
    table = _there(given, "cos_sin_cache").index_select(0, positions)
    found = []
    for name in ("query", "key"):
        x = given[name]
        if x is None:
            continue
        cos, sin = table.to(x.dtype).unsqueeze(1).chunk(2, -1)
        heads = x.reshape(positions.numel(), -1, size)
        part, rest = heads[..., : 2 * cos.shape[-1]], heads[..., 2 * cos.shape[-1] :]
        if params["is_neox"]:
            one, two = part.chunk(2, -1)
            made = torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
        else:
            one, two = part[..., ::2], part[..., 1::2]
            made = torch.stack((one * cos - two * sin, two * cos + one * sin), -1).flatten(-2)
        found.append(torch.cat((made, rest), -1).reshape(x.shape))
    return tuple(found)


_PAGED = (
    "Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, float scale,"
    " Tensor block_tables, Tensor seq_lens, int block_size, int max_seq_len,"
    " Tensor? alibi_slopes, str kv_cache_dtype, Tensor k_scale, Tensor v_scale, int tp_rank=0,"
    " int blocksparse_local_blocks=0, int blocksparse_vert_stride=0,"
    " int blocksparse_block_size=64, int blocksparse_head_sliding_step=0) -> ()"
)


@_operator("_C::paged_attention_v1", f"(Tensor! out, {_PAGED}")
@_operator(
    "_C::paged_attention_v2",
    f"(Tensor! out, Tensor exp_sums, Tensor max_logits, Tensor tmp_out, {_PAGED}",
)
def _paged_attention(given: Given, params: Params) -> tuple[Tensor, ...]:
    """One query for each request over its pages; the scratch memory of v2 is not judged.

    ``key_cache`` is ``[pages, kv_heads, size / x, page, x]``, ``value_cache`` ``[pages, kv_heads,
    size, page]``, ``query`` ``[requests, heads, size]``.
    """
    if params["kv_cache_dtype"] != "auto" or given["alibi_slopes"] is not None:
        raise UnverifiableError("caches of fewer bits and slopes are not defined")
    if params["blocksparse_vert_stride"] > 1:
        raise UnverifiableError("attention to some blocks is not defined")
    query, keys, values = (_there(given, name) for name in ("query", "key_cache", "value_cache"))
    tables, lengths = _there(given, "block_tables"), _there(given, "seq_lens").tolist()
    kv_heads, page = int(params["num_kv_heads"]), int(params["block_size"])
    times, size = query.shape[1] // kv_heads, query.shape[2]
    found = []
    for request, length in enumerate(lengths):
        pages = tables[request, : -(-int(length) // page)].long()
        key = keys[pages].permute(1, 0, 3, 2, 4).reshape(kv_heads, -1, size)[:, :length]
        value = values[pages].permute(1, 0, 3, 2).reshape(kv_heads, -1, size)[:, :length]
        own = query[request].reshape(kv_heads, times, size)
        scores = (own @ key.transpose(1, 2)) * params["scale"]
        shares = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        found.append((shares @ value).reshape(query.shape[1], size))
    return (torch.stack(found),)
