"""Operators of the recorded programs, whose kernels write the pattern of the recording.

In the recording the device was replaced: after each kernel its outputs were filled with a pattern
that depends on the kernel's name and the output's index. Parameter texts, tensor names, kernels and
tiling sizes are those of the recorded calls.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.native import NativeLeaf, NativeTensor, raise_float_status
from ait_llm.hostatb.spec import Kernel, Plan

# First element of each kernel's pattern, found from the checksums of the recorded tensors. Output
# N of a kernel starts N further.
PATTERN_OF_KERNEL = {
    "AddF16Kernel": 12,
    "CastF16F32Kernel": 9,
    "ConcatF16Input2Kernel": 3,
    "Gather16I64Kernel": 13,
    "MulsF16Kernel": 0,
    "PpMatMulF16Kernel": 2,
    "RmsNormKernel": 15,
    "SoftmaxF16Kernel": 16,
    "SplitF16Output2Kernel": 10,
    "SwiGluForwardKernel": 7,
    "SwishF16Kernel": 12,
    "Transpose16Kernel": 4,
}


def pattern(desc: TensorDesc, start: int) -> NDArray[Any]:
    """Multiples of 1/8 in [-1, 1] that repeat after 17 elements."""
    numbers = (np.arange(desc.elements) * 7 + start) % 17 - 8
    assert desc.dtype.numpy_type is not None
    return (numbers / 8).astype(desc.dtype.numpy_type)


@dataclass
class Device:
    """What the replaced device was told to do."""

    force_inf: bool = False
    float_status: bool = False
    mark: Callable[[str], None] = field(default=lambda kernel: None)

    def record_launches(self) -> None:
        """Let the recording probe write down each kernel that runs."""
        write = ctypes.CDLL(None).recording_probe_mark
        self.mark = lambda kernel: write(b"kernel_launch", b"kernel", kernel.encode())


DEVICE = Device()

InferShape = Callable[[Sequence[TensorDesc]], list[TensorDesc]]
Kernels = Callable[[Sequence[TensorDesc], Sequence[TensorDesc]], Plan]


class PatternLeaf:
    """A leaf whose kernels write patterns, or infinities."""

    def __init__(self, infer_shape: InferShape, kernels: Kernels) -> None:
        self.infer_shape = infer_shape
        self._kernels = kernels
        self._plan = Plan(())

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        self._plan = self._kernels(inputs, outputs)
        return self._plan

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        if not self._plan.kernels:
            return
        name = self._plan.kernels[kernel].name
        DEVICE.mark(name)
        for index, output in enumerate(outputs):
            data = pattern(output.desc, PATTERN_OF_KERNEL[name] + index)
            if DEVICE.force_inf:
                data[...] = np.inf
            ctypes.memmove(output.pointer, data.tobytes(), output.size)
        if DEVICE.float_status:
            raise_float_status()


class CopyPlugin:
    """A user operation that copies its input."""

    def infer_shape(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [inputs[0]]

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        return Plan(())

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        ctypes.memmove(outputs[0].pointer, inputs[0].pointer, inputs[0].size)


def _text(**param: Any) -> str:
    return json.dumps(param, separators=(",", ":"), sort_keys=True)


def _first(inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
    return [inputs[0]]


def _one_kernel(
    name: str, mki_op: str, mki_param: str, tiling: int, inputs: int, outputs: int = 1
) -> Kernels:
    kernel = Kernel(
        name,
        mki_op,
        mki_param,
        tuple(range(inputs)),
        tuple(range(inputs, inputs + outputs)),
        tiling,
        "pattern",
    )
    return lambda ins, outs: Plan((kernel,))


def _elewise_kernel(name: str, kind: int, value: float, inputs: int, dtype: int = -1) -> Kernels:
    param = _text(
        elewiseType=kind, inputOffset=0, inputScale=1.0, outTensorType=dtype, varAttr=value
    )
    return _one_kernel(name, "ElewiseOperation", param, 4096, inputs)


def _elewise(
    kernel: str,
    kind: int,
    inputs: int,
    value: float = 0.0,
    dtype: DType | None = None,
    on_plan: Callable[[], None] = lambda: None,
) -> NativeLeaf:
    choose = _elewise_kernel(kernel, kind, value, inputs, -1 if dtype is None else dtype.code)

    def kernels(ins: Sequence[TensorDesc], outs: Sequence[TensorDesc]) -> Plan:
        on_plan()
        return choose(ins, outs)

    code = -1 if dtype is None else dtype.code
    param = _text(
        elewiseType=kind,
        mulsParam={"varAttr": value},
        outTensorType=code,
        quantParam={"asymmetric": False, "inputOffset": 0, "inputScale": 1.0},
    )

    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [TensorDesc(dtype or ins[0].dtype, ins[0].shape)]

    return NativeLeaf(
        "ElewiseOperation",
        PatternLeaf(infer_shape, kernels),
        inputs,
        1,
        param_json=param,
        input_names=("x", "y")[:inputs],
        output_names=("output",),
    )


def add(on_plan: Callable[[], None] = lambda: None) -> NativeLeaf:
    return _elewise("AddF16Kernel", 8, 2, on_plan=on_plan)


def muls() -> NativeLeaf:
    return _elewise("MulsF16Kernel", 2, 1, value=0.5)


def cast() -> NativeLeaf:
    return _elewise("CastF16F32Kernel", 1, 1, dtype=DType.FLOAT32)


def rms_norm() -> NativeLeaf:
    epsilon = 9.999999747378752e-06  # 1e-5 as a float, widened
    outer = {"epsilon": epsilon, "hasBias": False, "quantType": 0}
    norm = {
        "dynamicQuantType": 0,
        "epsilon": epsilon,
        "layerNormEps": 1e-05,
        "modelType": 0,
        "precisionMode": 0,
        "quantType": 0,
        "rstd": False,
    }
    mki = _text(
        beginNormAxis=0,
        beginParamsAxis=0,
        epsilon=epsilon,
        gemmaMode=0,
        inBeta=False,
        inGamma=True,
        inNormBias=False,
        inRes=False,
        isDynamicQuant=False,
        isSymmetric=True,
        normType=2,
        opsMode=0,
        outMean=False,
        outRes=False,
        outResQuant=False,
        outVarience=False,
        precisionMode=0,
        zoomScaleValue=1.0,
    )
    return NativeLeaf(
        "RmsNormOperation",
        PatternLeaf(_first, _one_kernel("RmsNormKernel", "NormOperation", mki, 96, 2)),
        2,
        1,
        param_json=_text(layerType=1, normParam=norm, postNormParam=outer, preNormParam=outer),
        input_names=("x1", "x2"),
        output_names=("output",),
    )


def linear(bias: bool = False) -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [TensorDesc(ins[0].dtype, (ins[0].shape[0], ins[1].shape[0]))]

    def kernels(ins: Sequence[TensorDesc], outs: Sequence[TensorDesc]) -> Plan:
        rows, depth = ins[0].shape
        mki = _text(
            enDequant=False,
            oriShape=[rows, depth, ins[1].shape[0]],
            tilingK=0,
            tilingN=0,
            transposeA=False,
            transposeB=True,
            withBias=False,
        )
        product = 4 if bias else 2  # with bias the product goes to a workspace tensor first
        multiply = Kernel(
            "PpMatMulF16Kernel", "MatMulOperation", mki, (0, 1), (product,), 256, "pattern"
        )
        if not bias:
            return Plan((multiply,))
        add_bias = _elewise_kernel("AddF16Kernel", 8, 0.0, 2)(ins, outs).kernels[0]
        added = Kernel(
            add_bias.name,
            add_bias.mki_op,
            add_bias.mki_param,
            (4, 2),
            (3,),
            add_bias.tiling_size,
            "pattern",
        )
        return Plan((multiply, added), workspace=(outs[0],))

    param = _text(
        enAccum=False,
        hasBias=bias,
        matmulType=0,
        outDataType=-1,
        quantMode=0,
        transposeA=False,
        transposeB=True,
    )
    names = ("input", "weight", "bias")[: 3 if bias else 2]
    return NativeLeaf(
        "LinearOperation",
        PatternLeaf(infer_shape, kernels),
        len(names),
        1,
        param_json=param,
        input_names=names,
        output_names=("output",),
    )


def _activation(kernel: str, kind: int, tiling: int, divide: int) -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        shape = ins[0].shape
        return [TensorDesc(ins[0].dtype, (*shape[:-1], shape[-1] // divide))]

    mki = _text(activationType=kind, approx=0, dim=-1, scale=1.0)
    return NativeLeaf(
        "ActivationOperation",
        PatternLeaf(infer_shape, _one_kernel(kernel, "ActivationOperation", mki, tiling, 1)),
        1,
        1,
        param_json=_text(activationType=kind, dim=-1, scale=1.0),
        input_names=("x",),
        output_names=("y",),
    )


def swish() -> NativeLeaf:
    return _activation("SwishF16Kernel", 4, 4096, divide=1)


def swiglu() -> NativeLeaf:
    return _activation("SwiGluForwardKernel", 6, 32, divide=2)


def gather() -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [TensorDesc(ins[0].dtype, (*ins[1].shape, ins[0].shape[1]))]

    mki = _text(axis=[0], batchDims=0)
    return NativeLeaf(
        "GatherOperation",
        PatternLeaf(infer_shape, _one_kernel("Gather16I64Kernel", "GatherOperation", mki, 4224, 2)),
        2,
        1,
        param_json=_text(axis=0, batchDims=0),
        input_names=("x", "indices"),
        output_names=("output",),
    )


def softmax() -> NativeLeaf:
    param = _text(axes=[-1])
    kernels = _one_kernel("SoftmaxF16Kernel", "SoftmaxOperation", param, 4096, 1)
    return NativeLeaf(
        "SoftmaxOperation",
        PatternLeaf(_first, kernels),
        1,
        1,
        param_json=param,
        input_names=("x",),
        output_names=("output",),
    )


def split() -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        rows, columns = ins[0].shape
        return [TensorDesc(ins[0].dtype, (rows, columns // 2))] * 2

    mki = _text(splitDim=1, splitNum=2)
    return NativeLeaf(
        "SplitOperation",
        PatternLeaf(
            infer_shape, _one_kernel("SplitF16Output2Kernel", "SplitOperation", mki, 4096, 1, 2)
        ),
        1,
        2,
        param_json=_text(splitDim=1, splitNum=2, splitSizes=[]),
        input_names=("x",),
        output_names=("output1", "output2"),
    )


def concat() -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        rows, columns = ins[0].shape
        return [TensorDesc(ins[0].dtype, (rows + ins[1].shape[0], columns))]

    param = _text(concatDim=0)
    kernels = _one_kernel("ConcatF16Input2Kernel", "ConcatOperation", param, 4096, 2)
    return NativeLeaf(
        "ConcatOperation",
        PatternLeaf(infer_shape, kernels),
        2,
        1,
        param_json=param,
        input_names=("x", "y"),
        output_names=("output",),
    )


def transpose() -> NativeLeaf:
    def infer_shape(ins: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [TensorDesc(ins[0].dtype, ins[0].shape[::-1])]

    param = _text(perm=[1, 0])
    kernels = _one_kernel("Transpose16Kernel", "TransposeOperation", param, 4224, 1)
    return NativeLeaf(
        "TransposeOperation",
        PatternLeaf(infer_shape, kernels),
        1,
        1,
        param_json=param,
        input_names=("x",),
        output_names=("output",),
    )


def event() -> NativeLeaf:
    leaf = PatternLeaf(lambda ins: [], lambda ins, outs: Plan(()))
    # The trace holds a placeholder for the address of the event.
    return NativeLeaf("EventOperation", leaf, 0, 0, param_json='{"event":${PTR},"operatorType":1}')


def plugin() -> NativeLeaf:
    return NativeLeaf("MyPluginOp", CopyPlugin(), 1, 1, plugin=True)
