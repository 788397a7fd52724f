"""Collective operators: every rank's tensors are there, one rank's result is graded."""

from __future__ import annotations

from typing import Any

import torch

from ait_llm.opcheck.selftest.cases import FLOATS, HALVES, Built, Draw, case, over_ranks

_RANKS = 4
_HIDDEN = 1024  # of a rank


def _one_tensor(
    op: str, variant: str = "", *, dtypes: tuple[torch.dtype, ...] = HALVES, ranks: int = _RANKS,
    rank: int = 1, **params: Any,
) -> None:  # fmt: skip
    @case(op, variant, dtypes=dtypes)
    def build(draw: Draw) -> Built:
        return over_ranks([([draw.floats(16, 128)], params) for _ in range(ranks)], rank=rank)


_one_tensor("AllReduceOperation", "sum, 2 ranks", ranks=2, dtypes=FLOATS, allReduceType="sum")
_one_tensor("AllReduceOperation", "sum, 8 ranks", ranks=8, allReduceType="sum")
_one_tensor("AllReduceOperation", "max", allReduceType="max")
_one_tensor("AllGatherOperation")
_one_tensor("ReduceScatterOperation", reduceType="sum")
_one_tensor("AllToAllOperation", "plain")
_one_tensor("AllToAllOperation", "transposed", transpose=True)
_one_tensor("BroadcastOperation", ranks=2, rank=0, rankRoot=1)


@case("AllReduceOperation", "int8", dtypes=(torch.float16,))
def all_reduce_int8(draw: Draw) -> Built:
    scale, offset = draw.around_one(128).abs() / 64, draw.integers(-4, 5, 128).half()
    params = {"quantType": 2, "outDataType": 1}
    ranks = [draw.integers(-128, 128, 16, 128, dtype=torch.int8) for _ in range(_RANKS)]
    return over_ranks([([x, scale, offset], params) for x in ranks], rank=1)


@case("AllGatherVOperation")
def all_gather_v(draw: Draw) -> Built:
    rows = (3, 5, 2, 6)
    counts = torch.tensor(rows) * 64
    places = counts.cumsum(0) - counts
    holder = torch.zeros(sum(rows)).half()
    return over_ranks(
        [
            ([draw.floats(count, 64), torch.tensor([count * 64]), counts, places, holder], {})
            for count in rows
        ]
    )


@case("ReduceScatterVOperation")
def reduce_scatter_v(draw: Draw) -> Built:
    rows = (8, 5, 6, 5)
    counts = torch.tensor(rows) * 64
    places = counts.cumsum(0) - counts
    return over_ranks(
        [
            ([draw.floats(24, 64), counts, places, counts[rank, None], torch.zeros(count).half()],
             {"reduceType": "sum"})
            for rank, count in enumerate(rows)
        ]
    )  # fmt: skip


def _exchanged(draw: Draw) -> tuple[list[torch.Tensor], list[dict[str, list[int]]]]:
    """Tensors of four ranks, and who sends how much of them to whom."""
    sent = draw.integers(20, 60, _RANKS, _RANKS, dtype=torch.int64)
    tables = [
        {
            "sendCounts": sent[rank].tolist(),
            "sdispls": (sent[rank].cumsum(0) - sent[rank]).tolist(),
            "recvCounts": sent[:, rank].tolist(),
            "rdispls": (sent[:, rank].cumsum(0) - sent[:, rank]).tolist(),
        }
        for rank in range(_RANKS)
    ]
    return [draw.floats(int(row.sum())) for row in sent], tables


@case("AllToAllVOperation")
def all_to_all_v(draw: Draw) -> Built:
    return over_ranks([([x], table) for x, table in zip(*_exchanged(draw), strict=True)])


@case("AllToAllVV2Operation")
def all_to_all_v2(draw: Draw) -> Built:
    ranks: list[tuple[list[torch.Tensor], dict[str, Any]]] = []
    for x, table in zip(*_exchanged(draw), strict=True):
        holder = torch.zeros(sum(table["recvCounts"]), dtype=torch.int8)
        ranks.append(([x, *(torch.tensor(own) for own in table.values()), holder], {}))
    return over_ranks(ranks)


@case("RecvOperation")
def receive(draw: Draw) -> Built:
    sent, holder = draw.floats(16, 64), torch.zeros(16, 64, dtype=draw.dtype)
    return over_ranks([([sent], {"destRank": 1}), ([holder], {"srcRank": 0})], rank=1)


def _parallel(kind: int, name: str, *, ranks: int = _RANKS, **params: Any) -> None:
    @case("LinearParallelOperation", name)
    def build(draw: Draw) -> Built:
        own = {"backend": "lcoc", "type": kind, **params}
        residual = [draw.floats(1, 96)] if params.get("hasResidual") else []
        return over_ranks(
            [
                ([draw.floats(16, _HIDDEN), draw.floats(96, _HIDDEN, scale=0.03), *residual], own)
                for _ in range(ranks)
            ],
            rank=1,
        )


_parallel(0, "all-reduce, 2 ranks", ranks=2)
_parallel(0, "all-reduce, residual", hasResidual=True, backend="hccl")
_parallel(0, "all-reduce, 8 ranks", ranks=8)
_parallel(1, "reduce-scatter")
_parallel(2, "all-gather", keepIntermediate=True)
_parallel(3, "pure linear")
_parallel(4, "two dimensions", twoDimTPInfo={"agDim": 2, "rsDim": 2, "innerDimIsAg": 1})


def _experts(kind: int, name: str) -> None:
    @case("LinearParallelOperation", name)
    def build(draw: Draw) -> Built:
        counts = draw.integers(3, 9, 2, 4)
        own = {
            "backend": "lcoc", "type": kind, "local_expert_nums": 2, "epSize": 2,
            "transWeight": False,
        }  # fmt: skip
        # Rows that a rank holds: of its tokens, or of its experts.
        held = counts.sum(1) if kind == 5 else counts.reshape(2, 2, 2).sum((0, 2))
        made = counts.reshape(2, 2, 2).sum((0, 2)) if kind == 5 else counts.sum(1)
        ranks = []
        for rank in range(2):
            weight = draw.floats(2, 128, 64, scale=0.1)
            holder = torch.zeros(int(made[rank]), dtype=torch.int32)
            ranks.append(([draw.floats(int(held[rank]), 128), weight, counts, holder], own))
        return over_ranks(ranks)


_experts(5, "to the experts")
_experts(6, "from the experts")
