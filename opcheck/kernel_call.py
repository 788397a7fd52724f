"""One call of a kernel on copies of its inputs: what it made, its name, its default arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ait_llm.judge.outputs import Produced

if TYPE_CHECKING:
    from torch import Tensor

Kernel = Callable[..., Any]  # tensors in; a tensor, several, or None out
_LEAD = 64  # elements; a copy lies as far from a boundary of so many as what it was copied from


def name_of(op: Kernel) -> str:
    """``mylib::rms_norm`` of a torch operator, else the function's name."""
    for attribute in ("_qualified_op_name", "_name", "__name__"):
        name = getattr(op, attribute, None)
        if isinstance(name, str):
            return name.partition(".")[0] if "::" in name else name
    return type(op).__name__


def defaults_of(op: Kernel, given: int) -> dict[str, Any]:
    """The arguments behind the first ``given`` that the kernel has values of its own for."""
    schema = _schema_of(op)
    if schema is not None:
        return {
            one.name: one.default_value
            for one in schema.arguments[given:]
            if one.has_default_value() and "Tensor" not in str(one.type)
        }
    try:
        parameters = list(inspect.signature(op).parameters.values())
    except (TypeError, ValueError):  # what is written in C does not tell
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        one.name: one.default
        for place, one in enumerate(parameters)
        if one.kind in named
        and one.default is not one.empty
        and (place >= given or one.kind is one.KEYWORD_ONLY)
    }


def _schema_of(op: Kernel) -> Any:  # of torch, which is untyped here
    if hasattr(op, "_schema"):
        return op._schema
    overloads = getattr(op, "overloads", None)
    if overloads is None or not hasattr(op, "_qualified_op_name"):
        return None
    names = overloads()
    return getattr(op, "default" if "default" in names else names[0])._schema


def accepted(function: Kernel, given: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some values that a function takes by name behind its first ``given`` arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(values)
    names = {
        one.name
        for place, one in enumerate(parameters)
        if one.kind is one.KEYWORD_ONLY
        or (one.kind is one.POSITIONAL_OR_KEYWORD and place >= given)
    }
    return {name: value for name, value in values.items() if name in names}


def as_laid_out(tensor: Tensor) -> Tensor:
    """A copy with the same strides, as far from a boundary of memory."""
    import torch

    tensor = tensor.detach()
    if not tensor.numel() or tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.clone()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in pairs)
    lead = tensor.storage_offset() % _LEAD
    memory = torch.empty(lead + span, dtype=tensor.dtype, device=tensor.device)
    memory[lead:].copy_(tensor.as_strided((span,), (1,)))
    return memory.as_strided(tensor.shape, tensor.stride(), lead)


def listed(made: Any) -> list[Tensor | None]:
    """What a call returned as a list."""
    import torch

    if made is None:
        return []
    return [made] if isinstance(made, torch.Tensor) else list(made)


def call_kernel(
    kernel: Kernel, inputs: Sequence[Tensor | None], params: Mapping[str, Any]
) -> tuple[Produced, dict[int, int]]:
    """Call a kernel on copies of its inputs.

    Returns:
        What it made, and which of its results are the memory of an input: number of the result to
        that of the input.
    """
    import torch

    own = [None if tensor is None else as_laid_out(tensor) for tensor in inputs]
    with torch.no_grad():
        made = listed(kernel(*own, **params))
    produced = Produced(
        {i: t.detach().cpu() for i, t in enumerate(made) if t is not None},
        {i: t.cpu() for i, t in enumerate(own) if t is not None},
        "the kernel did not return it",
        whole=True,
    )
    return produced, aliases(made, own)


def aliases(made: Sequence[Tensor | None], own: Sequence[Tensor | None]) -> dict[int, int]:
    """Which results are all of the memory of an input."""
    found = {}
    for result, one in enumerate(made):
        for place, tensor in enumerate(own):
            if one is None or tensor is None:
                continue
            is_all = one.numel() == tensor.numel() > 0 and one.data_ptr() == tensor.data_ptr()
            if one is tensor or is_all:
                found[result] = place
    return found


def without(produced: Produced, dropped: Sequence[int]) -> Produced:
    """The same without some outputs, the others numbered anew."""
    kept = [one for place, one in sorted(produced.outputs.items()) if place not in dropped]
    return replace(produced, outputs=dict(enumerate(kept)))


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one type hold the same bits."""
    import torch

    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(
        left.contiguous().reshape(-1).view(torch.uint8),
        right.contiguous().reshape(-1).view(torch.uint8),
    )
