"""Collective operators: definitions over the tensors of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Result, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.support import desc_of

Inputs = Sequence[Sequence[Tensor]]


def run_ranks(op: str, inputs: Inputs, params: dict[str, Any] | Sequence[dict[str, Any]]) -> Any:
    """Results of every rank; shapes must be those inferred."""
    golden = golden_ops.get(op)
    assert golden.compute_ranks is not None
    if isinstance(params, dict):
        params = [{"rank": r, "rankSize": len(inputs), **params} for r in range(len(inputs))]
    kept = [[tensor.clone() for tensor in own] for own in inputs]
    results = golden.compute_ranks(inputs, params, GOLDEN)
    for before, after in zip(kept, inputs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    for own, own_params, result in zip(inputs, params, results, strict=True):
        inferred = golden.infer_shape([desc_of(tensor) for tensor in own], own_params)
        assert [desc_of(t) for t in result.outputs] == [
            TensorDesc(d.dtype, d.shape) for d in inferred
        ]
    return results


def outputs(results: Sequence[Result], index: int = 0) -> list[Tensor]:
    return [result.outputs[index] for result in results]


def test_all_gather_stacks_in_rank_order() -> None:
    tensors = [torch.full((2, 3), float(rank), dtype=torch.bfloat16) for rank in range(3)]
    for gathered in outputs(run_ranks("AllGatherOperation", [[x] for x in tensors], {})):
        assert [gathered[rank].float().unique().tolist() for rank in range(3)] == [
            [0.0],
            [1.0],
            [2.0],
        ]


def test_all_gather_v_places_each_ranks_elements() -> None:
    tensors = [
        torch.arange(4.0).half().reshape(2, 2),
        torch.arange(10.0, 16.0).half().reshape(3, 2),
    ]
    counts, places = torch.tensor([4, 6]), torch.tensor([6, 0])
    inputs = [
        [x, torch.tensor([x.numel()]), counts, places, torch.zeros(5).half()] for x in tensors
    ]
    expected = torch.cat([tensors[1], tensors[0]])
    for gathered in outputs(run_ranks("AllGatherVOperation", inputs, {})):
        assert torch.equal(gathered, expected)


@given(
    ranks=st.integers(1, 4),
    how=st.sampled_from(["sum", "prod", "max", "min"]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.int32]),
    seed=st.integers(0, 999),
)
@settings(max_examples=25, deadline=None)
def test_all_reduce_equals_a_float64_reduction(
    ranks: int, how: str, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randint(-5, 6, (2, 3), generator=generator).to(dtype) for _ in range(ranks)]
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda t: t.sum(0),
        "prod": lambda t: t.prod(0),
        "max": lambda t: t.amax(0),
        "min": lambda t: t.amin(0),
    }
    expected = functions[how](torch.stack(tensors).double()).to(dtype)
    results = run_ranks("AllReduceOperation", [[x] for x in tensors], {"allReduceType": how})
    assert all(torch.equal(found, expected) for found in outputs(results))


def test_all_reduce_rounds_bfloat16_sums_once() -> None:
    tensors = [torch.tensor([256.0], dtype=torch.bfloat16)] + [
        torch.tensor([1.0], dtype=torch.bfloat16) for _ in range(4)
    ]
    found = outputs(run_ranks("AllReduceOperation", [[x] for x in tensors], {}))[0]
    assert found.item() == 260.0  # rounding after every term would stay at 256


@pytest.mark.parametrize(("kind", "width", "offsets"), [(1, 1, 1), (2, 3, 3), (2, 3, 1)])
def test_quantised_all_reduce_adds_the_offset_for_every_rank(
    kind: int, width: int, offsets: int
) -> None:
    tensors = [torch.tensor([[100, -100, 7]], dtype=torch.int8) for _ in range(3)]
    scale = torch.tensor([0.5, 0.25, 2.0][:width], dtype=torch.float16)
    offset = torch.tensor([1.0, -2.0, 3.0][:offsets], dtype=torch.float16)
    params = {"quantType": kind, "outDataType": 1}
    found = outputs(run_ranks("AllReduceOperation", [[x, scale, offset] for x in tensors], params))
    expected = (torch.tensor([[300.0, -300.0, 21.0]]) + 3 * offset.float()) * scale.float()
    assert torch.equal(found[1], expected.half())


def test_linear_parallel_takes_quantised_weights_without_a_bias() -> None:
    params = {"backend": "lcoc", "type": 3, "quantType": 1, "transWeight": False}
    descs = [
        TensorDesc(DType.FLOAT16, (3, 8)),
        TensorDesc(DType.INT8, (8, 5)),
        TensorDesc(DType.UNDEFINED, ()),
        TensorDesc(DType.FLOAT16, (1, 5)),
    ]
    (found,) = golden_ops.get("LinearParallelOperation").infer_shape(descs, params)
    assert (found.dtype, found.shape) == (DType.FLOAT16, (3, 5))


@given(ranks=st.integers(1, 4), rows=st.integers(1, 3), parts=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_all_to_all_is_its_own_inverse(ranks: int, rows: int, parts: int) -> None:
    tensors = [torch.randint(0, 99, (rows, ranks * parts)) for _ in range(ranks)]
    there = outputs(run_ranks("AllToAllOperation", [[x] for x in tensors], {}))
    back = outputs(run_ranks("AllToAllOperation", [[x] for x in there], {}))
    assert all(torch.equal(a, b) for a, b in zip(tensors, back, strict=True))
    for target in range(ranks):
        pieces = there[target].reshape(ranks, -1)
        for source in range(ranks):
            part = tensors[source].reshape(ranks, -1)[target]
            assert torch.equal(pieces[source], part)


def test_transposed_all_to_all_stacks_column_ranges() -> None:
    tensors = [torch.arange(8).reshape(2, 4).half() + 100 * rank for rank in range(2)]
    params = {"transpose": True}
    first, second = outputs(run_ranks("AllToAllOperation", [[x] for x in tensors], params))
    assert first.tolist() == [[0, 1], [4, 5], [100, 101], [104, 105]]
    assert second.tolist() == [[2, 3], [6, 7], [102, 103], [106, 107]]


def test_transposition_is_told_by_the_shapes() -> None:
    recover = golden_ops.get("AllToAllOperation").recover
    x = torch.zeros(2, 4)
    assert recover([x], [torch.zeros(4, 2)], {})["transpose"] is True
    assert recover([x], [torch.zeros(2, 4)], {})["transpose"] is False
    assert recover([x], [torch.zeros(4, 2)], {"transpose": False})["transpose"] is False


COUNTS = [
    {"sendCounts": [1, 3], "sdispls": [3, 0], "recvCounts": [1, 2], "rdispls": [2, 0]},
    {"sendCounts": [2, 1], "sdispls": [1, 0], "recvCounts": [3, 1], "rdispls": [0, 3]},
]


@pytest.mark.parametrize("by_tensors", [False, True])
def test_all_to_all_v_uses_the_counts_of_the_sender(by_tensors: bool) -> None:
    tensors = [torch.tensor([10, 11, 12, 13]), torch.tensor([20, 21, 22, 23])]
    if by_tensors:
        inputs: list[list[Tensor]] = [
            [
                x,
                *(torch.tensor(own[key]) for key in own),
                torch.zeros(sum(own["recvCounts"])).to(torch.int8),
            ]
            for x, own in zip(tensors, COUNTS, strict=True)
        ]
        results = run_ranks("AllToAllVV2Operation", inputs, {})
    else:
        params = [{"rankSize": 2, "rank": rank, **own} for rank, own in enumerate(COUNTS)]
        results = run_ranks("AllToAllVOperation", [[x] for x in tensors], params)
    assert [found.tolist() for found in outputs(results)] == [[[21, 22, 13]], [[10, 11, 12, 20]]]


def test_ranks_that_disagree_on_a_count_are_refused() -> None:
    wrong = [{**COUNTS[0], "recvCounts": [1, 1], "rdispls": [0, 1]}, COUNTS[1]]
    params = [{"rankSize": 2, **own} for own in wrong]
    tensors = [[torch.arange(4)], [torch.arange(4)]]
    compute = golden_ops.get("AllToAllVOperation").compute_ranks
    assert compute is not None
    with pytest.raises(OperationError, match="rank 1 sends 2 elements to rank 0, which expects 1"):
        compute(tensors, params, DEVICE)


def test_broadcast_overwrites_every_input_with_the_roots() -> None:
    tensors = [torch.full((2,), float(rank)) for rank in range(3)]
    results = run_ranks("BroadcastOperation", [[x] for x in tensors], {"rankRoot": 2})
    assert [result.updated_inputs[0].tolist() for result in results] == [[2.0, 2.0]] * 3
    assert all(result.outputs == () for result in results)


def test_reduce_scatter_gives_each_rank_its_rows() -> None:
    tensors = [torch.arange(8).reshape(4, 2).half() * (rank + 1) for rank in range(2)]
    first, second = outputs(run_ranks("ReduceScatterOperation", [[x] for x in tensors], {}))
    assert (first.tolist(), second.tolist()) == ([[0, 3], [6, 9]], [[12, 15], [18, 21]])


def test_reduce_scatter_v_takes_unequal_parts() -> None:
    tensors = [torch.arange(6).reshape(3, 2).half() * (rank + 1) for rank in range(2)]
    sent, places = torch.tensor([4, 2]), torch.tensor([0, 4])
    inputs = [
        [x, sent, places, torch.tensor([count]), torch.zeros(count // 2).half()]
        for x, count in zip(tensors, (4, 2), strict=True)
    ]
    first, second = outputs(run_ranks("ReduceScatterVOperation", inputs, {}))
    assert (first.tolist(), second.tolist()) == ([[0, 3], [6, 9]], [[12, 15]])


def test_recv_gets_what_the_source_rank_sent() -> None:
    sent, holder = torch.tensor([1.5, 2.5]), torch.zeros(2)
    params = [{"rank": 0, "rankSize": 2, "destRank": 1}, {"rank": 1, "rankSize": 2, "srcRank": 0}]
    compute = golden_ops.get("RecvOperation").compute_ranks
    assert compute is not None
    results = compute([[sent], [holder]], params, GOLDEN)
    assert results[0].outputs == ()
    assert torch.equal(results[1].outputs[0], sent)
    assert golden_ops.get("SendOperation").compute([sent], params[0], GOLDEN).outputs == ()


COLLECTIVES = [name for name in golden_ops if golden_ops.get(name).compute_ranks is not None]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_rank_of_many_is_unverifiable(name: str) -> None:
    with pytest.raises(UnverifiableError, match=f"{name}: .* tensors of all 4 ranks"):
        golden_ops.get(name).compute([torch.zeros(4, 4)], {"rankSize": 4}, GOLDEN)


def test_a_group_of_one_rank_is_computed_alone() -> None:
    x = torch.randn(4, 2).half()
    compute = golden_ops.get("AllReduceOperation").compute
    assert torch.equal(compute([x], {"rankSize": 1}, DEVICE).outputs[0], x)


def test_missing_ranks_are_named() -> None:
    compute = golden_ops.get("AllGatherOperation").compute_ranks
    assert compute is not None
    with pytest.raises(OperationError, match=r"got tensors of 2 ranks; .* rankSize 3"):
        compute([[torch.zeros(1)]] * 2, [{"rankSize": 3}] * 2, GOLDEN)


def test_the_collective_operators_are_these() -> None:
    assert set(COLLECTIVES) == {
        *("AllGatherOperation", "AllGatherVOperation", "AllReduceOperation", "AllToAllOperation"),
        *("AllToAllVOperation", "AllToAllVV2Operation", "BroadcastOperation", "RecvOperation"),
        *("LinearParallelOperation", "ReduceScatterOperation", "ReduceScatterVOperation"),
    }


def linear_case(ranks: int, seed: int = 0) -> tuple[list[Tensor], list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    xs = [torch.randn(4, 8, generator=generator).half() for _ in range(ranks)]
    weights = [torch.randn(6, 8, generator=generator).half() for _ in range(ranks)]
    return xs, weights, torch.randn(1, 6, generator=generator).half()


@pytest.mark.parametrize(("backend", "kind"), [("hccl", 2), ("lcoc", 0)])
def test_linear_parallel_sums_over_ranks(backend: str, kind: int) -> None:
    xs, weights, residual = linear_case(3)
    params = {"backend": backend, "type": kind, "hasResidual": True}
    inputs = [[x, w, residual] for x, w in zip(xs, weights, strict=True)]
    exact = (
        sum(x.double() @ w.double().T for x, w in zip(xs, weights, strict=True)) + residual.double()
    )
    for found in outputs(run_ranks("LinearParallelOperation", inputs, params)):
        torch.testing.assert_close(found.double(), exact, rtol=2**-11, atol=1e-3)


def test_linear_parallel_shares_the_sum_out() -> None:
    xs, weights, _ = linear_case(2)
    inputs = [[x, w] for x, w in zip(xs, weights, strict=True)]
    exact = sum(x.double() @ w.double().T for x, w in zip(xs, weights, strict=True))
    found = outputs(run_ranks("LinearParallelOperation", inputs, {"backend": "lcoc", "type": 1}))
    torch.testing.assert_close(torch.cat(found).double(), exact, rtol=2**-11, atol=1e-3)


def test_linear_parallel_gathers_before_the_product() -> None:
    xs, weights, _ = linear_case(2)
    inputs = [[x, w] for x, w in zip(xs, weights, strict=True)]
    params = {"backend": "lcoc", "type": 2, "keepIntermediate": True}
    results = run_ranks("LinearParallelOperation", inputs, params)
    for result, weight in zip(results, weights, strict=True):
        exact = torch.cat(xs).double() @ weight.double().T
        torch.testing.assert_close(result.outputs[0].double(), exact, rtol=2**-11, atol=1e-3)
        assert torch.equal(result.outputs[1], torch.cat(xs))


@pytest.mark.parametrize("inner", [0, 1])
def test_linear_parallel_in_two_dimensions(inner: int) -> None:
    xs, weights, _ = linear_case(6)
    info = {"agDim": 3, "rsDim": 2, "innerDimIsAg": inner}
    params = {"backend": "lcoc", "type": 4, "twoDimTPInfo": info}
    inputs = [[x, w] for x, w in zip(xs, weights, strict=True)]
    found = outputs(run_ranks("LinearParallelOperation", inputs, params))
    for rank in range(6):
        place = (rank // 3, rank % 3) if inner else (rank % 2, rank // 2)  # (scatter, gather)
        grid = {((r // 3, r % 3) if inner else (r % 2, r // 2)): r for r in range(6)}
        total = torch.zeros(12, 6, dtype=torch.float64)
        for scatter in range(2):
            gathered = torch.cat([xs[grid[scatter, gather]] for gather in range(3)])
            total += gathered.double() @ weights[grid[scatter, place[1]]].double().T
        expected = total.chunk(2)[place[0]]
        torch.testing.assert_close(found[rank].double(), expected, rtol=2**-11, atol=1e-3)


def test_two_dimensions_that_are_unknown_make_it_unverifiable() -> None:
    with pytest.raises(UnverifiableError, match="twoDimTPInfo"):
        run_ranks(
            "LinearParallelOperation",
            [[x, x] for x in [torch.zeros(2, 2).half()] * 2],
            {"backend": "lcoc", "type": 4},
        )


def test_pure_linear_needs_no_other_rank() -> None:
    xs, weights, _ = linear_case(1)
    params = {"backend": "lcoc", "type": 3, "rankSize": 8}
    found = golden_ops.get("LinearParallelOperation").compute([xs[0], weights[0]], params, GOLDEN)
    exact = xs[0].double() @ weights[0].double().T
    torch.testing.assert_close(found.outputs[0].double(), exact, rtol=2**-11, atol=1e-3)


def test_linear_parallel_dequantises_after_int8_products() -> None:
    x = torch.randint(-128, 128, (3, 8), dtype=torch.int8)
    weight = torch.randint(-128, 128, (5, 8), dtype=torch.int8)
    bias = torch.randint(-9, 9, (5,), dtype=torch.int32)
    scale, tokens = torch.rand(5), torch.rand(3)
    params = {"backend": "lcoc", "type": 3, "quantType": 3, "outDataType": 27}
    found = run_ranks("LinearParallelOperation", [[x, weight, bias, scale, tokens]], params)[0]
    exact = (x.double() @ weight.double().T + bias) * scale.double() * tokens.double().unsqueeze(1)
    torch.testing.assert_close(found.outputs[0].double(), exact, rtol=2**-8, atol=1e-6)


def test_linear_parallel_dequantises_weights_by_group_before_float_products() -> None:
    x, weight = torch.randn(3, 8).half(), torch.randint(-128, 128, (8, 5), dtype=torch.int8)
    scale, bias = (torch.rand(2, 5) / 64).half(), torch.empty(0).half()
    params = {
        "backend": "lcoc",
        "type": 3,
        "quantType": 2,
        "quantGroupSize": 4,
        "transWeight": False,
    }
    found = run_ranks("LinearParallelOperation", [[x, weight, bias, scale]], params)[0]
    dense = (weight.float() * scale.float().repeat_interleave(4, 0)).half().double()
    torch.testing.assert_close(
        found.outputs[0].double(), x.double() @ dense, rtol=2**-11, atol=1e-4
    )


def expert_case(quantised: bool) -> tuple[Tensor, list[list[Tensor]], list[Tensor], dict[str, Any]]:
    """Two ranks with two experts each; counts of each rank's rows for the four experts."""
    counts = torch.tensor([[2, 1, 0, 3], [1, 0, 2, 2]], dtype=torch.int32)
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randint(-8, 8, shape, generator=generator)  # noqa: E731
    dtype = torch.int8 if quantised else torch.float16
    xs = [draw(int(counts[rank].sum()), 4).to(dtype) for rank in range(2)]
    weights = [draw(2, 4, 3).to(dtype) for _ in range(2)]
    params = {
        **{"backend": "lcoc", "local_expert_nums": 2, "epSize": 2, "transWeight": False},
        **({"quantType": 3, "outDataType": 27} if quantised else {}),
    }
    inputs = []
    for x, weight in zip(xs, weights, strict=True):
        scales = [torch.arange(1.0, 7.0), torch.arange(1.0, len(x) + 1)] if quantised else []
        inputs.append([x, weight, *scales])
    return counts, inputs, weights, params


@pytest.mark.parametrize("quantised", [False, True])
def test_rows_travel_to_their_experts_and_back(quantised: bool) -> None:
    counts, inputs, weights, params = expert_case(quantised)
    rows: list[list[Tensor]] = [[], []]
    expected: list[list[Tensor]] = [[], []]
    back: list[Tensor] = [torch.zeros(len(own[0]), 3, dtype=torch.float64) for own in inputs]
    for rank in range(2):
        for local in range(2):
            expert = rank * 2 + local
            for source in range(2):
                first = int(counts[source, :expert].sum())
                for row in range(first, first + int(counts[source, expert])):
                    y = inputs[source][0][row].double() @ weights[rank][local].double()
                    if quantised:
                        y = (
                            y
                            * inputs[rank][2].reshape(2, 3)[local].double()
                            * inputs[source][3][row]
                        )
                    rows[rank].append(inputs[source][0][row])
                    expected[rank].append(y)
                    back[source][row] = y
    holder = torch.zeros(8, dtype=torch.int32)
    there = run_ranks(
        "LinearParallelOperation", [[*own, counts, holder] for own in inputs], {**params, "type": 5}
    )
    for rank, result in enumerate(there):
        found, count = result.outputs[0], len(expected[rank])
        torch.testing.assert_close(
            found[:count].double(), torch.stack(expected[rank]), rtol=2**-8, atol=0
        )
        assert result.undefined[0].reshape(-1).tolist() == [False] * count + [True] * (8 - count)
    if quantised:
        return
    returned = run_ranks(
        "LinearParallelOperation",
        [
            [torch.stack(own), weight, counts, holder]
            for own, weight in zip(rows, weights, strict=True)
        ],
        {**params, "type": 6},
    )
    for result, wanted in zip(returned, back, strict=True):
        torch.testing.assert_close(
            result.outputs[0][: len(wanted)].double(), wanted, rtol=2**-11, atol=0
        )


def test_expert_order_with_tensor_parallelism_is_unverifiable() -> None:
    counts, inputs, _, params = expert_case(False)
    holder = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(UnverifiableError, match="tpSize > 1"):
        run_ranks(
            "LinearParallelOperation",
            [[*own, counts, holder] for own in inputs],
            {**params, "type": 5, "tpSize": 2},
        )


@pytest.mark.parametrize(
    ("op", "params", "roundings"),
    [
        ("AllReduceOperation", {"rankSize": 2}, 0),  # the only sum is the output
        ("AllReduceOperation", {"rankSize": 8}, 6),
        ("AllReduceOperation", {"rankSize": 8, "quantType": 1}, 0),
        ("ReduceScatterOperation", {"rankSize": 4}, 2),
        ("LinearParallelOperation", {"rankSize": 2}, 1),  # the product
        ("LinearParallelOperation", {"rankSize": 8, "hasResidual": True}, 8),
        ("LinearParallelOperation", {"rankSize": 8, "backend": "lcoc", "type": 3}, 0),
        (
            "LinearParallelOperation",
            {"rankSize": 8, "backend": "lcoc", "type": 4, "twoDimTPInfo": {"rsDim": 2}},
            1,
        ),
    ],
)
def test_sums_of_ranks_may_be_kept_in_16_bits(
    op: str, params: dict[str, Any], roundings: int
) -> None:
    """float16 sums of R ranks differ by up to R spacings with their order."""
    assert golden_ops.get(op).kernel(params).roundings == roundings
