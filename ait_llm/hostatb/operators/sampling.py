"""Kernels of Sort and TopkToppSampling.

The library samples with a chain of five or more kernels (sort, prefix sum, sampling, gathers); here
the whole chain is the sampling kernel.
"""

from __future__ import annotations

from ait_llm.errors import OperationError
from ait_llm.hostatb.operators.launch import (
    CONST_TENSOR,
    TBE_TILING,
    Descs,
    Param,
    dtype_suffix,
    single_kernel,
)
from ait_llm.hostatb.params.sampling import TopkToppSamplingParam
from ait_llm.hostatb.spec import OperatorSpec, Plan, operator_specs

_Type = TopkToppSamplingParam.TopkToppSamplingType
_EXPONENTIAL = (
    _Type.BATCH_TOPK_EXPONENTIAL_SAMPLING,
    _Type.BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING,
)
_LOGPROBS = (
    _Type.BATCH_TOPK_MULTINOMIAL_LOGPROBS_SAMPLING,
    _Type.BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING,
)


def _sort_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    return single_kernel(
        f"TopKDesc{dtype_suffix(outputs[0])}Kernel",
        "SortOperation",
        {"num": param["num"]},
        "SortOperation",
        param,
        inputs,
        outputs,
        TBE_TILING + CONST_TENSOR,
    )


def _sampling_names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    kind = int(param["topkToppSamplingType"])
    if not _Type.SINGLE_TOPK_SAMPLING <= kind < _Type.SAMPLING_MAX:
        raise OperationError(f"TopkToppSamplingOperation has no sampling type {kind}; use 0 to 4")
    four = (*_EXPONENTIAL, *_LOGPROBS)
    count = 2 if kind == _Type.SINGLE_TOPK_SAMPLING else 4 if kind in four else 3
    outputs = ("output1", "output2", "output3")[: 3 if kind in _LOGPROBS else 2]
    return ("x1", "x2", "x3", "x4")[:count], outputs


def _sampling_plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    single = int(param["topkToppSamplingType"]) == _Type.SINGLE_TOPK_SAMPLING
    seeds = [param["randSeed"]] if single else param["randSeeds"]
    return single_kernel(
        "AtbToppsampleKernel",
        "ToppsampleOperation",
        {"randSeed": seeds},
        "TopkToppSamplingOperation",
        param,
        inputs,
        outputs,
        3072,
    )


operator_specs.register("SortOperation")(
    OperatorSpec("SortOperation", lambda _: (("x",), ("output1", "output2")), _sort_plan)
)
operator_specs.register("TopkToppSamplingOperation")(
    OperatorSpec("TopkToppSamplingOperation", _sampling_names, _sampling_plan)
)
