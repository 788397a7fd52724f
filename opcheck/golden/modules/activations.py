"""Functions of each element, and of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

Element = Callable[[Tensor], Tensor]


def _tanh_gelu(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def _fast_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _written_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _approximate_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _squared_relu(x: Tensor) -> Tensor:
    return torch.square(functional.relu(x))


_ELEMENTS: Mapping[str, Element] = {
    "SiLU": functional.silu,
    "SiLUActivation": functional.silu,
    "ReLU": functional.relu,
    "ReLU6": functional.relu6,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Mish": functional.mish,
    "MishActivation": functional.mish,
    "Hardswish": functional.hardswish,
    "Hardsigmoid": functional.hardsigmoid,
    "Softsign": functional.softsign,
    "LogSigmoid": functional.logsigmoid,
    "NewGELU": _tanh_gelu,
    "NewGELUActivation": _tanh_gelu,
    "FastGELU": _fast_gelu,
    "FastGELUActivation": _fast_gelu,
    "QuickGELUActivation": _quick_gelu,
    "QuickGELU": _quick_gelu,
    "PytorchGELUTanh": _approximate_gelu,
    "ReLUSquaredActivation": _squared_relu,
}
_ALIKE: Mapping[str, Element] = {
    "GELUActivation": functional.gelu,
    "GELUTanh": _approximate_gelu,
}
# What they call is recorded by its name.
_BY_FUNCTION: Mapping[tuple[str, str], Element] = {
    ("GELUActivation", "gelu"): functional.gelu,
    ("GELUActivation", "_gelu_python"): _written_gelu,
    ("GELUTanh", "gelu"): _approximate_gelu,
    ("GELUTanh", "_gelu_tanh_python"): _tanh_gelu,
}


def element(class_name: str) -> Element | None:
    """The function of each element that is all of a class; None where its attributes matter.

    Those of ``transformers`` that write a function out in another way compute the same.
    """
    return _ELEMENTS.get(class_name) or _ALIKE.get(class_name)


@module(*_ELEMENTS)
def _of_elements(given: Given) -> Compute | None:
    function = _ELEMENTS[given.type]
    return (lambda t: function(only(t, given))) if given.takes(()) else None


@module("GELUActivation", "GELUTanh")
def _by_function(given: Given) -> Compute | None:
    function = _BY_FUNCTION.get((given.type, str(given.definition.get("act"))))
    if function is None or not given.takes(()):
        return None
    return lambda t: function(only(t, given))


@module("GELU")
def _gelu(given: Given) -> Compute | None:
    how = given.definition.get("approximate")
    if how not in ("none", "tanh") or not given.takes(()):
        return None
    return lambda t: functional.gelu(only(t, given), approximate=how)


@module("Softmax", "LogSoftmax")
def _softmax(given: Given) -> Compute | None:
    dim = given.definition.get("dim")
    if type(dim) is not int or not given.takes(()):
        return None
    function = functional.softmax if given.type == "Softmax" else functional.log_softmax
    return lambda t: function(only(t, given), dim)


@module("LeakyReLU")
def _leaky(given: Given) -> Compute | None:
    slope = given.number("negative_slope")
    if slope is None or not given.takes(()):
        return None
    return lambda t: functional.leaky_relu(only(t, given), slope)


@module("ELU")
def _elu(given: Given) -> Compute | None:
    alpha = given.number("alpha")
    return (lambda t: functional.elu(only(t, given), alpha)) if alpha and given.takes(()) else None


@module("Softplus")
def _softplus(given: Given) -> Compute | None:
    beta, threshold = given.number("beta"), given.number("threshold")
    if beta is None or threshold is None or not given.takes(()):
        return None
    return lambda t: functional.softplus(only(t, given), beta, threshold)


@module("GLU")
def _gated(given: Given) -> Compute | None:
    dim = given.definition.get("dim")
    if type(dim) is not int or not given.takes(()):
        return None
    return lambda t: functional.glu(only(t, given), dim)


@module("SiluAndMul", "GeluAndMul")
def _gate_and_mul(given: Given) -> Compute | None:
    """Of vLLM: the first half of the columns decides how much of the second passes."""
    how = given.definition.get("approximate")
    if not given.takes(()) or (given.type == "GeluAndMul" and how not in ("none", "tanh")):
        return None

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        gate, x = only(tensors, given).chunk(2, -1)
        if given.type == "SiluAndMul":
            return functional.silu(gate) * x
        return functional.gelu(gate, approximate=str(how)) * x

    return compute
