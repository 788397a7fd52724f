"""What a golden operator is: plain functions of tensors and parameters, in one registry.

A golden operator is one :class:`GoldenOp`. ``compute`` gets the operator's input tensors (CPU
torch tensors in their own dtype, None for an absent optional one), its parameters as the JSON
object that the acceleration library prints, and the :class:`Arithmetic` to use. It never changes
its inputs: what an operator does in place is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ait_llm.core import Registry, TensorDesc

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The precision in which an operator is evaluated.

    GOLDEN computes 16-bit floats in float32 and float32 in float64, as the reference does.
    DEVICE computes every float in float32, as an accelerator accumulates, and rounds once to the
    output dtype.

    Attributes:
        float32_compute: dtype in which float32 inputs are computed.
        half_compute: dtype in which float16 and bfloat16 inputs are computed.
        round_output: round results to the output dtype; False keeps the compute dtype, for
            tolerance standards that need the unrounded value.
        int8_min: lowest int8 that quantisation produces; -127 where the run had
            ``ASDOPS_QUANT_MIN_NEG_127=1`` in its environment.
    """

    float32_compute: torch.dtype = torch.float64
    half_compute: torch.dtype = torch.float32
    round_output: bool = True
    int8_min: int = -128

    def widen(self, tensor: Tensor) -> Tensor:
        """Cast a floating tensor to the dtype it is computed in; integers pass unchanged."""
        if tensor.dtype in (torch.float16, torch.bfloat16):
            return tensor.to(self.half_compute)
        if tensor.dtype == torch.float32:
            return tensor.to(self.float32_compute)
        return tensor

    def round(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Round a result to its output dtype (nearest even), unless results stay wide."""
        return tensor.to(dtype) if self.round_output else tensor


GOLDEN = Arithmetic()
DEVICE = Arithmetic(float32_compute=torch.float32)


@dataclass(frozen=True, slots=True)
class Result:
    """What an operator produced.

    Attributes:
        outputs: the formal outputs, in order.
        updated_inputs: inputs that the operator overwrites, by index, with their new values.
    """

    outputs: tuple[Tensor, ...]
    updated_inputs: Mapping[int, Tensor] = field(default_factory=dict)


Compute = Callable[[Sequence[Tensor | None], Params, Arithmetic], Result]
InferShape = Callable[[Sequence[TensorDesc], Params], tuple[TensorDesc, ...]]


@dataclass(frozen=True, slots=True)
class GoldenOp:
    """A golden operator.

    Attributes:
        name: class name in dumps, such as ``LinearOperation``.
        compute: the definition.
        infer_shape: output descriptions from input descriptions; raises OperationError for
            inputs that the real library refuses.
    """

    name: str
    compute: Compute
    infer_shape: InferShape


golden_ops: Registry[GoldenOp] = Registry("operator")


def golden_op(name: str, *aliases: str, infer_shape: InferShape) -> Callable[[Compute], Compute]:
    """Decorate a compute function to register it as the golden operator ``name``."""

    def add(compute: Compute) -> Compute:
        golden_ops.register(name, *aliases)(GoldenOp(name, compute, infer_shape))
        return compute

    return add
