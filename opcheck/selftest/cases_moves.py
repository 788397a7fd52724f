"""Operators that copy, select and order."""

from __future__ import annotations

from typing import Any

import torch

from ait_llm.opcheck.selftest.cases import HALVES, Built, Draw, case


def _moves(op: str, shape: tuple[int, ...], variant: str = "", **params: Any) -> None:
    @case(op, variant, dtypes=HALVES)
    def build(draw: Draw) -> Built:
        return Built([draw.floats(*shape)], params)


_moves("TransposeOperation", (24, 4, 32), perm=[1, 0, 2])
_moves("SplitOperation", (16, 96), splitDim=1, splitNum=3, splitSizes=[])
_moves("SliceOperation", (16, 96), offsets=[2, 16], size=[8, 64])
_moves("RepeatOperation", (8, 32), multiples=[2, 3])
_moves("AsStridedOperation", (16, 32), offset=[3], size=[8, 8], stride=[32, 2])
_moves("TransdataOperation", (40, 72), transdataType=2)
_moves("SortOperation", (16, 64), num=[8])


@case("ConcatOperation")
def concat(draw: Draw) -> Built:
    return Built([draw.floats(16, 32), draw.floats(16, 48)], {"concatDim": 1})


@case("GatherOperation")
def gather(draw: Draw) -> Built:
    return Built([draw.floats(64, 48), draw.order(64, 20)], {"axis": 0, "batchDims": 0})


@case("FillOperation", dtypes=(torch.float16,))
def fill(draw: Draw) -> Built:
    mask = draw.integers(0, 2, 16, 32, dtype=torch.int8)
    return Built([draw.floats(16, 32), mask], {"withMask": True, "value": [-1.0], "outDim": []})


@case("SetValueOperation")
def set_value(draw: Draw) -> Built:
    params = {"starts": [0, 0], "ends": [8, 32], "strides": [1, 1]}
    return Built([draw.floats(16, 32), draw.floats(8, 32)], params)


@case("WhereOperation")
def where(draw: Draw) -> Built:
    condition = draw.integers(0, 2, 16, 64, dtype=torch.int8)
    return Built([condition, draw.floats(16, 64), draw.floats(16, 64)], {})


@case("OnehotOperation", dtypes=(torch.float16,))
def onehot(draw: Draw) -> Built:
    one, zero = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    return Built([draw.integers(0, 16, 32), one, zero], {"axis": 1, "depth": 16})


@case("NonzeroOperation", dtypes=(torch.float16,))
def nonzero(draw: Draw) -> Built:
    return Built([draw.integers(0, 2, 8, 32, dtype=torch.int64)], {})


@case("BlockCopyOperation")
def block_copy(draw: Draw) -> Built:
    caches = [draw.floats(8, 16, 2, 16), draw.floats(8, 16, 2, 16)]
    source, target, ends = ([0, 3], [5, 6, 7], [1, 3])
    places = [torch.tensor(values, dtype=torch.int32) for values in (source, target, ends)]
    return Built([*caches, *places], {})


@case("GenAttentionMaskOperation", dtypes=(torch.float16,))
def attention_mask(draw: Draw) -> Built:
    return Built([draw.floats(2, 1, 16, 16)], {"headNum": 2, "seqLen": [11, 16]})


@case("GatingOperation", dtypes=(torch.float16,))
def gating(draw: Draw) -> Built:
    experts = draw.integers(0, 8, 32)
    slots = torch.arange(32, dtype=torch.int32)
    return Built([experts, slots], {"topkExpertNum": 2, "cumSumNum": 8})


@case("UnpadOperation", dtypes=(torch.float16,))
def unpad(draw: Draw) -> Built:
    ids = draw.integers(1, 1000, 4, 16, dtype=torch.int64)
    lengths = torch.tensor([5, 16, 9, 12])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (16 - lengths).cumsum(0)[:-1]])
    total = lengths.sum().reshape(1, 1)
    column = [values.to(torch.int32).reshape(4, 1) for values in (offsets, lengths)]
    return Built([ids, column[0], total, column[1]], {})


@case("ScatterElementsV2Operation", "add", dtypes=HALVES)
def scatter_add(draw: Draw) -> Built:
    index = torch.stack([draw.order(64, 16) for _ in range(16)])
    return Built([draw.floats(16, 64), index, draw.floats(16, 16)], {"axis": -1, "reduction": 1})


@case("ScatterElementsV2Operation", "replace", dtypes=HALVES)
def scatter(draw: Draw) -> Built:
    index = torch.stack([draw.order(64, 16) for _ in range(16)])
    return Built([draw.floats(16, 64), index, draw.floats(16, 16)], {"axis": -1, "reduction": 0})


@case("GroupTopkOperation")
def group_topk(draw: Draw) -> Built:
    table = torch.arange(1024, dtype=torch.int32)
    params = {"groupNum": 8, "k": 4, "groupMultiFlag": 0, "n": 1}
    return Built([draw.floats(16, 64), table], params)


@case("PadOperation", dtypes=(torch.float16,))
def pad(draw: Draw) -> Built:
    lengths = torch.tensor([[7], [16], [9]], dtype=torch.int32)
    offsets = torch.zeros(1, 32, dtype=torch.int32)
    return Built([draw.floats(32, 64), offsets, lengths, torch.zeros(3, 16).long()], {})


@case("UnpadWithHiddenStateOperation", dtypes=(torch.float16,))
def unpad_states(draw: Draw) -> Built:
    return Built([draw.floats(3, 16, 32)], {"qSeqLen": [5, 16, 9], "maxSeqLen": 16})


@case("PadWithHiddenStateOperation", dtypes=(torch.float16,))
def pad_states(draw: Draw) -> Built:
    return Built([draw.floats(30, 32)], {"qSeqLen": [5, 16, 9], "maxSeqLen": 16})


@case("ReshapeAndCacheOmniOperation")
def compressed_cache(draw: Draw) -> Built:
    states = [draw.floats(30, 2, 32), draw.floats(30, 2, 32)]
    caches = [draw.floats(6, 16, 1, 32), draw.floats(6, 16, 1, 32)]
    rows = ([0, 20, 40, 64], [4, 3, 6, 2], [14, 16], [2, -1, 0, 9])
    return Built([*states, *caches, *(torch.tensor(own, dtype=torch.int32) for own in rows)], {})


@case("ReshapeAndCacheWithStrideOperation")
def strided_cache(draw: Draw) -> Built:
    packed = [draw.floats(40, 4, 32), draw.floats(40, 4, 32)]
    caches = [draw.floats(6, 16, 4, 32), draw.floats(6, 16, 4, 32)]
    strides = [torch.tensor([64, 32, 1]), torch.tensor([96, 32, 1])]
    offsets = [torch.tensor([128]), torch.tensor([0])]
    return Built([*packed, *caches, draw.order(96, 40), *strides, *offsets], {})
