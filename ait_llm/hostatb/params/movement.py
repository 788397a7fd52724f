"""Parameters of operators that move, select or rearrange elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import Param
from ait_llm.hostatb.params.fields import Int32, Int32List, Int64, Int64List


@dataclass(repr=False)
class AsStridedParam(Param):
    """A strided view made contiguous."""

    size: Int64List = field(default_factory=list)
    stride: Int64List = field(default_factory=list)
    offset: Int64List = field(default_factory=list)


@dataclass(repr=False)
class GatherParam(Param):
    """Selection of slices along ``axis``."""

    axis: Int64 = 0
    batch_dims: Int64 = 0


@dataclass(repr=False)
class SplitParam(Param):
    """Two or three parts along ``split_dim``."""

    split_dim: Int32 = 0
    split_num: Int32 = 2
    split_sizes: Int32List = field(default_factory=list)


@dataclass(repr=False)
class ConcatParam(Param):
    """Two tensors joined along ``concat_dim``."""

    concat_dim: Int32 = 0


@dataclass(repr=False)
class SliceParam(Param):
    """A block given by its start and size per axis."""

    offsets: Int64List = field(default_factory=list)
    size: Int64List = field(default_factory=list)


@dataclass(repr=False)
class TransposeParam(Param):
    """Axes in a new order."""

    perm: Int32List = field(default_factory=list)


@dataclass(repr=False)
class TransdataParam(Param):
    """Conversion between ND and FRACTAL_NZ."""

    class TransdataType(IntEnum):
        UNDEFINED = 0
        FRACTAL_NZ_TO_ND = 1
        ND_TO_FRACTAL_NZ = 2

    transdata_type: TransdataType = TransdataType.UNDEFINED
    out_crops: Int64List = field(default_factory=lambda: [0, 0])


@dataclass(repr=False)
class RepeatParam(Param):
    """Tiling along every axis."""

    multiples: Int64List = field(default_factory=list)


@dataclass(repr=False)
class SetValueParam(Param):
    """Overwriting a block in place."""

    starts: Int64List = field(default_factory=list)
    ends: Int64List = field(default_factory=list)
    strides: Int64List = field(default_factory=list)


@dataclass(repr=False)
class IndexAddParam(Param):
    """Scaled addition into selected slices."""

    class IndexType(IntEnum):
        INDEX_UNDEFINED = 0
        INDEX_ADD = 1
        INDEX_ADD_VALID = 2

    index_type: IndexType = IndexType.INDEX_UNDEFINED
    axis: Int64 = 0


@dataclass(repr=False)
class ScatterElementsV2Param(Param):
    """Scatter of elements along ``axis``, in place."""

    class ReductionType(IntEnum):
        NONE = 0
        ADD = 1

    axis: Int32 = -1
    reduction: ReductionType = ReductionType.NONE


@dataclass(repr=False)
class NonzeroParam(Param):
    """Positions of non-zero elements; no fields."""

    prints_json = False


@dataclass(repr=False)
class PadParam(Param):
    """Packed tokens to a padded batch; no fields."""

    prints_json = False


@dataclass(repr=False)
class UnpadParam(Param):
    """Padded batch to packed tokens; no fields."""

    prints_json = False
