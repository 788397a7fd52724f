"""Parameters of the operators of the training library."""

from __future__ import annotations

from dataclasses import dataclass, field

from ait_llm.hostatb.params.base import Param
from ait_llm.hostatb.params.fields import Float32, Int32, Int32List


@dataclass(repr=False)
class GenAttentionMaskParam(Param):
    """Ragged masks cut out of padded ones."""

    head_num: Int32 = 1
    seq_len: Int32List = field(default_factory=list)


@dataclass(repr=False)
class RopeGradParam(Param):
    """Gradient of the rotary embedding."""

    q_seq_len: Int32List = field(default_factory=list, metadata={"key": "c_qSeqLen"})


@dataclass(repr=False)
class FastSoftMaxParam(Param):
    """Softmax over ragged attention scores."""

    head_num: Int32 = 0
    q_seq_len: Int32List = field(default_factory=list)


@dataclass(repr=False)
class FastSoftMaxGradParam(FastSoftMaxParam):
    """Gradient of the softmax over ragged attention scores."""


@dataclass(repr=False)
class StridedBatchMatmulParam(Param):
    """Matrix products of different sizes with explicit strides."""

    transpose_a: bool = False
    transpose_b: bool = False
    batch: Int32 = 1
    head_num: Int32 = 1
    m: Int32List = field(default_factory=list)
    n: Int32List = field(default_factory=list)
    k: Int32List = field(default_factory=list)
    lda: Int32List = field(default_factory=list)
    ldb: Int32List = field(default_factory=list)
    ldc: Int32List = field(default_factory=list)
    stride_a: Int32List = field(default_factory=list)
    stride_b: Int32List = field(default_factory=list)
    stride_c: Int32List = field(default_factory=list)


@dataclass(repr=False)
class UnpadWithHiddenStateParam(Param):
    """Padded hidden states to packed ones."""

    prints_json = False

    q_seq_len: Int32List = field(default_factory=list)
    max_seq_len: Int32 = 4096


@dataclass(repr=False)
class PadWithHiddenStateParam(UnpadWithHiddenStateParam):
    """Packed hidden states to padded ones."""


@dataclass(repr=False)
class RmsNormBackwardParam(Param):
    """Gradient of RmsNorm; no fields."""

    prints_json = False


@dataclass(repr=False)
class LaserAttentionParam(Param):
    """Attention of the training library."""

    head_num: Int32 = 0
    input_layout: str = "BNSD"
    scale_value: Float32 = 0.08838834764831843
    keep_prob: Float32 = 1.0
    pre_tokens: Int32 = 2147483647
    next_tokens: Int32 = 1
    sparse_mode: Int32 = 0
    inner_precise: Int32 = 1


@dataclass(repr=False)
class LaserAttentionGradParam(LaserAttentionParam):
    """Gradient of the attention of the training library."""
