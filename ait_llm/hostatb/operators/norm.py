"""Kernels of RmsNorm and LayerNorm."""

from __future__ import annotations

from typing import Any

from ait_llm.hostatb.operators.launch import (
    TBE_TILING,
    Descs,
    Param,
    dtype_suffix,
    single_kernel,
)
from ait_llm.hostatb.params.norm import LayerNormParam, RmsNormParam
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs
from ait_llm.opcheck.golden.base import Refusal, RefusedError

_Rms = RmsNormParam.RmsNormType
_Layer = LayerNormParam.LayerNormType
_LAYER_NORM, _RMS_NORM, _RMS_NORM_FORWARD = 1, 2, 3
_SYMMETRIC = 1
_RMS_TILING = 96
_POST_LAYER_TILING = 64

Names = tuple[tuple[str, ...], tuple[str, ...]]


def _mki_norm(kind: int, epsilon: float, **changes: Any) -> dict[str, Any]:
    return {
        "normType": kind,
        "beginNormAxis": 0,
        "beginParamsAxis": 0,
        "opsMode": 0,
        "epsilon": epsilon,
        "zoomScaleValue": 1.0,
        "inGamma": True,
        "inBeta": False,
        "inRes": False,
        "inNormBias": False,
        "outMean": False,
        "outVarience": False,
        "outResQuant": False,
        "outRes": False,
        "precisionMode": 0,
        "gemmaMode": 0,
        "isDynamicQuant": False,
        "isSymmetric": True,
    } | changes


def _section(param: Param) -> Param:
    """The nested parameters that the layer type uses: 1 alone, 2 before, 3 after a residual."""
    names = {1: "normParam", 2: "preNormParam", 3: "postNormParam"}
    kind = int(param["layerType"])
    if kind not in names:
        text = f"layerType {kind} is not 1 (NORM), 2 (PRENORM) or 3 (POSTNORM)"
        raise RefusedError(text, Refusal.PARAM)
    section: Param = param[names[kind]]
    return section


def _quantised(section: Param) -> bool:
    return bool(section["quantType"])


def _rms_names(param: Param) -> Names:
    section, kind = _section(param), int(param["layerType"])
    if kind == _Rms.RMS_NORM_NORM:
        if not _quantised(section):
            return ("x1", "x2"), (("output1", "output2") if section["rstd"] else ("output",))
        dynamic = int(section["dynamicQuantType"])
        if not dynamic:
            return ("x1", "x2", "x3", "scale", "offset"), ("output",)
        return ("x", "gamma", "beta"), ("y", "scale", "offset")[: 2 if dynamic == _SYMMETRIC else 3]
    if _quantised(section):
        if kind == _Rms.RMS_NORM_PRENORM:
            return ("x1", "x2", "x3", "x4", "scale", "offset"), ("output1", "output2")
        return ("x1", "x2", "x3", "scale", "offset"), ("output1", "output2")
    bias = ("bias",) if section["hasBias"] else ()
    outputs = ("y", "res_out")[: 2 if kind == _Rms.RMS_NORM_PRENORM else 1]
    return ("x", *bias, "res_in", "gamma"), outputs


def _rms_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    section, kind = _section(param), int(param["layerType"])
    epsilon, quant = section["epsilon"], _quantised(section)
    if kind == _Rms.RMS_NORM_NORM and not quant:
        name = "RmsNormForwardKernel" if section["rstd"] else "RmsNormKernel"
        mki = _mki_norm(
            _RMS_NORM_FORWARD if section["rstd"] else _RMS_NORM,
            epsilon,
            precisionMode=int(section["precisionMode"]),
            gemmaMode=int(section["modelType"]),
        )
    elif kind == _Rms.RMS_NORM_NORM:
        dynamic = int(section["dynamicQuantType"])
        name = "RmsNormDynamicQuantKernel" if dynamic else "RmsNormQuantKernel"
        mki = _mki_norm(
            _RMS_NORM,
            epsilon,
            inBeta=True,
            isDynamicQuant=bool(dynamic),
            isSymmetric=dynamic == _SYMMETRIC,
        )
    elif kind == _Rms.RMS_NORM_PRENORM and quant:
        name = "RmsPreNormQuantKernel"
        mki = _mki_norm(_RMS_NORM, epsilon, inRes=True, inNormBias=True, outRes=True)
    elif kind == _Rms.RMS_NORM_PRENORM:
        name = "PreRmsNormKernel"
        mki = _mki_norm(_RMS_NORM, epsilon, inBeta=True, inRes=True, outRes=True)
    elif quant:
        name = "RmsPostNormQuantKernel"
        mki = _mki_norm(_RMS_NORM, epsilon, inRes=True, outRes=True)
    else:
        name = "PostRmsNormKernel"
        mki = _mki_norm(_RMS_NORM, epsilon, inBeta=True, inRes=True)
    operation = "RmsNormOperation"
    return single_kernel(name, "NormOperation", mki, operation, param, inputs, outputs, _RMS_TILING)


def _layer_names(param: Param) -> Names:
    section, kind = _section(param), int(param["layerType"])
    if kind == _Layer.LAYER_NORM_NORM:
        if not _quantised(section):
            return ("x1", "x2", "x3"), ("y",)
        dynamic = int(section.get("dynamicQuantType", 0))
        if not dynamic:
            return ("x1", "x2", "x3", "scale", "offset"), ("resQuant",)
        return ("x", "gamma", "beta"), ("y", "scale", "offset")[: 2 if dynamic == _SYMMETRIC else 3]
    if kind == _Layer.LAYER_NORM_PRENORM:
        if _quantised(section):
            text = "LayerNormOperation: PRENORM cannot quantise its output"
            raise RefusedError(text, Refusal.PARAM)
        return ("x1", "x2", "x3", "x4"), ("z", "y")
    if _quantised(section):
        return ("x1", "x2", "x3", "x4", "scale", "offset"), ("y", "resQuant")
    return ("x1", "x2", "x3", "x4"), ("y",)


def _layer_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    section, kind = _section(param), int(param["layerType"])
    epsilon, quant, tiling_size = section["epsilon"], _quantised(section), TBE_TILING
    if kind == _Layer.LAYER_NORM_NORM and not quant:
        name = f"Layernorm{dtype_suffix(inputs[0])}Kernel"
        mki = _mki_norm(
            _LAYER_NORM,
            epsilon,
            inBeta=True,
            outMean=True,
            outVarience=True,
            beginNormAxis=section["beginNormAxis"],
            beginParamsAxis=section["beginParamsAxis"],
        )
    elif kind == _Layer.LAYER_NORM_NORM:
        dynamic = int(section.get("dynamicQuantType", 0))
        name = "LayerNormDynamicQuantKernel" if dynamic else "LayerNormF16QuantKernel"
        mki = _mki_norm(
            _LAYER_NORM,
            epsilon,
            inBeta=True,
            outResQuant=True,
            isDynamicQuant=bool(dynamic),
            isSymmetric=dynamic == _SYMMETRIC,
        )
    else:
        pre = kind == _Layer.LAYER_NORM_PRENORM
        name = f"{'Pre' if pre else 'Post'}LayerNorm" + ("" if pre else "F16") + "Kernel"
        name = "PostLayerNormF16QuantKernel" if quant else name
        tiling_size = _POST_LAYER_TILING
        mki = _mki_norm(
            _LAYER_NORM,
            epsilon,
            inBeta=True,
            inRes=True,
            outRes=pre,
            outResQuant=quant,
            opsMode=section["opMode"],
            zoomScaleValue=1.0 if quant else section["zoomScaleValue"],
        )
    operation = "LayerNormOperation"
    return single_kernel(name, "NormOperation", mki, operation, param, inputs, outputs, tiling_size)


operator_specs.register("RmsNormOperation")(OperatorSpec("RmsNormOperation", _rms_names, _rms_plan))
operator_specs.register("LayerNormOperation")(
    OperatorSpec("LayerNormOperation", _layer_names, _layer_plan)
)
