"""Parameters of matrix multiplications."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ait_llm.hostatb.params.base import UNPRINTED, Param, Struct
from ait_llm.hostatb.params.enums import AclDataType, CommMode
from ait_llm.hostatb.params.fields import Int8, Int16, Int32, Pointer, UInt8, UInt16, UInt32


@dataclass(repr=False)
class LinearParam(Param):
    """Matrix product with optional bias, accumulation or dequantisation."""

    class MatmulType(IntEnum):
        MATMUL_UNDEFINED = 0
        MATMUL_EIN_SUM = 1

    class QuantMode(IntEnum):
        QUANT_UNDEFINED = 0
        PER_CHANNEL = 1
        PER_TOKEN = 2

    transpose_a: bool = False
    transpose_b: bool = True
    has_bias: bool = True
    out_data_type: AclDataType = AclDataType.ACL_DT_UNDEFINED
    en_accum: bool = False
    matmul_type: MatmulType = MatmulType.MATMUL_UNDEFINED
    quant_mode: QuantMode = QuantMode.QUANT_UNDEFINED


@dataclass(repr=False)
class LinearSparseParam(Param):
    """Matrix product with a compressed weight."""

    transpose_a: bool = False
    transpose_b: bool = True
    tiling_k: UInt32 = 8
    tiling_n: UInt32 = 8


@dataclass(repr=False)
class LinearParallelParam(Param):
    """Matrix product fused with a collective."""

    class ParallelType(IntEnum):
        UNDEFINED = -1
        LINEAR_ALL_REDUCE = 0
        LINEAR_REDUCE_SCATTER = 1
        ALL_GATHER_LINEAR = 2
        PURE_LINEAR = 3
        ALL_GATHER_LINEAR_REDUCE_SCATTER = 4
        ALLTOALLVC_ALL_GATHER_GMM = 5
        GMM_REDUCE_SCATTER_ALLTOALLVC = 6
        MAX = 7

    class QuantType(IntEnum):
        QUANT_TYPE_UNQUANT = -1
        QUANT_TYPE_UNDEFINED = -1
        QUANT_TYPE_PER_TENSOR = 0
        QUANT_TYPE_PER_CHANNEL = 1
        QUANT_TYPE_PER_GROUP = 2
        QUANT_TYPE_PER_TOKEN = 3
        QUANT_TYPE_MAX = 4

    @dataclass(repr=False)
    class TwoDimTPInfo(Struct):
        ag_dim: UInt16 = 0
        rs_dim: UInt16 = 0
        inner_dim_is_ag: UInt8 = 1

    @dataclass(repr=False)
    class MoeInfo(Struct):
        localExpertNums: Int16 = 1
        epSize: Int8 = 1
        tpSize: Int8 = 1

    trans_weight: bool = True
    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    has_residual: bool = False
    backend: str = "hccl"
    hccl_comm: Pointer = field(default=None, metadata=UNPRINTED)
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    type: ParallelType = ParallelType.LINEAR_ALL_REDUCE
    keep_intermediate: bool = False
    quant_type: QuantType = QuantType.QUANT_TYPE_UNQUANT
    quant_group_size: Int32 = 0
    out_data_type: AclDataType = AclDataType.ACL_DT_UNDEFINED
    comm_domain: str = ""
    two_dim_TP_info: TwoDimTPInfo = field(default_factory=TwoDimTPInfo, metadata=UNPRINTED)
    moe_info: MoeInfo = field(default_factory=MoeInfo)

    def entries(self, printed_only: bool) -> dict[str, Any]:
        """The expert counts are printed beside the other fields, the first in snake case."""
        result = super().entries(printed_only)
        moe = result.pop("moeInfo")
        return result | {
            "local_expert_nums": moe["localExpertNums"],
            "epSize": moe["epSize"],
            "tpSize": moe["tpSize"],
        }


@dataclass(repr=False)
class GroupedMatmulInplaceAddParam(Param):
    """Grouped matrix product added to an accumulator."""

    transpose_a: bool = False
    transpose_b: bool = False


@dataclass(repr=False)
class GroupedMatmulWithRoutingParam(Param):
    """Grouped matrix product of routed tokens."""

    class GroupedMatmulType(IntEnum):
        GROUPED_MATMUL_UP = 0
        GROUPED_MATMUL_DOWN = 1

    transpose_b: bool = True
    top_k: Int32 = 0
    grouped_matmul_type: GroupedMatmulType = field(
        default=GroupedMatmulType.GROUPED_MATMUL_UP, metadata={"key": "moeType"}
    )
    out_data_type: AclDataType = AclDataType.ACL_DT_UNDEFINED


class _OutputType(IntEnum):
    OUTPUT_FLOAT16 = 0
    OUTPUT_BFLOAT16 = 1
    OUTPUT_INVALID = 2


class _WeightUpPermuteType(IntEnum):
    PERMUTE_N256 = 0
    PERMUTE_N128 = 1
    PERMUTE_INVALID = 2


@dataclass(repr=False)
class GmmDeqSwigluQuantGmmDeqParam(Param):
    """Grouped quantised feed-forward block."""

    OutputType = _OutputType
    WeightUpPermuteType = _WeightUpPermuteType

    class GroupListType(IntEnum):
        GROUP_LIST_CUMSUM = 0
        GROUP_LIST_SINGLE = 1
        GROUP_LIST_INVALID = 2

    output_type: _OutputType = _OutputType.OUTPUT_FLOAT16
    group_list_type: GroupListType = GroupListType.GROUP_LIST_CUMSUM
    weight_up_permute_type: _WeightUpPermuteType = _WeightUpPermuteType.PERMUTE_N256
    transpose_weight_up: bool = False
    transpose_weight_down: bool = True


@dataclass(repr=False)
class MmDeqSwigluQuantMmDeqParam(Param):
    """Quantised feed-forward block."""

    OutputType = _OutputType
    WeightUpPermuteType = _WeightUpPermuteType

    output_type: _OutputType = _OutputType.OUTPUT_FLOAT16
    weight_up_permute_type: _WeightUpPermuteType = _WeightUpPermuteType.PERMUTE_N256
    transpose_weight_up: bool = False
    transpose_weight_down: bool = True
