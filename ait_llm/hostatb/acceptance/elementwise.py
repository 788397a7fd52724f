"""Activation, Elewise, Softmax, Reduce and their like."""

from __future__ import annotations

from ait_llm.hostatb.acceptance.base import Acceptance, Params, accept, require_param
from ait_llm.hostatb.params.enums import ActivationType

_ACTIVATIONS = {
    ActivationType.ACTIVATION_RELU: "RELU",
    ActivationType.ACTIVATION_LOG: "LOG",
    ActivationType.ACTIVATION_GELU: "GELU",
    ActivationType.ACTIVATION_SWIGLU_FORWARD: "SWIGLUFORWARD",
    ActivationType.ACTIVATION_FAST_GELU: "FASTGELU",
    ActivationType.ACTIVATION_SIGMOID: "SIGMOID",
    ActivationType.ACTIVATION_SWISH: "SWISH",
    ActivationType.ACTIVATION_SWIGLU_BACKWARD: "SWIGLUBACKWARD",
    ActivationType.ACTIVATION_FASTER_GELU_FORWARD: "FasterGeluForward",
}


def _activation_table(params: Params) -> str:
    return "ActivationOperation" + _ACTIVATIONS[params["activationType"]]


def _activation(params: Params) -> None:
    kind, dim = params["activationType"], params["dim"]
    require_param(kind in _ACTIVATIONS, "activationType", int(kind), "1 to 9")
    require_param(dim == -1, "dim", dim, "-1")


accept(
    Acceptance(
        "ActivationOperation",
        table=_activation_table,
        create=_activation,
    )
)
