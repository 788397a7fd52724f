"""Kernels of Elewise, Activation, Softmax and Reduce."""

from __future__ import annotations

from typing import Any

from ait_llm.core import DType
from ait_llm.errors import OperationError
from ait_llm.hostatb.operators.launch import (
    CONST_TENSOR,
    TBE_TILING,
    Descs,
    Param,
    dtype_suffix,
    single_kernel,
)
from ait_llm.hostatb.params.elementwise import ElewiseParam, ReduceParam
from ait_llm.hostatb.params.enums import ActivationType
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs
from ait_llm.opcheck.golden.base import Refusal, RefusedError

_Elewise = ElewiseParam.ElewiseType

# Elewise type: kernel name, with {} for the element type of the first input, and number of inputs.
_ELEWISE_KERNELS: dict[int, tuple[str, int]] = {
    _Elewise.ELEWISE_CAST: ("Cast{}", 1),
    _Elewise.ELEWISE_MULS: ("Muls{}", 1),
    _Elewise.ELEWISE_COS: ("Cos{}", 1),
    _Elewise.ELEWISE_SIN: ("Sin{}", 1),
    _Elewise.ELEWISE_NEG: ("Neg{}", 1),
    _Elewise.ELEWISE_QUANT: ("Quant{}", 1),
    _Elewise.ELEWISE_LOGICAL_NOT: ("LogicalNot", 1),
    _Elewise.ELEWISE_ADD: ("Add{}", 2),
    _Elewise.ELEWISE_MUL: ("Mul{}", 2),
    _Elewise.ELEWISE_REALDIV: ("RealDiv{}", 2),
    _Elewise.ELEWISE_LOGICAL_AND: ("LogicalAndInt8", 2),
    _Elewise.ELEWISE_LOGICAL_OR: ("LogicalOrInt8", 2),
    _Elewise.ELEWISE_LESS: ("Less{}", 2),
    _Elewise.ELEWISE_GREATER: ("Greater{}", 2),
    _Elewise.ELEWISE_SUB: ("Sub{}", 2),
    _Elewise.ELEWISE_EQUAL: ("Equal{}", 2),
    _Elewise.ELEWISE_QUANT_PER_CHANNEL: ("AtbQuantPerChannel", 3),
    _Elewise.ELEWISE_DEQUANT_PER_CHANNEL: ("AtbDequantPerChannel", 3),
    _Elewise.ELEWISE_DYNAMIC_QUANT: ("DynamicQuant", 1),
    _Elewise.ELEWISE_TANH: ("Tanh{}", 1),
}

# These kernels spell int64 out.
_LONG_INT64 = (_Elewise.ELEWISE_LESS, _Elewise.ELEWISE_GREATER, _Elewise.ELEWISE_SUB)

# The kernel library numbers the later types differently from the operation.
_MKI_ELEWISE_TYPES: dict[int, int] = {
    _Elewise.ELEWISE_TANH: 16,
    _Elewise.ELEWISE_EQUAL: 17,
    _Elewise.ELEWISE_QUANT_PER_CHANNEL: 18,
    _Elewise.ELEWISE_DEQUANT_PER_CHANNEL: 19,
    _Elewise.ELEWISE_DYNAMIC_QUANT: 20,
}


def mki_elewise(elewise_type: int, **changes: Any) -> dict[str, Any]:
    """Mki parameters of an element-wise kernel; ``changes`` replaces defaults."""
    return {
        "elewiseType": _MKI_ELEWISE_TYPES.get(elewise_type, elewise_type),
        "varAttr": 0.0,
        "inputScale": 1.0,
        "inputOffset": 0,
        "outTensorType": -1,
    } | changes


def _elewise_entry(param: Param) -> tuple[str, int]:
    kind = int(param["elewiseType"])
    if kind not in _ELEWISE_KERNELS:
        known = ", ".join(f"{int(key)} {_Elewise(key).name}" for key in _ELEWISE_KERNELS)
        raise RefusedError(
            f"ElewiseOperation has no elewiseType {kind}; known: {known}", Refusal.PARAM
        )
    return _ELEWISE_KERNELS[kind]


def _elewise_names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    kind, count = int(param["elewiseType"]), _elewise_entry(param)[1]
    inputs = ("x", "scale", "offset") if count == 3 else ("x", "y")[:count]
    if kind == _Elewise.ELEWISE_DYNAMIC_QUANT:
        if param["quantParam"]["asymmetric"]:
            raise RefusedError(
                "ElewiseOperation: asymmetric dynamic quantisation is refused", Refusal.PARAM
            )
        return inputs, ("z", "scale")
    return inputs, ("output",)


def _elewise_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    kind, template = int(param["elewiseType"]), _elewise_entry(param)[0]
    changes: dict[str, Any] = {}
    if kind == _Elewise.ELEWISE_CAST:
        template = "Cast{}" + dtype_suffix(outputs[0])
        changes["outTensorType"] = int(param["outTensorType"])
    elif kind == _Elewise.ELEWISE_MULS:
        changes["varAttr"] = param["mulsParam"]["varAttr"]
    elif kind == _Elewise.ELEWISE_QUANT:
        changes["inputScale"] = param["quantParam"]["inputScale"]
        changes["inputOffset"] = param["quantParam"]["inputOffset"]
    if "{}" in template:
        long = kind in _LONG_INT64 and inputs[0].dtype is DType.INT64
        template = template.format("Int64" if long else dtype_suffix(inputs[0]))
    return single_kernel(
        f"{template}Kernel",
        "ElewiseOperation",
        mki_elewise(kind, **changes),
        "ElewiseOperation",
        param,
        inputs,
        outputs,
    )


operator_specs.register("ElewiseOperation")(
    OperatorSpec("ElewiseOperation", _elewise_names, _elewise_plan)
)

# Activation type: kernel name, with {} for the element type, and tiling size.
_ACTIVATION_KERNELS: dict[int, tuple[str, int]] = {
    ActivationType.ACTIVATION_RELU: ("Relu{}", TBE_TILING),
    ActivationType.ACTIVATION_GELU: ("GeluApprox{}", TBE_TILING),
    ActivationType.ACTIVATION_FAST_GELU: ("FastGelu{}", TBE_TILING),
    ActivationType.ACTIVATION_SWISH: ("Swish{}", TBE_TILING),
    ActivationType.ACTIVATION_LOG: ("Log{}", TBE_TILING),
    ActivationType.ACTIVATION_SWIGLU_FORWARD: ("SwiGluForward", 32),
    ActivationType.ACTIVATION_SWIGLU_BACKWARD: ("SwiGluBackward", 32),
    ActivationType.ACTIVATION_SIGMOID: ("Sigmoid{}", TBE_TILING),
    ActivationType.ACTIVATION_FASTER_GELU_FORWARD: ("FasterGeluForward", 224),
}


def _activation_names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    kind = int(param["activationType"])
    if kind not in _ACTIVATION_KERNELS:
        known = ", ".join(f"{int(key)} {ActivationType(key).name}" for key in _ACTIVATION_KERNELS)
        raise RefusedError(
            f"ActivationOperation has no activationType {kind}; known: {known}", Refusal.PARAM
        )
    backward = kind == ActivationType.ACTIVATION_SWIGLU_BACKWARD
    return (("x1", "x2") if backward else ("x",)), ("y",)


def _activation_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    template, tiling_size = _ACTIVATION_KERNELS[int(param["activationType"])]
    exact_gelu = int(param.get("geluMode", 0)) != 0
    if exact_gelu:
        template = template.replace("GeluApprox", "Gelu")
    mki_param = {
        "activationType": int(param["activationType"]),
        "approx": int(exact_gelu),
        "dim": param["dim"],
        "scale": param["scale"],
    }
    return single_kernel(
        f"{template.format(dtype_suffix(outputs[0]))}Kernel",
        "ActivationOperation",
        mki_param,
        "ActivationOperation",
        param,
        inputs,
        outputs,
        tiling_size,
    )


operator_specs.register("ActivationOperation")(
    OperatorSpec("ActivationOperation", _activation_names, _activation_plan)
)


def _softmax_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    return single_kernel(
        f"Softmax{dtype_suffix(outputs[0])}Kernel",
        "SoftmaxOperation",
        {"axes": param["axes"]},
        "SoftmaxOperation",
        param,
        inputs,
        outputs,
    )


operator_specs.register("SoftmaxOperation")(
    OperatorSpec("SoftmaxOperation", lambda _: (("x",), ("output",)), _softmax_plan)
)

_REDUCE_KERNELS: dict[int, str] = {
    ReduceParam.ReduceType.REDUCE_MAX: "ReduceMax",
    ReduceParam.ReduceType.REDUCE_MIN: "ReduceMin",
    ReduceParam.ReduceType.REDUCE_SUM: "ReduceSum",
}


def _reduce_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    kind = int(param["reduceType"])
    if kind not in _REDUCE_KERNELS:
        known = ", ".join(f"{int(key)} {name}" for key, name in _REDUCE_KERNELS.items())
        raise OperationError(f"ReduceOperation has no kernel for reduceType {kind}; known: {known}")
    suffix = "Int32" if inputs[0].dtype is DType.INT32 else dtype_suffix(inputs[0])
    return single_kernel(
        f"{_REDUCE_KERNELS[kind]}{suffix}Kernel",
        "ReduceOperation",
        {"axis": param["axis"], "reduceType": kind},
        "ReduceOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + CONST_TENSOR,
    )


operator_specs.register("ReduceOperation")(
    OperatorSpec("ReduceOperation", lambda _: (("x",), ("output",)), _reduce_plan)
)
