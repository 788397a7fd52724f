"""The two runs of a call: golden on the CPU in more bits, and the device under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ait_llm.opcheck.api.backward import gradients_of_call
from ait_llm.opcheck.api.functions import is_in_place
from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Their result is given a type by their arguments; with more bits it would be another function.
_NOT_RAISED = frozenset({"type_as"})
# What the CPU does not have for a type of integers.
_CPU_TYPES = {"histc": ("int64", "float32"), "cross_entropy": ("int32", "int64")}
REDUCED = frozenset({"conv1d", "conv2d"})
"""What an NPU multiplies with fewer bits; see :func:`shortened`."""


@dataclass(frozen=True, slots=True)
class Side:
    """Where and in which precision calls run.

    Attributes:
        device: ``cpu``, ``cuda:0``, ``npu:0``.
        raised: golden's type by that of an input; types that it does not name stay.
        reduced: inputs of convolutions get the shorter significands that the NPU multiplies.
    """

    device: torch.device
    raised: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    reduced: bool = False


def golden_side(*, all_float64: bool = False, for_npu: bool = False) -> Side:
    """The CPU with floats of 16 bits or less in float32, and those of 32 bits in float64.

    Args:
        all_float64: float64 for all of them.
        for_npu: convolutions of float32 as the NPU computes them by default.
    """
    import torch

    wide = torch.float64 if all_float64 else torch.float32
    halves = [torch.float16, torch.bfloat16]
    halves += [
        found
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
        if (found := getattr(torch, name, None)) is not None
    ]
    raised = dict.fromkeys(halves, wide)
    raised[torch.float32] = torch.float64
    raised[torch.complex64] = torch.complex128
    return Side(torch.device("cpu"), raised, reduced=for_npu)


@dataclass(slots=True)
class Run:
    """What one side computed.

    Attributes:
        output: as the function returned it; for one that writes to its argument, that argument.
        gradients: of the inputs that require one, by their order; empty without backward.
        problem: why there are none although they were asked for.
    """

    output: Any
    gradients: list[Tensor | None] = field(default_factory=list)
    problem: str = ""


def run_call(
    function: Callable[..., Any],
    api: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    side: Side,
    gradients: Sequence[Tensor | None] | None = None,
) -> Run:
    """Run a call on one side; the tensors that were passed in are not changed.

    Args:
        function: what to call.
        api: its name without prefix.
        args, kwargs: with tensors on the CPU in their recorded types. Those with
            ``requires_grad`` get a gradient if ``gradients`` are given.
        side: where.
        gradients: of the outputs; None for a call without backward.

    Raises:
        Exception: whatever the function raises.
    """
    import torch

    placed = _Placed(api, side, (*args, *kwargs.values()), is_backward=gradients is not None)
    on_side = [placed.value(arg) for arg in args]
    named = {key: placed.value(value) for key, value in kwargs.items()}
    with torch.set_grad_enabled(gradients is not None):
        output = function(*on_side, **named)
    if api == "__setitem__" or (output is None and is_in_place(api) and on_side):
        output = on_side[0]
    if gradients is None:
        return Run(output)
    try:
        return Run(output, gradients_of_call(api, output, placed.leaves, gradients))
    except UncheckableError as error:
        return Run(output, problem=error.reason)
    except Exception as error:  # noqa: BLE001  # kernels raise what they like; it goes to the table
        return Run(output, problem=in_one_line(error))


def in_one_line(error: BaseException) -> str:
    """What an exception says, short enough for a cell of a table."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text[:300]}"


class _Placed:
    """Arguments as one side gets them."""

    def __init__(self, api: str, side: Side, given: Sequence[Any], *, is_backward: bool) -> None:
        self._side = side
        self._raised = {} if api in _NOT_RAISED else _shared(side.raised, given)
        self._cpu_type = _CPU_TYPES.get(api) if side.raised else None
        self._reduced = side.reduced and api in REDUCED
        self._is_backward = is_backward
        self.leaves: list[Tensor] = []

    def value(self, value: Any) -> Any:
        """One argument, with what lies in its containers."""
        import torch

        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return self._side.device
        if isinstance(value, torch.dtype):
            return self._raised.get(value, value)
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(each) for each in value)
        if isinstance(value, dict):
            return {key: self.value(each) for key, each in value.items()}
        return value

    def _tensor(self, tensor: Tensor) -> Tensor:
        import torch

        dtype = self._raised.get(tensor.dtype, tensor.dtype)
        if self._reduced and tensor.dtype == torch.float32:
            moved, dtype = shortened(tensor.detach()), torch.float32
        else:
            moved = tensor.detach()
        if self._cpu_type is not None and tensor.dtype == getattr(torch, self._cpu_type[0]):
            dtype = getattr(torch, self._cpu_type[1])
        moved = moved.to(device=self._side.device, dtype=dtype, copy=True)
        if not (self._is_backward and tensor.requires_grad):
            return moved
        leaf = moved.requires_grad_()
        self.leaves.append(leaf)
        return leaf.clone()  # what a function may write to is no leaf


def _shared(
    raised: Mapping[torch.dtype, torch.dtype], given: Sequence[Any]
) -> Mapping[torch.dtype, torch.dtype]:
    """One wider type for floats of several types, as functions that take no mixture need it."""
    import torch

    wide = {raised.get(dtype, dtype) for dtype in _types(given) if dtype.is_floating_point}
    if len(wide) < 2 or not raised:
        return raised
    return {
        dtype: torch.float64 if dtype.is_floating_point else higher
        for dtype, higher in raised.items()
    }


def _types(values: Iterable[Any]) -> Iterator[torch.dtype]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield from _types(value)
        elif isinstance(value, dict):
            yield from _types(value.values())


def shortened(values: Tensor) -> Tensor:
    """float32 rounded to the 12 significant bits with which the NPU multiplies them (HF32)."""
    import torch

    bits = values.contiguous().view(torch.int32)
    return (((bits >> 11) + 1) >> 1 << 12).view(torch.float32)
