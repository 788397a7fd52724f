"""Operators of mixtures of experts, and int8 products without recorded kernels."""

from __future__ import annotations

from ait_llm.hostatb.operators.generic import Names, add, listed
from ait_llm.hostatb.operators.launch import Param
from ait_llm.hostatb.params.enums import AclDataType

_BLOCK = "x1 weight1 scale1 perTokenScale1{} weight2 scale2"


def _gating_names(param: Param) -> Names:
    valid = ("validIndex",) if param["deviceExpert"] else ()
    return ("topk", "idxArr"), ("tokenIndex", "cumSum", "originalIndex", *valid)


def _routing_names(param: Param) -> Names:
    quantised = int(param["outDataType"]) != AclDataType.ACL_DT_UNDEFINED
    scales = ("scale", "scale2") if quantised else ()
    return ("input", "weight", "ecounts", "indices", *scales), ("output",)


add("GatingOperation", _gating_names)
add("GmmDeqSwigluQuantGmmDeqOperation", listed(_BLOCK.format(" groupList"), "output"))
add(
    "GroupedMatmulInplaceAddOperation",
    listed("x weight groupList out", "out"),
    aliases=lambda _: (3,),
)
add("GroupedMatmulWithRoutingOperation", _routing_names)
add("LinearSparseOperation", listed("input weight bias deqScale idx", "output"))
add("MmDeqSwigluQuantMmDeqOperation", listed(_BLOCK.format(""), "output"))
