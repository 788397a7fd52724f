"""Parameters of collectives and of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import UNPRINTED, Param
from ait_llm.hostatb.params.enums import AclDataType, CommMode
from ait_llm.hostatb.params.fields import Int32, Int64, Int64List, Pointer, UInt32, UInt64


@dataclass(repr=False)
class AllGatherParam(Param):
    """Tensors of all ranks stacked."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    backend: str = "hccl"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class AllGatherVParam(AllGatherParam):
    """Tensors of all ranks, of different lengths, joined."""

    rank: Int32 = -1


@dataclass(repr=False)
class AllToAllParam(AllGatherParam):
    """Exchange of equal parts between ranks."""

    transpose: bool = field(default=False, metadata=UNPRINTED)


@dataclass(repr=False)
class AllToAllVV2Param(AllGatherParam):
    """Exchange of unequal parts whose sizes are tensors."""

    rank: Int32 = -1


@dataclass(repr=False)
class AllToAllVParam(Param):
    """Exchange of unequal parts between ranks."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    send_counts: Int64List = field(default_factory=list)
    sdispls: Int64List = field(default_factory=list)
    recv_counts: Int64List = field(default_factory=list)
    rdispls: Int64List = field(default_factory=list)
    backend: str = "hccl"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class AllReduceParam(Param):
    """Sum or another reduction over all ranks."""

    class QuantType(IntEnum):
        QUANT_TYPE_UNQUANT = 0
        QUANT_TYPE_UNDEFINED = 0
        QUANT_TYPE_PER_TENSOR = 1
        QUANT_TYPE_PER_CHANNEL = 2
        QUANT_TYPE_MAX = 3

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    all_reduce_type: str = "sum"
    backend: str = "hccl"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""
    quant_type: QuantType = QuantType.QUANT_TYPE_UNQUANT
    out_data_type: AclDataType = AclDataType.ACL_DT_UNDEFINED


@dataclass(repr=False)
class BroadcastParam(Param):
    """The root's tensor on all ranks."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    backend: str = "hccl"
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class ReduceScatterParam(Param):
    """Reduction whose result is shared out."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    reduce_type: str = "sum"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    backend: str = "lccl"
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class ReduceScatterVParam(Param):
    """Reduction whose result is shared out in unequal parts."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    send_counts: Int64List = field(default_factory=list)
    sdispls: Int64List = field(default_factory=list)
    recv_count: Int64 = 0
    reduce_type: str = "sum"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    backend: str = "hccl"
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class SendParam(Param):
    """Sending to one rank."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    dest_rank: UInt32 = 1
    backend: str = "hccl"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class RecvParam(Param):
    """Receiving from one rank."""

    rank: Int32 = 0
    rank_size: Int32 = 0
    rank_root: Int32 = 0
    src_rank: UInt32 = 1
    backend: str = "hccl"
    hccl_comm: Pointer = None
    comm_mode: CommMode = CommMode.COMM_MULTI_PROCESS
    rank_table_file: str = ""
    comm_domain: str = ""


@dataclass(repr=False)
class EventParam(Param):
    """Recording of, or waiting for, a stream event; ``event`` is its address."""

    class OperatorType(IntEnum):
        UNDEFINED = 0
        RECORD = 1
        WAIT = 2

    event: UInt64 = 0
    operator_type: OperatorType = OperatorType.UNDEFINED
