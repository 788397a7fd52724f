"""Kernels that cut what they computed to bfloat16 instead of rounding it.

Those of vLLM for x86 processors without AVX512-BF16 shift the lower bits of a float32 away
(``csrc/cpu/cpu_types_x86.hpp``). Its modules that call them are right with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.opcheck.golden.base import Accepts, Params

CUTTING = frozenset({"_C::rotary_embedding"})
"""Operators of vLLM whose kernels do so."""
_LOST = 4 * 2.0**-24  # float32: two products and their sum, relative to the largest of a row


def truncates(function: Callable[[Sequence[Tensor | None]], Any]) -> Accepts:
    """Whether results are those of a function in float32, each cut or rounded to bfloat16.

    Args:
        function: of inputs that are bfloat16, or rounded to it, or integers.
    """

    def is_cut(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params) -> bool:
        if any(one.dtype != torch.bfloat16 for one in outputs):
            return False
        with _disable_current_modes():
            made = function([None if one is None else _wide(one) for one in inputs])
            exact = [made] if isinstance(made, Tensor) else list(made)
            return len(exact) == len(outputs) and all(map(_is_between, outputs, exact))

    return is_cut


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16).double() if tensor.is_floating_point() else tensor


def _is_between(found: Tensor, exact: Tensor) -> bool:
    """True where each element lies between the cut result and the rounded one."""
    if found.shape != exact.shape or not bool(exact.isfinite().all()):
        return False
    size = exact.abs()
    lost = _LOST * (size.amax(-1, keepdim=True) if size.dim() and size.numel() else size)
    least, most = _cut((size - lost).clamp_min(0.0)), (size + lost).to(torch.bfloat16).double()
    mine = found.double() * exact.sign()
    legal = (mine >= least) & (mine <= most)
    legal |= (size <= lost) & (found.double().abs() <= most)  # either sign
    return bool(legal.all())


def _cut(size: Tensor) -> Tensor:
    """The largest bfloat16 that is not above a number, which is not negative."""
    bits = size.to(torch.bfloat16).view(torch.int16)
    above = bits.view(torch.bfloat16).double() > size
    return (bits - above.to(torch.int16)).view(torch.bfloat16).double()
