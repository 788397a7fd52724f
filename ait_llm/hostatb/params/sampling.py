"""Parameters of sorting, sampling and expert selection."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from ait_llm.hostatb.params.base import UNPRINTED, Param
from ait_llm.hostatb.params.fields import Int32, Int32List, UInt16, UInt32, UInt32List


@dataclass(repr=False)
class MultinomialParam(Param):
    """Random draws from rows of probabilities."""

    num_samples: UInt32 = 1
    rand_seed: UInt32 = 0


@dataclass(repr=False)
class SortParam(Param):
    """The largest ``num[0]`` elements of each row, with their positions."""

    num: Int32List = field(default_factory=list)


@dataclass(repr=False)
class TopkToppSamplingParam(Param):
    """Sampling restricted to the k best tokens and to a share p of the probability."""

    class TopkToppSamplingType(IntEnum):
        SAMPLING_UNDEFINED = -1
        SINGLE_TOPK_SAMPLING = 0
        BATCH_TOPK_MULTINOMIAL_SAMPLING = 1
        BATCH_TOPK_EXPONENTIAL_SAMPLING = 2
        BATCH_TOPK_MULTINOMIAL_LOGPROBS_SAMPLING = 3
        BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING = 4
        SAMPLING_MAX = 5

    topk_topp_sampling_type: TopkToppSamplingType = TopkToppSamplingType.SINGLE_TOPK_SAMPLING
    rand_seeds: UInt32List = field(default_factory=list)
    rand_seed: UInt32 = 0
    topk: UInt32 = 100
    log_probs_size: Int32 = 0


@dataclass(repr=False)
class GatingParam(Param):
    """Order of tokens by expert."""

    prints_json = False

    topk_expert_num: Int32 = 1
    cum_sum_num: Int32 = 0
    cum_sum_int64: bool = field(default=False, metadata=UNPRINTED)
    device_expert: Int32List = field(default_factory=list)


@dataclass(repr=False)
class GroupTopkParam(Param):
    """Zeroing of all but the best expert groups, in place."""

    class GroupMultiFlag(IntEnum):
        UNDEFINED = 0
        SUM_MULTI_MAX = 1

    group_num: Int32 = 1
    k: Int32 = 0
    group_multi_flag: GroupMultiFlag = GroupMultiFlag.UNDEFINED
    n: UInt16 = 1
