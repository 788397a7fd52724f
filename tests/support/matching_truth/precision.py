"""Running a program in float64 whatever types its code asks for.

Libraries turn to float32 on purpose: norms, softmax and rotary tables do. A truth that is good to
nine digits needs all of it in float64, with the same operations at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_COARSE = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS = frozenset({torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16})


class _Upcast(TorchFunctionMode):
    """Replaces each coarser floating type that a call names by float64."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = {name: _finer(value) for name, value in (kwargs or {}).items()}
        return (torch.Tensor.double if func in _CASTS else func)(*map(_finer, args), **named)


class _GroupedProducts(TorchDispatchMode):
    """Computes the operator of experts that has no kernel for float64, group by group."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not torch.ops.aten._grouped_mm.default:
            return func(*args, **(kwargs or {}))
        rows, weights = args[:2]
        ends = (args[2] if len(args) > 2 else (kwargs or {})["offs"]).tolist()
        starts = [0, *ends[:-1]]
        groups = [
            rows[start:end] @ weight
            for start, end, weight in zip(starts, ends, weights, strict=True)
        ]
        rest = rows.new_zeros(rows.shape[0] - ends[-1], weights.shape[-1])
        return torch.cat([*groups, rest])


def _finer(value: object) -> object:
    return torch.float64 if isinstance(value, torch.dtype) and value in _COARSE else value


@contextmanager
def in_float64() -> Iterator[None]:
    """Everything that is computed or built inside is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _GroupedProducts(), _Upcast():
            yield
    finally:
        torch.set_default_dtype(before)
