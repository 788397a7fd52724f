"""Collective operators. hostatb has one rank: a larger group fails when it runs."""

from __future__ import annotations

from ait_llm.hostatb.operators.generic import Names, add, listed
from ait_llm.hostatb.operators.launch import Param
from ait_llm.hostatb.params.linear import LinearParallelParam

_Parallel = LinearParallelParam.ParallelType
_Quant = LinearParallelParam.QuantType
_EXPERTS = (_Parallel.ALLTOALLVC_ALL_GATHER_GMM, _Parallel.GMM_REDUCE_SCATTER_ALLTOALLVC)


def _reduce_names(param: Param) -> Names:
    return ("x", *(("scale", "offset") if int(param["quantType"]) else ())), ("output",)


def _parallel_names(param: Param) -> Names:
    fused = param["backend"] in ("lcoc", "mc2")
    experts = fused and int(param["type"]) in _EXPERTS
    quant = int(param["quantType"]) if fused else int(_Quant.QUANT_TYPE_UNQUANT)
    quantised = quant != _Quant.QUANT_TYPE_UNQUANT
    scales = ("deqScale",) if experts else ("bias", "scale")
    inputs = (
        *("input", "weight"),
        *(scales if quantised else ()),
        *(("residual",) if param["hasResidual"] else ()),
        *(("dequantPerTokenScale",) if quant == _Quant.QUANT_TYPE_PER_TOKEN else ()),
        *(("globalTokensPerExpertMatrix", "maxOutputSize") if experts else ()),
    )
    return inputs, ("output", "midOutput") if param["keepIntermediate"] else ("output",)


add("AllGatherOperation", listed("x", "output"))
add("AllGatherVOperation", listed("x sendCount recvCounts rdispls y", "output"))
add("AllReduceOperation", _reduce_names)
add("AllToAllOperation", listed("x", "output"))
add("AllToAllVOperation", listed("x", "output"))
add(
    "AllToAllVV2Operation",
    listed("x sendCount sdispls recvCount rdispls tensorForInferShape", "output"),
)
# The operator table names an output of Broadcast, which works in its input's memory.
add("BroadcastOperation", listed("x", ""), updated=(0,))
add("LinearParallelOperation", _parallel_names)
add("RecvOperation", listed("x", "output"))
add("ReduceScatterOperation", listed("x", "output"))
add("ReduceScatterVOperation", listed("x sendCounts sdispls recvCount y", "output"))
add("SendOperation", listed("x", ""))
