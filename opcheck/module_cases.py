"""From one recorded call of a module to its golden operator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden.modules import Compute, Given

_NUMBERS = re.compile(r"\d+")
_INPUT = "input_"


def module_case(operation: Operation) -> Case | NoCase:
    """How a module of torch is computed again, if its class and attributes leave no choice."""
    from ait_llm.opcheck.golden.functions import golden_function
    from ait_llm.opcheck.golden.modules import legal_choice, module_function, why_lost

    inputs = [tensor for tensor in operation.inputs if tensor.stem.startswith(_INPUT)]
    if operation.is_graph or len(inputs) != len(operation.inputs):
        return NoCase()
    if not operation.outputs:
        return NoCase("return no tensor")
    weights = {name.rpartition(".")[2]: one for name, one in operation.parameters.items()}
    given = _given(operation, inputs, weights)
    compute = module_function(given)
    if compute is None:
        return NoCase(lost=why_lost(given))
    names = [*given.inputs, *weights]
    golden = golden_function(
        operation.type,
        partial(_called, compute, names),
        accepts=legal_choice(given),
    )
    tensors = [*inputs, *weights.values()]
    outputs = sorted(operation.outputs, key=lambda tensor: _place(tensor.stem))
    return Case(
        golden,
        dict(operation.definition),
        lambda: [tensor.torch() for tensor in tensors],
        lambda: dict(enumerate(outputs)),
        not_captured(operation),
    )


def not_captured(operation: Operation) -> str:
    """Why the inputs of an operation are not all there; empty where they are."""
    for value in operation.not_captured:
        name = str(value.get("name", ""))
        if name.startswith("input"):
            return f"{name} was not captured: {value.get('reason', 'the ledger gives no reason')}"
    return ""


def _given(operation: Operation, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Given:
    from ait_llm.opcheck.golden.modules import Given

    return Given(
        operation.type,
        operation.definition,
        tuple(tensor.stem.removeprefix(_INPUT) for tensor in inputs),
        {name: tensor.shape for name, tensor in weights.items()},
        tuple(tensor.shape for tensor in operation.outputs),
    )


def _called(compute: Compute, names: Sequence[str], tensors: Sequence[torch.Tensor | None]) -> Any:
    given = zip(names, tensors, strict=True)
    return compute({name: tensor for name, tensor in given if tensor is not None})


def _place(stem: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(stem)))
