"""Products, normalisations, activations and element-wise operators."""

from __future__ import annotations

import torch

from ait_llm.opcheck.selftest.cases import FLOATS, HALVES, Built, Draw, case

_HIDDEN = 512


@case("LinearOperation", "bias", dtypes=HALVES)
def linear_bias(draw: Draw) -> Built:
    bias = torch.float32 if draw.dtype == torch.bfloat16 else draw.dtype
    weight = draw.floats(128, _HIDDEN, scale=0.05)
    return Built([draw.floats(24, _HIDDEN), weight, draw.floats(128, dtype=bias)], {})


@case("LinearOperation", "plain", dtypes=FLOATS)
def linear(draw: Draw) -> Built:
    weight = draw.floats(_HIDDEN, 96, scale=0.05)
    return Built([draw.floats(32, _HIDDEN), weight], {"hasBias": False, "transposeB": False})


@case("LinearOperation", "int8")
def linear_int8(draw: Draw) -> Built:
    if draw.dtype == torch.bfloat16:
        scale = draw.around_one(96, dtype=torch.float32).abs() * 1e-3
        code = 27
    else:
        bits = (draw.around_one(96, dtype=torch.float32).abs() * 1e-3).view(torch.int32)
        scale, code = bits.to(torch.int64), 1
    x = draw.integers(-128, 128, 32, 256, dtype=torch.int8)
    weight = draw.integers(-128, 128, 96, 256, dtype=torch.int8)
    return Built([x, weight, scale], {"hasBias": False, "outDataType": code})


@case("MatmulOperation", dtypes=(torch.float16,))
def matmul(draw: Draw) -> Built:
    return Built(
        [draw.floats(32, _HIDDEN), draw.floats(96, _HIDDEN, scale=0.05)], {"transposeB": True}
    )


@case("StridedBatchMatmulOperation", dtypes=(torch.float16,))
def strided(draw: Draw) -> Built:
    params = {
        "batch": 1, "headNum": 2, "m": [16], "n": [16], "k": [64], "lda": [128], "ldb": [128],
        "ldc": [16], "strideA": [64], "strideB": [64], "strideC": [256],
        "transposeA": False, "transposeB": True,
    }  # fmt: skip
    return Built([draw.floats(16, 128), draw.floats(16, 128)], params)


@case("GroupedMatmulInplaceAddOperation")
def grouped(draw: Draw) -> Built:
    inputs = [
        draw.floats(256, 16),
        draw.floats(256, 64),
        torch.tensor([100, 256]),
        draw.floats(32, 64, dtype=torch.float32),
    ]
    return Built(inputs, {"transposeA": True, "transposeB": False})


def _norm(layer: int, **own: object) -> dict[str, object]:
    key = {1: "normParam", 2: "preNormParam", 3: "postNormParam"}[layer]
    return {"layerType": layer, key: {"epsilon": 1e-5, **own}}


@case("RmsNormOperation", "norm", dtypes=FLOATS)
def rms_norm(draw: Draw) -> Built:
    return Built([draw.floats(24, _HIDDEN), draw.around_one(_HIDDEN)], _norm(1))


@case("RmsNormOperation", "pre", dtypes=HALVES)
def rms_norm_pre(draw: Draw) -> Built:
    inputs = [draw.floats(24, _HIDDEN), draw.floats(24, _HIDDEN), draw.around_one(_HIDDEN)]
    return Built(inputs, _norm(2))


@case("RmsNormOperation", "post", dtypes=HALVES)
def rms_norm_post(draw: Draw) -> Built:
    inputs = [draw.floats(24, _HIDDEN), draw.floats(24, _HIDDEN), draw.around_one(_HIDDEN)]
    return Built(inputs, _norm(3))


@case("LayerNormOperation", "norm", dtypes=FLOATS)
def layer_norm(draw: Draw) -> Built:
    inputs = [draw.floats(24, _HIDDEN) + 0.5, draw.around_one(_HIDDEN), draw.floats(_HIDDEN)]
    return Built(inputs, _norm(1, beginNormAxis=1, beginParamsAxis=1))


@case("LayerNormOperation", "post", dtypes=HALVES)
def layer_norm_post(draw: Draw) -> Built:
    states = [draw.floats(24, _HIDDEN), draw.floats(24, _HIDDEN)]
    return Built([*states, draw.around_one(_HIDDEN), draw.floats(_HIDDEN)], _norm(3))


@case("CohereLayerNormOperation")
def cohere(draw: Draw) -> Built:
    return Built([draw.floats(16, 4, 128), draw.around_one(4, 128)], {"epsilon": 1e-5})


@case("GatherPreRmsNormOperation")
def gather_pre(draw: Draw) -> Built:
    states = [draw.floats(16, _HIDDEN), draw.floats(32, _HIDDEN)]
    return Built([*states, draw.order(32, 16), draw.around_one(_HIDDEN)], {"epsilon": 1e-5})


@case("SoftmaxOperation", dtypes=FLOATS)
def softmax(draw: Draw) -> Built:
    return Built([draw.floats(32, 256, scale=2)], {"axes": [-1]})


@case("FastSoftMaxOperation", dtypes=(torch.float16,))
def fast_softmax(draw: Draw) -> Built:
    return Built([draw.floats(2 * 48 * 48, scale=2)], {"headNum": 2, "qSeqLen": [48]})


@case("FastSoftMaxGradOperation", dtypes=(torch.float16,))
def fast_softmax_gradient(draw: Draw) -> Built:
    y = torch.softmax(draw.floats(2 * 48, 48, dtype=torch.float32), -1).reshape(-1).half()
    return Built([y, draw.floats(2 * 48 * 48)], {"headNum": 2, "qSeqLen": [48]})


def _activation(kind: int, name: str, dtypes: tuple[torch.dtype, ...] = FLOATS) -> None:
    @case("ActivationOperation", name, dtypes=dtypes)
    def build(draw: Draw) -> Built:
        return Built([draw.floats(32, 256)], {"activationType": kind, "dim": -1, "scale": 1.0})


for _number, _name in ((1, "relu"), (2, "gelu"), (4, "swish"), (5, "log"), (6, "swiglu")):
    _activation(_number, _name, HALVES if _name in ("swiglu", "log") else FLOATS)


def _elementwise(kind: int, name: str, operands: int, dtypes: tuple[torch.dtype, ...]) -> None:
    @case("ElewiseOperation", name, dtypes=dtypes)
    def build(draw: Draw) -> Built:
        inputs = [draw.floats(32, 128) for _ in range(operands)]
        return Built(inputs, {"elewiseType": kind, "mulsParam": {"varAttr": 0.37}})


for _number, _name, _operands, _dtypes in (
    (2, "muls", 1, FLOATS), (3, "cos", 1, FLOATS), (4, "sin", 1, FLOATS), (5, "neg", 1, HALVES),
    (8, "add", 2, FLOATS), (9, "mul", 2, HALVES), (10, "realdiv", 2, FLOATS),
    (13, "less", 2, FLOATS), (14, "greater", 2, FLOATS), (15, "sub", 2, HALVES),
    (16, "equal", 2, FLOATS), (20, "tanh", 1, HALVES),
):  # fmt: skip
    _elementwise(_number, _name, _operands, _dtypes)


@case("ElewiseOperation", "cast to float16", dtypes=(torch.float32,))
def cast(draw: Draw) -> Built:
    return Built([draw.floats(32, 128)], {"elewiseType": 1, "outTensorType": 1})


@case("ElewiseOperation", "quant", dtypes=(torch.float16,))
def quant(draw: Draw) -> Built:
    own = {"asymmetric": False, "inputScale": 20.0, "inputOffset": 0}
    return Built([draw.floats(32, 256)], {"elewiseType": 6, "quantParam": own})


@case("ElewiseOperation", "quant per channel")
def quant_per_channel(draw: Draw) -> Built:
    scale = (draw.around_one(256).abs() * 0.05 + 0.01).to(draw.dtype)
    offset = draw.integers(-4, 5, 256, dtype=torch.int8)
    return Built([draw.floats(32, 256), scale, offset], {"elewiseType": 17})


@case("ElewiseOperation", "dynamic quant")
def dynamic_quant(draw: Draw) -> Built:
    return Built([draw.floats(32, 256)], {"elewiseType": 19})


@case("ElewiseOperation", "asymmetric dynamic quant", dtypes=(torch.float16,))
def asymmetric_quant(draw: Draw) -> Built:
    params = {"elewiseType": 19, "quantParam": {"asymmetric": True}}
    return Built([draw.floats(32, 256) + 0.3], params)


@case("SwigluQuantOperation", dtypes=(torch.float16,))
def swiglu_quant(draw: Draw) -> Built:
    return Built([draw.floats(32, 256)], {"quantType": 0})


@case("CumsumOperation", dtypes=(torch.float16,))
def cumsum(draw: Draw) -> Built:
    return Built([draw.floats(16, 128)], {"axes": [1]})


@case("ReduceOperation", "sum", dtypes=(torch.bfloat16,))
def reduce_sum(draw: Draw) -> Built:
    return Built([draw.floats(128, 256)], {"axis": [1], "reduceType": 3})


@case("ReduceOperation", "max", dtypes=(torch.bfloat16,))
def reduce_max(draw: Draw) -> Built:
    return Built([draw.floats(64, 128)], {"axis": [1], "reduceType": 1})


@case("IndexAddOperation", dtypes=HALVES)
def index_add(draw: Draw) -> Built:
    alpha = torch.ones(1, dtype=draw.dtype)
    inputs = [draw.floats(32, 64), draw.order(32, 12), draw.floats(12, 64), alpha]
    return Built(inputs, {"axis": 0, "indexType": 1})


@case("FaUpdateOperation", dtypes=(torch.float32,))
def fa_update(draw: Draw) -> Built:
    return Built([draw.floats(8, 64), draw.floats(8, 64, 128)], {"faUpdateType": 0, "sp": 8})


@case("FusedAddTopkDivOperation", dtypes=(torch.float32,))
def topk_div(draw: Draw) -> Built:
    params = {
        "activationType": 8, "enableExpertMapping": False, "groupNum": 8, "groupTopk": 4,
        "isNorm": True, "k": 8, "n": 2, "scale": 2.5,
    }  # fmt: skip
    return Built([draw.floats(16, 256), draw.floats(256, scale=0.1)], params)


@case("DynamicNTKOperation", dtypes=(torch.float32,))
def dynamic_ntk(draw: Draw) -> Built:
    positions = torch.arange(48, dtype=torch.int32)
    frequencies = 10000.0 ** (-torch.arange(0, 32, dtype=torch.float32) / 32)
    lengths = torch.tensor([24, 24], dtype=torch.int32)
    return Built([positions, torch.stack([frequencies] * 2), lengths], {"outputType": 1})


def _quantisation(draw: Draw) -> list[torch.Tensor]:
    return [
        torch.tensor([0.03], dtype=draw.dtype),
        torch.tensor([3], dtype=torch.int8),
    ]


@case("RmsNormOperation", "static quant", dtypes=(torch.float16,))
def rms_norm_quant(draw: Draw) -> Built:
    weights = [draw.around_one(_HIDDEN), draw.floats(_HIDDEN, scale=0.1)]
    inputs = [draw.floats(24, _HIDDEN), *weights, *_quantisation(draw)]
    return Built(inputs, _norm(1, quantType=2), scaled=1)


def _dynamic(op: str, kind: int) -> None:
    name = {1: "dynamic quant", 2: "asymmetric dynamic quant"}[kind]

    @case(op, name, dtypes=(torch.float16,))
    def norm_quant(draw: Draw) -> Built:
        weights = [draw.around_one(_HIDDEN), draw.floats(_HIDDEN, scale=0.1)]
        axes = {} if op.startswith("Rms") else {"beginNormAxis": 1, "beginParamsAxis": 1}
        params = _norm(1, quantType=2, dynamicQuantType=kind, **axes)
        return Built([draw.floats(24, _HIDDEN), *weights], params)


for _kind in (1, 2):
    for _op in ("RmsNormOperation", "LayerNormOperation"):
        _dynamic(_op, _kind)


@case("RmsNormOperation", "pre, static quant", dtypes=(torch.float16,))
def rms_norm_pre_quant(draw: Draw) -> Built:
    states = [draw.floats(24, _HIDDEN), draw.floats(24, _HIDDEN)]
    weights = [draw.around_one(_HIDDEN), draw.floats(_HIDDEN, scale=0.1)]
    return Built([*states, *weights, *_quantisation(draw)], _norm(2, quantType=2), scaled=2)


@case("RmsNormOperation", "fast", dtypes=(torch.float16,))
def rms_norm_fast(draw: Draw) -> Built:
    inputs = [draw.floats(24, _HIDDEN), draw.around_one(_HIDDEN)]
    return Built(inputs, _norm(1, precisionMode=1))


@case("LayerNormOperation", "static quant", dtypes=(torch.float16,))
def layer_norm_quant(draw: Draw) -> Built:
    weights = [draw.around_one(_HIDDEN), draw.floats(_HIDDEN, scale=0.1)]
    inputs = [draw.floats(24, _HIDDEN), *weights, *_quantisation(draw)]
    return Built(inputs, _norm(1, quantType=2, beginNormAxis=1, beginParamsAxis=1), scaled=1)


@case("RmsNormBackwardOperation")
def rms_norm_backward(draw: Draw) -> Built:
    rstd = draw.around_one(48, 1, dtype=torch.float32).abs()
    states = [draw.floats(48, 128), draw.floats(48, 128)]
    return Built([*states, rstd, draw.around_one(128)], {})


@case("LayerNormWithStrideOperation")
def layer_norm_strided(draw: Draw) -> Built:
    weights = [draw.around_one(256), draw.floats(256)]
    view = [torch.tensor([128, 1]), torch.tensor([64])]
    params = {"layerType": 1, "normParam": {"epsilon": 1e-5}}
    return Built([draw.floats(24, 256) + 0.5, *weights, *view], params)
