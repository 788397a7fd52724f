"""What operators between ranks refuse, and with which status."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb import AllReduceParam, Operation
from ait_llm.hostatb.acceptance import Gate
from ait_llm.hostatb.acceptance.ranks import require_domain
from ait_llm.hostatb.native import NativeStatusError, Status
from ait_llm.hostatb.params.base import param_types
from ait_llm.opcheck.golden.base import Refusal, RefusedError

F16, F32, BF16 = DType.FLOAT16, DType.FLOAT32, DType.BFLOAT16
I8, I16, I64 = DType.INT8, DType.INT16, DType.INT64
_COUNTS = {
    "AllGatherV": 5, "ReduceScatterV": 5, "AllToAllVV2": 6,
}  # fmt: skip


def _gate(name: str, count: int | None = None, **fields: Any) -> Gate:
    kind = param_types.get(f"{name}Param")
    given = {"rank": 0, "rank_size": 2} | fields
    entries = kind(**given).entries(printed_only=False)
    return Gate(f"{name}Operation", entries, count or _COUNTS.get(name, 1))


def _status(call: Any, *args: Any) -> int:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status


_NAMES = [
    "AllGather", "AllGatherV", "AllReduce", "AllToAll", "AllToAllV", "AllToAllVV2", "Broadcast",
    "ReduceScatter", "Send", "Recv",
]  # fmt: skip
_MOVES = {
    "send_counts": [1, 1], "sdispls": [0, 1], "recv_counts": [1, 1], "rdispls": [0, 1],
}  # fmt: skip


def _moves(name: str) -> dict[str, Any]:
    return dict(_MOVES) if name == "AllToAllV" else {}


@pytest.mark.parametrize("name", _NAMES)
def test_a_rank_is_in_its_group(name: str) -> None:
    _gate(name, **_moves(name))
    for wrong in ({"rank": 2}, {"rank_root": 2}, {"rank_size": 0}, {"backend": "mpi"}):
        assert _status(lambda wrong=wrong: _gate(name, **_moves(name) | wrong)) == Refusal.PARAM


def test_a_rank_table_or_a_communicator_says_which_ranks_there_are(tmp_path: Any) -> None:
    table = tmp_path / "table.json"
    table.touch()
    _gate("AllGather", rank_size=0, rank_table_file=str(table))
    _gate("AllGather", rank_size=0, hccl_comm=1)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("AllReduce", {"all_reduce_type": "mean"}),
        ("AllReduce", {"all_reduce_type": "prod", "backend": "lccl"}),
        ("ReduceScatter", {"reduce_type": "mean"}),
        ("ReduceScatter", {"reduce_type": "prod", "backend": "lccl"}),
        ("ReduceScatterV", {"reduce_type": "prod"}),
        ("AllGatherV", {"rank_size": 1}),
        ("AllToAll", {"backend": "hccl", "transpose": True}),
        ("AllToAll", {"backend": "lccl"}),
        ("AllToAll", {"backend": "lccl", "transpose": True, "rank_size": 3}),
        ("AllToAllV", {"send_counts": [1]}),
        ("AllToAllV", {"rdispls": [0, -1]}),
        ("Send", {"dest_rank": 0}),
        ("Recv", {"src_rank": 2}),
    ],
)
def test_an_exchange_is_not_created_of_such_parameters(name: str, fields: dict[str, Any]) -> None:
    assert _status(lambda: _gate(name, **_moves(name) | fields)) == Refusal.PARAM


@pytest.mark.parametrize(
    ("name", "fields", "dtype", "status"),
    [
        ("AllReduce", {"backend": "lccl"}, I64, Refusal.DTYPE),
        ("AllReduce", {"all_reduce_type": "prod"}, I16, Refusal.DTYPE),
        ("ReduceScatter", {"backend": "hccl", "reduce_type": "prod"}, BF16, Refusal.DTYPE),
        ("Broadcast", {}, DType.BOOL, Refusal.OPERATOR_TABLE),
    ],
)
def test_types_that_a_backend_cannot_reduce_are_refused(
    name: str, fields: dict[str, Any], dtype: DType, status: int
) -> None:
    gate = _gate(name, **fields)
    assert _status(gate.check_inputs, [TensorDesc(dtype, (4, 8))]) == status


@pytest.mark.parametrize(
    ("scale", "offset", "status"),
    [
        ((1, 1, 32), (1,), Refusal.DIM_COUNT),
        ((2, 32), (1,), Refusal.DIM),
        ((32,), (32,), Refusal.DIM),
    ],
)
def test_a_quantised_sum_has_a_scale_by_channel_and_one_offset(
    scale: tuple[int, ...], offset: tuple[int, ...], status: int
) -> None:
    kind = param_types.get("AllReduceParam")
    quant, out = kind.QuantType(2), type(kind().out_data_type)(1)
    gate = _gate("AllReduce", 3, backend="lccl", quant_type=quant, out_data_type=out)
    x = TensorDesc(I8, (4, 32))
    gate.check_inputs([x, TensorDesc(F16, (1, 32)), TensorDesc(F16, (1,))])
    given = [x, TensorDesc(F16, scale), TensorDesc(F16, offset)]
    assert _status(gate.check_inputs, given) == status


def test_gathering_adds_a_dimension_and_checks_no_other() -> None:
    gate = _gate("AllGather")
    x, right = TensorDesc(F16, (3, 4)), TensorDesc(F16, (2, 3, 4))
    gate.check_setup([x], [TensorDesc(F16, (2, 3, 5))], lambda: [right])
    for shape in ((6, 4), (3, 3, 4)):
        wrong = TensorDesc(F16, shape)
        assert _status(gate.check_setup, [x], [wrong], lambda: [right]) == Refusal.DIM
    assert _status(gate.check_inputs, [TensorDesc(F16, (1,) * 8)]) == Refusal.DIM


def test_scattering_divides_the_first_dimension() -> None:
    gate = _gate("ReduceScatter")
    assert _status(gate.check_inputs, [TensorDesc(F16, (3, 4))]) == Refusal.DIM


@pytest.mark.parametrize(
    ("name", "shapes", "status"),
    [
        ("AllGatherV", ((4, 3), (1, 1), (2,), (2,), (8,)), Refusal.DIM_COUNT),
        ("AllGatherV", ((4, 3), (2,), (2,), (2,), (8,)), Refusal.DIM),
        ("ReduceScatterV", ((4, 3, 1), (2,), (2,), (1,), (2,)), Refusal.DIM_COUNT),
        ("ReduceScatterV", ((4, 3), (2,), (3,), (1,), (2,)), Refusal.DIM),
    ],
)
def test_counts_of_unequal_parts_are_one_for_each_rank(
    name: str, shapes: tuple[tuple[int, ...], ...], status: int
) -> None:
    types = (F16, I64, I64, I64, F16)
    given = [TensorDesc(*one) for one in zip(types, shapes, strict=True)]
    assert _status(_gate(name).check_inputs, given) == status


@pytest.mark.parametrize(
    "moves",
    [
        {"send_counts": [5, 1]},
        {"recv_counts": [0, 0]},
        {"rdispls": [0, 2]},
        {"recv_counts": [1 << 62, 1 << 62]},
    ],
)
def test_unequal_parts_stay_inside_their_tensors(moves: dict[str, Any]) -> None:
    gate = _gate("AllToAllV", **_MOVES | moves)
    assert _status(gate.check_inputs, [TensorDesc(F16, (2, 2))]) == Refusal.PARAM


@pytest.mark.parametrize(
    ("shape", "status"),
    [
        ((2, 2, 2), Refusal.DIM_COUNT),
        ((2, 3), Refusal.DIM),
        ((1, 46080), Refusal.DIM),
        ((20000, 8192), Refusal.DIM),
    ],
    ids=["three dimensions", "odd columns", "long rows", "large tensor"],
)
def test_a_transposing_exchange_takes_matrices_of_some_size(
    shape: tuple[int, ...], status: int
) -> None:
    gate = _gate("AllToAll", backend="lccl", transpose=True)
    assert _status(gate.check_inputs, [TensorDesc(F16, shape)]) == status


@pytest.mark.parametrize("domain", ["65536", "x", "1:0", "1:x", ":5"])
def test_no_communicator_is_made_of_a_domain_out_of_range(domain: str) -> None:
    given = {"backend": "lccl", "commMode": 0, "commDomain": domain}
    assert _status(require_domain, given) == Refusal.COMM_EMPTY
    require_domain(given | {"backend": "hccl"})


def test_an_exchange_in_such_a_domain_fails_when_it_runs_with_its_own_status() -> None:
    param = AllReduceParam(rank=0, rank_size=1, backend="lccl", comm_domain="65536")
    with pytest.raises(OperationError) as caught:
        Operation(param).forward([torch.ones(2, 3)])
    assert isinstance(caught.value.__cause__, NativeStatusError)
    assert caught.value.__cause__.status == Status.COMM_EMPTY


@pytest.mark.parametrize("domain", ["", "0", "65535", "7:100"])
def test_domains_are_numbers_and_sizes(domain: str) -> None:
    require_domain({"backend": "lccl", "commMode": 0, "commDomain": domain})
