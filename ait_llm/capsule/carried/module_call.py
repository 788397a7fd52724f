"""One recorded call of a module, computed in more bits than it was recorded in."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ait_llm.opcheck.golden.aten.operators import tensors_of
from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.functions import golden_function
from ait_llm.opcheck.golden.modules.table import Compute, Given

if TYPE_CHECKING:
    from ait_llm.opcheck.golden.base import Arithmetic, Params, Result

DEFINITION = "definition"
"""Parameter that names the function which defines the class: ``package.module:function``."""


def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """What the definition of the module's class makes of widened inputs and parameters.

    Args:
        inputs: the tensors that it was called with, then its parameters.
        params: ``definition``; ``class``; ``attributes``, the numbers and flags of the module;
            ``inputs`` and ``weights``, the names of the tensors; ``outputs``, the shapes
            of its results.
        arithmetic: in which it is computed.
    """
    golden = golden_function(str(params["class"]), partial(_called, params))
    return golden.compute(inputs, {}, arithmetic)


def rerun(inputs: Sequence[Tensor | None], params: Params, device: str) -> list[Tensor]:
    """What the same definition makes of them on a device, in their own types."""
    there = [None if each is None else each.to(device, copy=True) for each in inputs]
    return tensors_of(_called(params, there))


def _called(params: Params, inputs: Sequence[Tensor | None]) -> Any:
    names = [*params["inputs"], *params["weights"]]
    tensors: Mapping[str, Tensor] = {
        name: tensor for name, tensor in zip(names, inputs, strict=True) if tensor is not None
    }
    weights = {name: tuple(tensors[name].shape) for name in params["weights"]}
    outputs = tuple(tuple(shape) for shape in params["outputs"])
    given = Given(params["class"], params["attributes"], tuple(params["inputs"]), weights, outputs)
    return _definition(str(params[DEFINITION]), given)(tensors)


def _definition(name: str, given: Given) -> Compute:
    module, _, function = name.partition(":")
    found: Compute | None = getattr(importlib.import_module(module), function)(given)
    if found is None:
        raise UnverifiableError(f"what is known of {given.type} does not say what it computes")
    return found
