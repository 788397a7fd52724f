"""Recorded programs written for ``torch_atb``, run with ``import ait_llm.hostatb as torch_atb``.

Parameters, tensor names, kernels and tiling sizes come from the package here; only the values that
kernels write are those of the recording, and new outputs are zeroed as the recorded programs' were.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import operators as recorded
import torch
from jobs import run_jobs
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb import operation as operation_module
from ait_llm.hostatb.context import current_context
from ait_llm.hostatb.leaf import OperatorLeaf
from ait_llm.hostatb.native import NativeTensor
from ait_llm.hostatb.tensors import torch_dtype, torch_view

Operation = torch_atb.Operation
Elewise = torch_atb.ElewiseParam.ElewiseType
Activation = torch_atb.ActivationType


def add() -> Operation:
    return Operation(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD))


def muls() -> Operation:
    param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_MULS)
    param.muls_param.var_attr = 0.5
    return Operation(param)


def cast() -> Operation:
    kind = Elewise.ELEWISE_CAST
    return Operation(
        torch_atb.ElewiseParam(elewise_type=kind, out_tensor_type=torch_atb.AclDataType.ACL_FLOAT)
    )


def linear(bias: bool = False) -> Operation:
    return Operation(torch_atb.LinearParam(has_bias=bias))


def rms_norm() -> Operation:
    kind = torch_atb.RmsNormParam.RmsNormType.RMS_NORM_NORM
    return Operation(torch_atb.RmsNormParam(layer_type=kind))


def activation(kind: Activation) -> Operation:
    return Operation(torch_atb.ActivationParam(activation_type=kind))


def demo_layer(name: str) -> Operation:
    return (
        torch_atb.GraphBuilder(name)
        .set_input_output(["x", "gamma", "weight"], ["out"])
        .add_operation(rms_norm(), ["x", "gamma"], ["normed"])
        .add_operation(linear(), ["normed", "weight"], ["product"])
        .add_operation(add(), ["product", "x"], ["out"])
        .build()
    )


def linear_then(name: str, second: Operation) -> Operation:
    return (
        torch_atb.GraphBuilder(name)
        .set_input_output(["x", "weight"], ["out"])
        .add_operation(linear(), ["x", "weight"], ["product"])
        .add_operation(second, ["product"], ["out"])
        .build()
    )


def decoder_layer() -> Operation:
    mlp = linear_then("Mlp", activation(Activation.ACTIVATION_SWISH))
    return (
        torch_atb.GraphBuilder("Decoder_layer")
        .set_input_output(["x", "gamma", "attention_weight", "mlp_weight"], ["out"])
        .add_operation(rms_norm(), ["x", "gamma"], ["normed"])
        .add_operation(
            linear_then("Attention", muls()), ["normed", "attention_weight"], ["attention"]
        )
        .add_operation(add(), ["x", "attention"], ["residual"])
        .add_operation(mlp, ["residual", "mlp_weight"], ["mlp"])
        .add_operation(add(), ["residual", "mlp"], ["out"])
        .build()
    )


def values(*shape: int, start: int) -> Tensor:
    desc = TensorDesc(DType.FLOAT16, shape)
    return torch.from_numpy(recorded.pattern(desc, start).reshape(shape))


def inputs(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [values(*shape, start=index + 1) for index, shape in enumerate(shapes)]


X, GAMMA, WEIGHT = (4, 32), (32,), (32, 32)


def single() -> None:
    add().forward(inputs(X, X))


def graph3(name: str = "Demo_layer") -> None:
    demo_layer(name).forward(inputs(X, GAMMA, WEIGHT))


def nested(rounds: int) -> None:
    layer = decoder_layer()
    for _ in range(rounds):
        layer.forward(inputs(X, GAMMA, WEIGHT, WEIGHT))


def two_same() -> None:
    adds = [add(), add()]
    for _ in range(2):
        for operation in adds:
            operation.forward(inputs(X, X))


def model() -> None:
    embedding, last = Operation(torch_atb.GatherParam(axis=0)), linear()
    layers = [decoder_layer(), decoder_layer()]
    table, head = values(64, 32, start=5), values(64, 32, start=6)
    weights = inputs(X, GAMMA, WEIGHT, WEIGHT)[1:]
    for tokens in ([1, 2, 3, 0], [1]):
        (hidden,) = embedding.forward([table, torch.from_numpy(np.array(tokens, np.int64))])
        for layer in layers:
            (hidden,) = layer.forward([hidden, *weights])
        last.forward([hidden, head])


def multi_kernel() -> None:
    Operation(torch_atb.SoftmaxParam(axes=[-1])).forward(inputs(X))
    linear(bias=True).forward(inputs(X, WEIGHT, (1, 32)))
    Operation(torch_atb.SplitParam(split_dim=1, split_num=2)).forward(inputs(X))
    Operation(torch_atb.ConcatParam(concat_dim=0)).forward(inputs(X, X))
    Operation(torch_atb.TransposeParam(perm=[1, 0])).forward(inputs(X))
    activation(Activation.ACTIVATION_SWIGLU_FORWARD).forward(inputs((4, 256)))
    cast().forward(inputs(X))


PROGRAMS: dict[str, Callable[[], None]] = {
    "single": single,
    "graph3": graph3,
    "noname": lambda: graph3(""),
    "nested1": lambda: nested(1),
    "nested3": lambda: nested(3),
    "twosame": two_same,
    "model": model,
    "multikernel": multi_kernel,
}


def _write_pattern(
    leaf: OperatorLeaf,
    kernel: int,
    ins: Sequence[NativeTensor],
    outs: Sequence[NativeTensor],
) -> None:
    name = leaf._kernels[kernel][0].name
    recorded.DEVICE.mark(name)
    for index, output in enumerate(outs):
        view = torch_view(output)
        assert view is not None
        data = recorded.pattern(output.desc, recorded.PATTERN_OF_KERNEL[name] + index)
        view.copy_(torch.from_numpy(data).reshape(view.shape))


def run(job: dict[str, Any]) -> None:
    """Run a recorded program through the public interface."""
    recorded.DEVICE.record_launches()
    OperatorLeaf.run = _write_pattern  # type: ignore[method-assign]  # the recorded device
    operation_module.empty_tensor = lambda desc: torch.zeros(  # type: ignore[attr-defined]
        desc.shape, dtype=torch_dtype(desc.dtype)
    )
    PROGRAMS[job["program"]]()
    current_context().close()


if __name__ == "__main__":
    sys.exit(run_jobs(dict.fromkeys(PROGRAMS, run)))
