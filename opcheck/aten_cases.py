"""From one recorded aten operator to the inputs, arguments and outputs of its golden operator.

A capture names tensors by their place among the arguments, and does not save a parameter of the
model again for each operator that reads it: it says which part of which saved parameter it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import FormatError
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.module_cases import not_captured

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import GoldenOp

_TYPE = re.compile(r"[A-Za-z_]\w*\.\w+\.\w+")
_MOST_GAPS = 64  # times the elements of a parameter that its memory may span
_NUMBERS = re.compile(r"\d+")


def is_aten(type_name: str) -> bool:
    """True for the name of an operator of torch: ``aten.mm.default``."""
    return _TYPE.fullmatch(type_name) is not None


def aten_case(operation: Operation, registered: GoldenOp | None) -> Case | NoCase:
    """How an operator of torch is computed again.

    Args:
        operation: in whose ledger tensors are named by their place among the arguments.
        registered: the golden operator that was registered for it, which other libraries need.
    """
    from ait_llm.opcheck.golden.aten import aten_operator, why_unchecked

    if not operation.outputs:
        if any(stem.startswith("output") for stem in operation.weights):
            return NoCase("look at a parameter of the model in another way")
        return NoCase("return no tensor")
    if reason := why_unchecked(operation.type):
        return NoCase(reason)
    golden = registered or aten_operator(operation.type)
    if golden is None:
        return NoCase(lost=f"there is no golden {operation.type}")
    return Case(
        golden,
        aten_params(operation),
        partial(aten_inputs, operation),
        partial(aten_outputs, operation),
        not_captured(operation),
    )


def aten_inputs(operation: Operation) -> list[torch.Tensor | None]:
    """The tensors that an operator was given, parameters of the model last.

    Raises:
        FormatError: values were not saved, or a file is damaged.
        UnverifiableError: a parameter was not saved.
    """
    found: list[torch.Tensor | None] = [tensor.torch() for tensor in operation.inputs]
    return found + [_weight(operation, stem) for stem in _weights(operation, "input")]


def aten_params(operation: Operation) -> dict[str, Any]:
    """The plain arguments of an operator, and the places of its tensors."""
    from ait_llm.opcheck.golden.aten import TENSORS

    stems = [tensor.stem for tensor in operation.inputs]
    return {**operation.params, TENSORS: [*stems, *_weights(operation, "input")]}


def aten_outputs(operation: Operation) -> dict[int, Tensor]:
    """The recorded outputs by their place among all outputs that are tensors.

    What fused attention and norms return beside their result is for the backward pass, and no two
    kernels keep the same.
    """
    from ait_llm.opcheck.golden.aten import has_statistics

    own = {tensor.stem: tensor for tensor in operation.outputs}
    if has_statistics(operation.type):
        first = [tensor for stem, tensor in own.items() if _place(stem) in ((), (0,))]
        return dict(enumerate(first))
    stems = sorted([*own, *_weights(operation, "output")], key=_place)
    return {index: own[stem] for index, stem in enumerate(stems) if stem in own}


def _weights(operation: Operation, word: str) -> list[str]:
    return [stem for stem in operation.weights if stem.startswith(word)]


def _place(stem: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(stem)))


def _weight(operation: Operation, stem: str) -> torch.Tensor:
    """The part of a saved parameter that an operator was given."""
    from ait_llm.opcheck.golden import UnverifiableError

    record = operation.weights[stem]
    place: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
    name = place.get("name")
    saved = operation.parameters.get(name) if isinstance(name, str) else None
    if saved is None:
        raise UnverifiableError(f"the parameter {name} was not saved; dump with --weights")
    shape, stride, offset = (place.get(word) for word in ("shape", "stride", "offset"))
    if not _are_sizes(shape) or not _are_sizes(stride) or not _are_sizes([offset]):
        raise UnverifiableError(f"the ledger does not say which part of {name} it was given")
    assert shape is not None
    assert stride is not None
    assert offset is not None
    values = _as_it_lay(saved)
    offset -= 0 if saved.identity is None else saved.identity.offset
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=False))
    if len(shape) != len(stride) or offset < 0 or offset + last >= max(values.numel(), 1):
        raise UnverifiableError(f"it was given memory around {name} that was not saved")
    return values.as_strided(shape, stride, offset)


def _as_it_lay(saved: Tensor) -> torch.Tensor:
    """The elements of a parameter in the order that they had in memory, gaps included."""
    import torch

    values = saved.torch()
    if saved.identity is None:
        return values.contiguous()
    strides = saved.identity.strides
    if strides == values.contiguous().stride():
        return values.contiguous()
    size = 1 + sum((n - 1) * step for n, step in zip(values.shape, strides, strict=False))
    if len(strides) != values.dim() or size > _MOST_GAPS * max(values.numel(), 1):
        raise FormatError(saved.path, "its layout in the ledger is not that of its shape")
    memory = torch.zeros(size, dtype=values.dtype)
    memory.as_strided(values.shape, strides).copy_(values)
    return memory


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
