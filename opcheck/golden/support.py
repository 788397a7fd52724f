"""Access to the inputs and parameters of an operator, and the dtypes of torch.

Every refusal here is an OperationError that names the operator, what it got and what it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeVar

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden.base import Params, Refusal, RefusedError

EnumT = TypeVar("EnumT", bound=IntEnum)

_TO_TORCH: dict[DType, torch.dtype] = {
    member: getattr(torch, member.torch_name)
    for member in DType
    if member.torch_name is not None and hasattr(torch, member.torch_name)
}
_FROM_TORCH = {torch_type: member for member, torch_type in _TO_TORCH.items()}

# torch indexes and copies these by their bits only; the values keep their meaning.
_MOVED_AS = {
    getattr(torch, f"uint{bits}"): getattr(torch, f"int{bits}")
    for bits in (16, 32, 64)
    if hasattr(torch, f"uint{bits}")  # PyTorch has them since 2.3
}
INTEGERS_OF_64_BITS = (torch.int64, *(each for each in _MOVED_AS if each.itemsize == 8))


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype of a logical element type.

    Raises:
        OperationError: torch has no such dtype.
    """
    try:
        return _TO_TORCH[dtype]
    except KeyError:
        raise OperationError(
            f"elements of type {dtype.label} cannot be computed with torch; convert them first"
        ) from None


def desc_of(tensor: Tensor, storage_format: int = 2) -> TensorDesc:
    """Description of a torch tensor; the format is ND unless given."""
    return TensorDesc(_FROM_TORCH[tensor.dtype], tuple(tensor.shape), storage_format)


def movable(tensor: Tensor) -> Tensor:
    """The same bits in a dtype that torch can index (unsigned types and float8 as integers)."""
    if tensor.dtype in _MOVED_AS:
        return tensor.view(_MOVED_AS[tensor.dtype])
    return (
        tensor.view(torch.uint8)
        if tensor.dtype.is_floating_point and tensor.itemsize == 1
        else tensor
    )


def refused(op: str, reason: str, status: Refusal = Refusal.DIM) -> RefusedError:
    """The error for inputs or parameters that an operator does not take.

    Args:
        op: class name of the operator.
        reason: what it got and what it takes, as a clause.
        status: what the acceleration library returns.
    """
    return RefusedError(f"{op}: {reason}", status)


def tensor_at(op: str, inputs: Sequence[Tensor | None], index: int) -> Tensor:
    """Input ``index``, which the operator needs.

    Raises:
        OperationError: it is absent.
    """
    tensor = inputs[index] if index < len(inputs) else None
    if tensor is None:
        raise refused(op, f"input {index} is absent but needed; give all inputs in their order")
    return tensor


def optional_at(inputs: Sequence[Tensor | None], index: int) -> Tensor | None:
    """Input ``index``, or None where it is absent, past the end or an empty placeholder."""
    tensor = inputs[index] if index < len(inputs) else None
    return None if tensor is None or tensor.numel() == 0 else tensor


def int_param(op: str, params: Params, key: str, default: int) -> int:
    """An integer parameter.

    Raises:
        OperationError: the value is not an integer.
    """
    value = params.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(op, f"parameter {key} is {value!r}; give an integer", Refusal.PARAM)
    return value


def float_param(op: str, params: Params, key: str, default: float) -> float:
    """A number as a float.

    Raises:
        OperationError: the value is not a number.
    """
    value = params.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refused(op, f"parameter {key} is {value!r}; give a number", Refusal.PARAM)
    return float(value)


def bool_param(op: str, params: Params, key: str, default: bool) -> bool:
    """A boolean parameter; 0 and 1 are taken too.

    Raises:
        OperationError: the value is neither a boolean nor 0 or 1.
    """
    value = params.get(key, default)
    if value not in (True, False):
        raise refused(op, f"parameter {key} is {value!r}; give true or false", Refusal.PARAM)
    return bool(value)


def ints_param(op: str, params: Params, key: str) -> tuple[int, ...]:
    """A list of integers, empty by default.

    Raises:
        OperationError: the value is not a list of integers.
    """
    value = params.get(key, ())
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(entry, int) and not isinstance(entry, bool) for entry in value
    ):
        raise refused(op, f"parameter {key} is {value!r}; give a list of integers", Refusal.PARAM)
    return tuple(value)


def enum_param(op: str, params: Params, key: str, kind: type[EnumT], default: int) -> EnumT:
    """An enumeration parameter, by its number.

    Raises:
        OperationError: no member has that number; the message lists those there are.
    """
    value = int_param(op, params, key, default)
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.name}" for member in kind)
        raise refused(op, f"parameter {key} is {value}; it takes {known}", Refusal.PARAM) from None


def nested_flag(params: Params, key: str) -> bool:
    """A number of one of the nested objects, whichever has it, is not zero."""
    return any(isinstance(part, dict) and bool(part.get(key)) for part in params.values())


def nested_params(op: str, params: Params, key: str) -> Params:
    """A parameter object inside the parameters, empty by default.

    Raises:
        OperationError: the value is not an object.
    """
    value: Any = params.get(key, {})
    if not isinstance(value, dict):
        raise refused(op, f"parameter {key} is {value!r}; give an object", Refusal.PARAM)
    return value


def dtype_param(op: str, params: Params, key: str) -> DType:
    """A dtype parameter by its ATB code; UNDEFINED (-1) by default.

    Raises:
        OperationError: no dtype has that code.
    """
    code = int_param(op, params, key, DType.UNDEFINED.code)
    try:
        return DType.from_code(code)
    except ValueError:
        raise refused(
            op, f"parameter {key} is {code}, which is no dtype code", Refusal.PARAM
        ) from None
