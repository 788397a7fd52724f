"""How kernel launches are written down.

Kernel names, Mki operators and their parameter texts are those that the library selects on an
Ascend 910B (ascend-transformer-boost 8.5.0, ``src/ops/ops_infer``, ``src/kernels``). Tiling sizes
were recorded for AddF16, MulsF16, CastF16F32, SwishF16, SwiGluForward, ConcatF16, SoftmaxF16,
SplitF16, Gather16I64, Transpose16, RmsNorm and PpMatMulF16; the other ones follow the rule of their
kernel family (below) and are not recorded.

Three simplifications, for operators without a record: absent optional tensors that the library
hands to a kernel as null tensors are left out; kernels see tensors in the operation's own order and
shape; sequence lengths, which the library copies into the attention kernels' parameters, stay
tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.params.json_text import dump_json
from ait_llm.hostatb.spec import Kernel, Plan

Param = Mapping[str, Any]
Descs = Sequence[TensorDesc]

# Tiling buffer of a kernel whose tiling the tensor boost engine computes, as recorded; every
# constant tensor that the kernel appends to it takes 128 bytes more (Gather, Transpose).
TBE_TILING = 4096
CONST_TENSOR = 128

DTYPE_SUFFIX = {
    DType.FLOAT32: "F32",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.INT8: "I8",
    DType.INT32: "I32",
    DType.INT64: "I64",
}


def dtype_suffix(desc: TensorDesc) -> str:
    """How kernel names spell an element type.

    Raises:
        OperationError: no kernel takes that type.
    """
    try:
        return DTYPE_SUFFIX[desc.dtype]
    except KeyError:
        raise OperationError(f"no kernel takes tensors of type {desc.dtype.label}") from None


def single_kernel(
    name: str,
    mki_op: str,
    mki_param: Param,
    golden: str,
    param: Param,
    inputs: Descs,
    outputs: Descs,
    tiling_size: int = TBE_TILING,
) -> Plan:
    """A plan of one kernel that takes all inputs and makes all outputs of the operation."""
    return Plan(
        (
            Kernel(
                name=name,
                mki_op=mki_op,
                mki_param=dump_json(mki_param),
                inputs=tuple(range(len(inputs))),
                outputs=tuple(range(len(inputs), len(inputs) + len(outputs))),
                tiling_size=tiling_size,
                golden=golden,
                golden_param=param,
            ),
        )
    )
