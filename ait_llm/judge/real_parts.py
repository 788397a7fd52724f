"""Complex numbers as pairs of real ones, so that what is known of rounding holds for them.

An operator on complex numbers is one on twice as many real ones, ``[..., 2]``: each part is rounded
by itself, and what cancels in a product of two numbers cancels between their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result
    from ait_llm.opcheck.golden.base import KernelArithmetic, Params

Run = Callable[[Mapping[str, Any], "Arithmetic"], "Result"]


def is_complex(tensor: Tensor | None) -> bool:
    """True for a tensor of complex numbers."""
    return tensor is not None and tensor.is_complex()


def real_parts(tensor: Tensor) -> Tensor:
    """Complex numbers as ``[..., 2]``; others as they are."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def of_real_parts(golden: GoldenOp, inputs: Sequence[Tensor | None]) -> GoldenOp:
    """The same operator on the real parts of its inputs, with the real parts of its results.

    Args:
        golden: the operator.
        inputs: as it takes them; of complex ones the new operator takes :func:`real_parts`.
    """
    import torch

    places = [is_complex(tensor) for tensor in inputs]

    def joined(parts: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [
            torch.view_as_complex(part.contiguous()) if part is not None and own else part
            for part, own in zip(parts, places, strict=True)
        ]

    def compute(parts: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        return in_real_parts(golden.compute(joined(parts), params, how))

    def recover(
        parts: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
    ) -> Params:
        return golden.recover(joined(parts), outputs, params)

    def kernel(params: Params) -> KernelArithmetic:
        known = golden.kernel(params)
        # the sum of two products is no single step, and no sum of absolute values bounds it
        return replace(known, once=False, products=False, unknown=known.unknown or known.products)

    return replace(
        golden,
        compute=compute,
        recover=recover,
        kernel=kernel,
        accepts=None,
        plain=None,
        steps=None,
        rounds_last=False,
    )


def in_real_parts(result: Result) -> Result:
    """A result with the real parts of what is complex."""
    undefined = {
        index: where.unsqueeze(-1) if is_complex(result.outputs[index]) else where
        for index, where in result.undefined.items()
    }
    return replace(
        result,
        outputs=tuple(map(real_parts, result.outputs)),
        updated_inputs={index: real_parts(one) for index, one in result.updated_inputs.items()},
        undefined=undefined,
    )
