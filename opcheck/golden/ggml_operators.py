"""Operators of ggml that no single operator of torch computes, as operators of torch.

Their meaning is that of ``ggml/src/ggml-cpu/ops.cpp`` and ``ggml-cpu.c``. Axes are those that a
value means, the slowest first: rows of tokens, heads, width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ait_llm.opcheck.golden.own_operators import defined

NAMESPACE = "ait_ggml"
_INNER = {"f16": torch.float16, "bf16": torch.bfloat16}


@cache
def define() -> torch.library.Library:
    """Make them known to torch, once for a process."""
    return defined(NAMESPACE, _OPERATORS)


def _mul_mat(a: Tensor, b: Tensor, *, inner: str = "") -> Tensor:
    """``b`` times the transposed ``a``; heads of ``a`` serve several of ``b`` each.

    ``[…, n, k]`` and ``[…, m, k]`` make ``[…, m, n]``. Where ``a`` is of 16 bits, ``b`` is rounded
    to its type first (``vec_dot_type`` of ``ggml-cpu.c``).
    """
    if inner:
        b = b.to(_INNER[inner]).to(b.dtype)
    if a.dim() > 2:
        a = a.repeat_interleave(b.shape[-3] // a.shape[-3], dim=-3)
    return b @ a.to(b.dtype).mT


def _linear(x: Tensor, weight: Tensor, *, inner: str = "") -> Tensor:
    return _mul_mat(weight, x, inner=inner)


def _soft_max(x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
    scores = x * scale
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    return torch.softmax(scores, -1)


def _rope(
    x: Tensor,
    positions: Tensor,
    factors: Tensor | None = None,
    *,
    dims: int,
    neox: bool,
    base: float,
    scale: float = 1.0,
    factor: float = 1.0,
) -> Tensor:
    """Rotary positions of ``[tokens, heads, width]``, of the first ``dims`` of each head.

    Angles are those of ``ggml_rope_cache_init``: in float32, each the one before times a number, so
    that what far positions lose there is no difference.
    """
    step = np.float32(float(base) ** (-2.0 / dims))
    angles: np.ndarray[Any, Any] = np.empty((len(positions), dims // 2), np.float32)
    now = positions.detach().cpu().numpy().astype(np.float32)
    for place in range(dims // 2):
        angles[:, place] = now
        now = now * step
    if factors is not None:
        angles = angles / factors.detach().cpu().numpy().astype(np.float32)
    turned = torch.from_numpy(angles * np.float32(scale)).to(x.dtype)[:, None, :]
    cos, sin = torch.cos(turned) * factor, torch.sin(turned) * factor
    part, rest = x[..., :dims], x[..., dims:]
    if neox:
        first, second = part[..., : dims // 2], part[..., dims // 2 :]
        made = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
    else:
        first, second = part[..., 0::2], part[..., 1::2]
        pair = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
        made = pair.flatten(-2)
    return torch.cat([made, rest], -1)


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def _gelu(x: Tensor, *, approximate: str = "tanh") -> Tensor:
    return torch.nn.functional.gelu(x, approximate=approximate)


def _geglu(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def _set_rows(into: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """A cache in which rows have been written, rounded to its type."""
    result = into.clone()
    result[places.to(torch.int64)] = rows.to(into.dtype)
    return result


def _strided(x: Tensor, size: list[int], steps: list[int], start: int) -> Tensor:
    """Elements of ``x`` in their order, from ``start`` on, so many steps apart along each axis."""
    last = start + sum((count - 1) * step for count, step in zip(size, steps, strict=True))
    if min(size, default=0) < 1 or min((start, *steps)) < 0 or last >= x.numel():
        raise ValueError("a view of what is not there")
    return torch.as_strided(x.contiguous(), size, steps, start).clone()


def _embedding(table: Tensor, ids: Tensor) -> Tensor:
    rows = table[ids.to(torch.int64)]
    return rows if rows.dtype == torch.float64 else rows.float()


def _get_rows(table: Tensor, places: Tensor) -> Tensor:
    """Rows of ``[rows, width]``, or of each ``[rows, width]`` those that its own places say."""
    places = places.to(torch.int64)
    if table.dim() < 3:
        return table[places]
    return torch.take_along_dim(table, places[..., None], dim=-2)


def _mul_mat_id(weights: Tensor, x: Tensor, experts: Tensor, *, inner: str = "") -> Tensor:
    """Products of each token with the weights of its experts.

    ``[experts, n, k]``, ``[tokens, k]`` or ``[tokens, chosen, k]`` and ``[tokens, chosen]`` make
    ``[tokens, chosen, n]``.
    """
    if inner:
        x = x.to(_INNER[inner]).to(x.dtype)
    experts = experts.to(torch.int64)
    if bool((experts < 0).any()) or bool((experts >= len(weights)).any()):
        raise IndexError("an expert that is not there")
    x = (x[:, None] if x.dim() == 2 else x).expand(-1, experts.shape[1], -1)
    made = x.new_empty(*experts.shape, weights.shape[1])
    for expert in sorted({int(each) for each in experts.flatten()}):
        chosen = experts == expert
        made[chosen] = x[chosen] @ weights[expert].to(x.dtype).mT
    return made


def _argsort(x: Tensor, *, descending: bool = False) -> Tensor:
    return torch.argsort(x, dim=-1, descending=descending).to(torch.int32)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "mul_mat(Tensor a, Tensor b, *, str inner='') -> Tensor": _mul_mat,
    "linear(Tensor x, Tensor weight, *, str inner='') -> Tensor": _linear,
    "soft_max(Tensor x, Tensor? mask=None, *, float scale=1.0) -> Tensor": _soft_max,
    "rope(Tensor x, Tensor positions, Tensor? factors=None, *, int dims, bool neox, float base,"
    " float scale=1.0, float factor=1.0) -> Tensor": _rope,
    "swiglu(Tensor gate, Tensor up) -> Tensor": _swiglu,
    "gelu(Tensor x, *, str approximate='tanh') -> Tensor": _gelu,
    "geglu(Tensor gate, Tensor up) -> Tensor": _geglu,
    "set_rows(Tensor into, Tensor places, Tensor rows) -> Tensor": _set_rows,
    "strided(Tensor x, int[] size, int[] steps, int start) -> Tensor": _strided,
    "embedding(Tensor table, Tensor ids) -> Tensor": _embedding,
    "get_rows(Tensor table, Tensor places) -> Tensor": _get_rows,
    "mul_mat_id(Tensor weights, Tensor x, Tensor experts, *, str inner='') -> Tensor": _mul_mat_id,
    "argsort(Tensor x, *, bool descending=False) -> Tensor": _argsort,
}
