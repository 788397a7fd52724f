"""What an operation does, in words that both sides share.

ATB types and names of module classes are looked up in the tables below, which include the operator
table of the product manual. What is in no table is judged by keywords in its name, and a module of
which even these say nothing by the widths of what it takes and gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ait_llm.dumps.model import Operation
from ait_llm.program.describe import is_float, params_of, shape_of


class Role(Enum):
    """What an operation does; the value is how reasons call it."""

    NORM = "norm"
    LINEAR = "linear"
    EMBEDDING = "embedding"
    ROTARY = "rotary positions"
    CORE = "attention core"
    CACHE = "key-value cache"
    ACTIVATION = "activation"
    GATED = "gated activation"
    ADD = "sum"
    MUL = "product"
    SPLIT = "split"
    SOFTMAX = "softmax"
    TOPK = "choice of experts"
    EXPERT = "matrix product of the experts"
    EXPERTS = "sum over the experts"
    COLLECTIVE = "collective"
    CONTAINER = "graph"
    OPERATOR = "torch operator"
    OTHER = "other"
    UNKNOWN = "unknown"


# ATB operation types without their ending "Operation".
_ATB: Mapping[str, Role] = {
    "LayerNorm": Role.NORM,
    "LayerNormWithStride": Role.NORM,
    "RmsNorm": Role.NORM,
    "CohereLayerNorm": Role.NORM,
    "GatherPreRmsNorm": Role.NORM,
    "AddRmsNorm": Role.NORM,
    "Linear": Role.LINEAR,
    "LinearParallel": Role.LINEAR,
    "LinearQuant": Role.LINEAR,
    "LinearDequantOnly": Role.LINEAR,
    "LinearNoQuant": Role.LINEAR,
    "LinearRowParallelNoAdd": Role.LINEAR,
    "LinearRowParallelAndAdd": Role.LINEAR,
    "W8A8": Role.LINEAR,
    "W8A16": Role.LINEAR,
    "W4A16": Role.LINEAR,
    "Gather": Role.EMBEDDING,
    "Rope": Role.ROTARY,
    "RopeQConcat": Role.ROTARY,
    "DynamicNTK": Role.OTHER,
    "SelfAttention": Role.CORE,
    "PagedAttention": Role.CORE,
    "RelayAttention": Role.CORE,
    "MultiLatentAttention": Role.CORE,
    "RingMLA": Role.CORE,
    "ReshapeAndCache": Role.CACHE,
    "ReshapeAndCacheWithStride": Role.CACHE,
    "ReshapeAndCacheOmni": Role.CACHE,
    "KvCache": Role.CACHE,
    "BlockCopy": Role.CACHE,
    "PagedCacheLoad": Role.CACHE,
    "Activation": Role.ACTIVATION,
    "SwigluQuant": Role.GATED,
    "Split": Role.SPLIT,
    "Softmax": Role.SOFTMAX,
    "FastSoftMax": Role.SOFTMAX,
    "Sort": Role.TOPK,
    "Gating": Role.TOPK,
    "GroupTopk": Role.TOPK,
    "FusedAddTopkDiv": Role.TOPK,
    "MoeTopkSoftmax": Role.TOPK,
    "GroupedMatmul": Role.EXPERT,
    "GroupedMatmulWithRouting": Role.EXPERT,
    "GroupedMatmulInplaceAdd": Role.EXPERT,
    "MoeInitRouting": Role.OTHER,
    "MoeTokenUnpermute": Role.EXPERTS,
    "MoeFinalizeRouting": Role.EXPERTS,
    "GmmDeqSwigluQuantGmmDeq": Role.EXPERTS,
    "IndexAdd": Role.EXPERTS,
    "AllReduce": Role.COLLECTIVE,
}
# atb::infer::ElewiseParam::ElewiseType
_ELEWISE_ADD, _ELEWISE_MUL = 8, 9
# atb::infer::ActivationType
_SWIGLU = 6

# layerType of norms: before, and behind an addition
_PRENORM = 2
_WITH_RESIDUAL = (_PRENORM, 3)

# The first pattern found in an ATB type of no table (plugins, graphs of other releases) decides.
_ATB_WORDS = (
    (r"rms_?norm|layer_?norm", Role.NORM),
    (r"grouped_?matmul|gmm", Role.EXPERT),
    (r"unpermute|finalize_?routing", Role.EXPERTS),
    (r"init_?routing", Role.OTHER),
    (r"top_?k|gating", Role.TOPK),
    (r"linear|matmul|w8a8|w8a16|w4a16", Role.LINEAR),
    (r"swiglu|geglu", Role.GATED),
    (r"flash|attention", Role.CORE),
    (r"rope|rotary", Role.ROTARY),
    (r"cache", Role.CACHE),
    (r"embedding", Role.EMBEDDING),
)

# The first pattern found in the name of a module's class decides.
_TORCH_WORDS = (
    (r"rotary|rope(?![a-z])", Role.ROTARY),
    (r"experts$|fusedmoe|moerunner", Role.EXPERTS),
    (r"topk|router|moegate", Role.LINEAR),
    (r"norm", Role.NORM),
    # T5DenseActDense and a separable convolution are blocks of two
    (r"linear|(?<!separable)conv1d|(?<!act)dense$", Role.LINEAR),
    (r"embedding", Role.EMBEDDING),
    (r"swiglu|geglu|siluandmul|geluandmul", Role.GATED),
    (r"silu|gelu|relu|swish|mish|tanh|sigmoid|activation", Role.ACTIVATION),
    (r"softmax", Role.SOFTMAX),
    (r"coreattention|selfattentioncore|sdpa", Role.CORE),
    (r"dropout|identity", Role.OTHER),
)


def atb_role(operation: Operation) -> Role:
    """What an ATB operation does."""
    if operation.is_graph:
        return Role.CONTAINER
    kind = operation.type.removesuffix("Operation")
    if kind == "Elewise":
        which = {_ELEWISE_ADD: Role.ADD, _ELEWISE_MUL: Role.MUL}
        return which.get(_number(params_of(operation), "elewiseType"), Role.OTHER)
    if kind == "Activation" and _number(params_of(operation), "activationType") == _SWIGLU:
        return Role.GATED
    return _ATB.get(kind) or _by_words(kind, _ATB_WORDS) or Role.UNKNOWN


def adds_residual(operation: Operation) -> bool:
    """True for a norm of ATB that adds two of its inputs up before it, or behind."""
    return _number(params_of(operation), "layerType") in _WITH_RESIDUAL


def hands_sum_on(operation: Operation) -> bool:
    """True for an RMS norm of ATB that gives the sum, too, of which it computes the norm."""
    kind = _number(params_of(operation), "layerType")
    return kind == _PRENORM and is_rms(operation) and len(operation.outputs) > 1


def torch_role(operation: Operation, *, has_modules: bool) -> Role:
    """What a torch module does.

    Args:
        operation: the call of a module or operator.
        has_modules: whether other modules ran within it.
    """
    if is_operator(operation):
        return Role.OPERATOR
    role = _by_words(operation.type, _TORCH_WORDS)
    if role in (Role.EXPERTS, Role.LINEAR) and role is not None:
        return role
    if has_modules:
        return Role.CONTAINER
    if role is None and "attention" in operation.type.lower() and _reads_three(operation):
        return Role.CORE
    return role or _by_shape(operation)


def is_operator(operation: Operation) -> bool:
    """True for the call of a torch operator (``aten.add.Tensor``), which is no module."""
    return operation.type.count(".") >= 2


def is_rms(operation: Operation) -> bool:
    """True if a norm says that it is an RMS norm."""
    return "rms" in operation.type.lower()


def _by_words(kind: str, table: tuple[tuple[str, Role], ...]) -> Role | None:
    text = kind.lower()
    return next((role for pattern, role in table if re.search(pattern, text)), None)


def _by_shape(operation: Operation) -> Role:
    inputs = [tensor for tensor in operation.inputs if is_float(tensor)]
    outputs = [tensor for tensor in operation.outputs if is_float(tensor)]
    if not inputs and len(operation.inputs) == len(outputs) == 1:
        ids, rows = shape_of(operation.inputs[0]), shape_of(outputs[0])
        if ids is not None and rows is not None and rows[:-1] == ids:
            return Role.EMBEDDING
    if len(inputs) != 1 or len(outputs) != 1:
        return Role.UNKNOWN
    source, result = shape_of(inputs[0]), shape_of(outputs[0])
    if not source or not result:
        return Role.UNKNOWN
    if source[:-1] == result[:-1] and source[-1:] != result[-1:]:
        return Role.LINEAR
    return Role.UNKNOWN


def _number(params: Mapping[str, Any], key: str) -> int:
    value = params.get(key)
    return value if isinstance(value, int) else -1


def _reads_three(operation: Operation) -> bool:
    """True for a module without parts that is handed query, key and value."""
    return sum(map(is_float, operation.inputs)) == 3


def scales_rows(type_name: str) -> bool:
    """True for an embedding that multiplies its rows by a number, as its class says."""
    return "scaled" in type_name.lower()
