"""Operators of ONNX that no single operator of torch computes, as operators of torch.

Sizes, starts and indices are tensors in ONNX: a graph may compute them. Meaning and names of the
arguments are those of the ONNX specification (``onnx/docs/Operators.md``) and, where the name
begins with ``ms_``, of ONNX Runtime's ``docs/ContribOperators.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.onnx_attention import (
    group_query_attention,
    multi_head_attention,
    rotary_embedding,
)
from ait_llm.opcheck.golden.own_operators import defined

NAMESPACE = "ait_onnx"


@cache
def define() -> torch.library.Library:
    """Make them known to torch, once for a process."""
    return defined(NAMESPACE, _OPERATORS)


def _shape(data: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(list(data.shape)[start:end], dtype=torch.int64)


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    values = torch.arange(start.item(), limit.item(), delta.item())
    return values.to(torch.promote_types(start.dtype, limit.dtype))


def _expand(data: Tensor, shape: Tensor) -> Tensor:
    whole = torch.broadcast_shapes(data.shape, shape.tolist())  # type: ignore[no-untyped-call]
    return data.expand(whole).clone()


def _reshape(data: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    sizes = [
        data.shape[place] if size == 0 and not allowzero else size
        for place, size in enumerate(shape.tolist())
    ]
    return data.reshape(sizes).clone()


def _slice(
    data: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    bounds = starts.tolist(), ends.tolist()
    along = list(range(len(bounds[0]))) if axes is None else axes.tolist()
    by = [1] * len(along) if steps is None else steps.tolist()
    for start, end, axis, step in zip(*bounds, along, by, strict=True):
        chosen = range(data.shape[axis])[slice(start, end, step)]
        # past the first element backwards, as Python cannot say it
        if step < 0 and end < -data.shape[axis]:
            chosen = range(data.shape[axis])[slice(start, None, step)]
        data = data.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return data.clone()


def _gather(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= data.dim()
    flat = indices.reshape(-1).to(torch.int64) % data.shape[axis]
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return data.index_select(axis, flat).reshape(shape)


def _gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    leading = data.shape[:batch_dims]
    whole = data.reshape(-1, *data.shape[batch_dims:])
    places = indices.reshape(whole.shape[0], -1, indices.shape[-1]).to(torch.int64)
    rows = [each[tuple(place.unbind(-1))] for each, place in zip(whole, places, strict=True)]
    shape = (*leading, *indices.shape[batch_dims:-1], *rows[0].shape[1:])
    return torch.stack(rows).reshape(shape)


def _div(a: Tensor, b: Tensor) -> Tensor:
    """Of integers: rounded towards zero."""
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _constant_of_shape(
    shape: Tensor, *, value: float = 0.0, dtype: torch.dtype | None = None
) -> Tensor:
    return torch.full(shape.tolist(), value, dtype=dtype or torch.float32)


def _quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * torch.sigmoid(alpha * x)


def _attention_alone(*args: Any, **options: Any) -> Tensor:
    """Without the keys and values, which are results only if the graph asks for them."""
    return multi_head_attention(*args, **options)[0]


def _fused_product(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    if transBatchA or transBatchB:
        raise ValueError("batches in another order are not computed")
    return alpha * ((a.mT if transA else a) @ (b.mT if transB else b))


_OPERATORS: dict[str, Callable[..., Any]] = {
    "ms_GroupQueryAttention(Tensor query, Tensor? key, Tensor? value, Tensor? past_key,"
    " Tensor? past_value, Tensor seqlens_k, Tensor total_sequence_length, Tensor? cos_cache=None,"
    " Tensor? sin_cache=None, *, int num_heads, int kv_num_heads, float scale=0.0,"
    " float softcap=0.0, int do_rotary=0, int rotary_interleaved=0, int local_window_size=-1)"
    " -> (Tensor, Tensor, Tensor)": group_query_attention,
    "ms_MultiHeadAttention(Tensor query, Tensor key, Tensor value, Tensor? bias=None,"
    " Tensor? key_padding_mask=None, Tensor? attention_bias=None, Tensor? past_key=None,"
    " Tensor? past_value=None, *, int num_heads, float mask_filter_value=-10000.0,"
    " float scale=0.0, int unidirectional=0) -> Tensor": _attention_alone,
    "ms_MultiHeadAttention.present(Tensor query, Tensor key, Tensor value, Tensor? bias=None,"
    " Tensor? key_padding_mask=None, Tensor? attention_bias=None, Tensor? past_key=None,"
    " Tensor? past_value=None, *, int num_heads, float mask_filter_value=-10000.0,"
    " float scale=0.0, int unidirectional=0) -> (Tensor, Tensor, Tensor)": multi_head_attention,
    "ms_RotaryEmbedding(Tensor input, Tensor position_ids, Tensor cos_cache, Tensor sin_cache, *,"
    " int interleaved=0, int num_heads=0, int rotary_embedding_dim=0)"
    " -> Tensor": rotary_embedding,
    "Shape(Tensor data, *, int start=0, int? end=None) -> Tensor": _shape,
    "Range(Tensor start, Tensor limit, Tensor delta) -> Tensor": _range,
    "ConstantOfShape(Tensor shape, *, float value=0.0, ScalarType? dtype=None)"
    " -> Tensor": _constant_of_shape,
    "Div(Tensor a, Tensor b) -> Tensor": _div,
    "Expand(Tensor data, Tensor shape) -> Tensor": _expand,
    "Reshape(Tensor data, Tensor shape, *, int allowzero=0) -> Tensor": _reshape,
    "Slice(Tensor data, Tensor starts, Tensor ends, Tensor? axes=None, Tensor? steps=None)"
    " -> Tensor": _slice,
    "Gather(Tensor data, Tensor indices, *, int axis=0) -> Tensor": _gather,
    "GatherND(Tensor data, Tensor indices, *, int batch_dims=0) -> Tensor": _gather_nd,
    "ms_QuickGelu(Tensor x, *, float alpha=1.702) -> Tensor": _quick_gelu,
    "ms_FusedMatMul(Tensor a, Tensor b, *, float alpha=1.0, int transA=0, int transB=0,"
    " int transBatchA=0, int transBatchB=0) -> Tensor": _fused_product,
}
