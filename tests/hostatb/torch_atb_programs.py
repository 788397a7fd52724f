"""Programs of the recorded traces, written for torch_atb: ``python torch_atb_programs.py NAME``."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb

Elewise = torch_atb.ElewiseParam.ElewiseType
Activation = torch_atb.ActivationType


def half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float16)


X, GAMMA, WEIGHT = half(4, 32), half(32), half(32, 32)


def add() -> torch_atb.Operation:
    return torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD))


def muls() -> torch_atb.Operation:
    half_of = torch_atb.ElewiseParam.MulsParam(var_attr=0.5)
    return torch_atb.Operation(
        torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_MULS, muls_param=half_of)
    )


def swish() -> torch_atb.Operation:
    return torch_atb.Operation(
        torch_atb.ActivationParam(activation_type=Activation.ACTIVATION_SWISH)
    )


def linear() -> torch_atb.Operation:
    return torch_atb.Operation(torch_atb.LinearParam(has_bias=False))


def rms_norm() -> torch_atb.Operation:
    return torch_atb.Operation(
        torch_atb.RmsNormParam(layer_type=torch_atb.RmsNormParam.RmsNormType.RMS_NORM_NORM)
    )


def demo_layer() -> torch_atb.Operation:
    return (
        torch_atb.GraphBuilder("Demo_layer")
        .set_input_output(["x", "gamma", "weight"], ["out"])
        .add_operation(rms_norm(), ["x", "gamma"], ["normed"])
        .add_operation(linear(), ["normed", "weight"], ["hidden"])
        .add_operation(add(), ["hidden", "x"], ["out"])
        .build()
    )


def linear_then(name: str, second: torch_atb.Operation) -> torch_atb.Operation:
    return (
        torch_atb.GraphBuilder(name)
        .set_input_output(["x", "weight"], ["out"])
        .add_operation(linear(), ["x", "weight"], ["hidden"])
        .add_operation(second, ["hidden"], ["out"])
        .build()
    )


def decoder_layer() -> torch_atb.Operation:
    return (
        torch_atb.GraphBuilder("Decoder_layer")
        .set_input_output(["x", "gamma", "attention_weight", "mlp_weight"], ["out"])
        .add_operation(rms_norm(), ["x", "gamma"], ["normed"])
        .add_operation(
            linear_then("Attention", muls()), ["normed", "attention_weight"], ["attention"]
        )
        .add_operation(add(), ["x", "attention"], ["residual"])
        .add_operation(linear_then("Mlp", swish()), ["residual", "mlp_weight"], ["mlp"])
        .add_operation(add(), ["residual", "mlp"], ["out"])
        .build()
    )


def graph3() -> None:
    demo_layer().forward([X, GAMMA, WEIGHT])


def nested3() -> None:
    layer = decoder_layer()
    for _ in range(3):
        layer.forward([X, GAMMA, WEIGHT, WEIGHT])


def model() -> None:
    embedding = torch_atb.Operation(torch_atb.GatherParam())
    layers = [decoder_layer(), decoder_layer()]
    last = linear()
    for tokens in ([1, 2, 3, 0], [1]):
        (hidden,) = embedding.forward([half(64, 32), torch.tensor(tokens)])
        for layer in layers:
            (hidden,) = layer.forward([hidden, GAMMA, WEIGHT, WEIGHT])
        last.forward([hidden, half(64, 32)])


def multikernel() -> None:
    swiglu = torch_atb.ActivationParam(activation_type=Activation.ACTIVATION_SWIGLU_FORWARD)
    cast = torch_atb.ElewiseParam(
        elewise_type=Elewise.ELEWISE_CAST, out_tensor_type=torch_atb.ACL_FLOAT
    )
    for param, inputs in (
        (torch_atb.SoftmaxParam(axes=[-1]), [X]),
        (torch_atb.LinearParam(), [X, WEIGHT, half(1, 32)]),
        (torch_atb.SplitParam(split_dim=1), [X]),
        (torch_atb.ConcatParam(), [X, X]),
        (torch_atb.TransposeParam(perm=[1, 0]), [X]),
        (swiglu, [half(4, 256)]),
        (cast, [X]),
    ):
        torch_atb.Operation(param).forward(inputs)


PROGRAMS = {"graph3": graph3, "nested3": nested3, "model": model, "multikernel": multikernel}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
