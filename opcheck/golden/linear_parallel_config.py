"""Parameters of LinearParallel and the inputs that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ait_llm.core import DType
from ait_llm.opcheck.golden.base import Params, Refusal, UnverifiableError
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    int_param,
    nested_params,
    refused,
)

NAME = "LinearParallelOperation"


class ParallelType(IntEnum):
    """Values of ``type``."""

    LINEAR_ALL_REDUCE = 0
    LINEAR_REDUCE_SCATTER = 1
    ALL_GATHER_LINEAR = 2
    PURE_LINEAR = 3
    ALL_GATHER_LINEAR_REDUCE_SCATTER = 4
    ALLTOALLVC_ALL_GATHER_GMM = 5
    GMM_REDUCE_SCATTER_ALLTOALLVC = 6


class QuantType(IntEnum):
    """Values of ``quantType``."""

    NONE = -1
    PER_TENSOR = 0
    PER_CHANNEL = 1
    PER_GROUP = 2
    PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Config:
    """The parameters, and the names of the inputs that they imply, in order."""

    kind: ParallelType
    quant: QuantType
    transpose: bool
    keep: bool
    group_size: int
    out_dtype: DType
    names: tuple[str, ...]

    @property
    def moe(self) -> bool:
        """Whether it multiplies by expert."""
        return self.kind >= ParallelType.ALLTOALLVC_ALL_GATHER_GMM


def fused(params: Params) -> bool:
    """Whether the backend fuses; others sum up over ranks whatever ``type`` says."""
    return params.get("backend", "hccl") in ("lcoc", "mc2")


def read_config(params: Params) -> Config:
    """Read the parameters."""
    kind = ParallelType.LINEAR_ALL_REDUCE
    quant = QuantType.NONE
    if fused(params):
        kind = enum_param(NAME, params, "type", ParallelType, 0)
        quant = enum_param(NAME, params, "quantType", QuantType, -1)
    moe = kind >= ParallelType.ALLTOALLVC_ALL_GATHER_GMM
    quantised = quant is not QuantType.NONE
    keep = bool_param(NAME, params, "keepIntermediate", False)
    if keep and kind is not ParallelType.ALL_GATHER_LINEAR:
        raise refused(NAME, "keepIntermediate goes with type 2, ALL_GATHER_LINEAR", Refusal.PARAM)
    present = {
        "x": True,
        "weight": True,
        "bias": quantised and not moe,
        "scale": quantised,
        "residual": bool_param(NAME, params, "hasResidual", False),
        "token_scale": quant is QuantType.PER_TOKEN,
        "token_counts": moe,
        "shape_holder": moe,
    }
    return Config(
        kind,
        quant,
        bool_param(NAME, params, "transWeight", True),
        keep,
        int_param(NAME, params, "quantGroupSize", 0),
        dtype_param(NAME, params, "outDataType"),
        tuple(name for name, wanted in present.items() if wanted),
    )


def two_dimensions(params: Params, size: int) -> tuple[int, int, bool]:
    """Ranks that gather, ranks that scatter, and whether those that gather are neighbours.

    Raises:
        UnverifiableError: dumps do not carry them, and they were not given.
    """
    if "twoDimTPInfo" not in params:
        raise UnverifiableError(f"{NAME}: dumps do not carry twoDimTPInfo; give agDim and rsDim")
    info = nested_params(NAME, params, "twoDimTPInfo")
    gather, scatter = (int_param(NAME, info, key, 0) for key in ("agDim", "rsDim"))
    if gather < 1 or scatter < 1 or gather * scatter != size:
        raise refused(
            NAME, f"agDim {gather} times rsDim {scatter} must be rankSize {size}", Refusal.PARAM
        )
    return gather, scatter, bool(int_param(NAME, info, "innerDimIsAg", 1))
