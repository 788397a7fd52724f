"""What becomes of shares of ranks: rules are held against the operators, run on the shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from memory_runs import memory_operation

from ait_llm.match.programs.carried import Outcome, outcome
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.shards import Portion
from ait_llm.match.views import apply

RANKS = 2
_SHARE, _SUM = Outcome.SHARE, Outcome.SUMMAND
Shape = tuple[int, ...]
Case = tuple[str, dict[str, Any], Callable[..., torch.Tensor], list[tuple[Shape, int | None]], Any]


def _view(*shape: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A view of the whole, or of a share of it, in the axis that is -1."""
    return lambda x: x.reshape(shape)


CASES: list[Case] = [
    ("aten.add.Tensor", {}, torch.add, [((1, 4, 6), 2), ((1, 4, 6), 2)], _SHARE),
    ("aten.add.Tensor", {}, torch.add, [((2, 4, 5, 6), 1), ((5, 6), None)], _SHARE),
    ("aten.mul.Tensor", {}, torch.mul, [((1, 4, 6), 1), ((4, 1), 0)], _SHARE),
    ("aten.silu.default", {}, F.silu, [((3, 4), 1)], _SHARE),
    (
        *("aten.masked_fill.Scalar", {"input_2": 0}),
        *(lambda x, m: x.masked_fill(m > 0, 0), [((1, 4, 5, 5), 1), ((1, 1, 5, 5), None)], _SHARE),
    ),
    # columns into heads, and heads into columns again
    ("aten.view.default", {}, _view(1, 5, -1, 3), [((1, 5, 12), 2)], _SHARE),
    ("aten.view.default", {}, _view(1, 5, -1), [((1, 5, 4, 3), 2)], _SHARE),
    # heads and positions into one axis: halves of the heads are no half of that
    ("aten.view.default", {}, _view(-1, 3), [((5, 4, 3), 1)], None),
    ("aten.transpose.int", {}, lambda x: x.transpose(1, 2), [((1, 5, 4, 3), 2)], _SHARE),
    (
        *("aten.expand.default", {}),
        *(lambda x: x.expand(-1, -1, 2, -1), [((4, 4, 1, 3), 1)], _SHARE),
    ),
    (
        *("aten.slice.Tensor", {"input_1": 2, "input_2": 0, "input_3": 3}),
        *(lambda x: x[:, :, :3], [((1, 4, 6), 1)], _SHARE),
    ),
    # of what each rank has the first half is not the first half of all
    (
        *("aten.slice.Tensor", {"input_1": 1, "input_2": 0}),
        *(lambda x: x[:, : x.shape[1] // 2], [((1, 4, 6), 1)], None),
    ),
    (
        *("aten._softmax.default", {"input_1": -1, "input_2": False}),
        *(lambda x: x.softmax(-1), [((1, 4, 5, 5), 1)], _SHARE),
    ),
    (
        *("aten._softmax.default", {"input_1": -1, "input_2": False}),
        *(lambda x: x.softmax(-1), [((3, 6), 1)], None),
    ),
    (
        *("aten.mean.dim", {"input_1": [-1], "input_2": True}),
        *(lambda x: x.mean(-1, keepdim=True), [((1, 4, 5, 6), 1)], _SHARE),
    ),
    (
        *("aten.mean.dim", {"input_1": [-1], "input_2": True}),
        *(lambda x: x.mean(-1, keepdim=True), [((3, 6), 1)], None),
    ),
    (
        *("aten.cat.default", {"input_1": -1}),
        *(lambda a, b: torch.cat((a, b), -1), [((1, 4, 5), 1), ((1, 4, 5), 1)], _SHARE),
    ),
    (
        *("aten.cat.default", {"input_1": 1}),
        *(lambda a, b: torch.cat((a, b), 1), [((1, 4, 5), 1), ((1, 4, 5), 1)], None),
    ),
    ("aten.bmm.default", {}, torch.bmm, [((4, 5, 3), 0), ((4, 3, 5), 0)], _SHARE),
    ("aten.bmm.default", {}, torch.bmm, [((4, 5, 6), 2), ((4, 6, 5), 1)], _SUM),
    ("aten.mm.default", {}, torch.mm, [((5, 6), 1), ((6, 3), 0)], _SUM),
    ("aten.mm.default", {}, torch.mm, [((4, 6), 0), ((6, 3), None)], _SHARE),
    (
        *("aten.scaled_dot_product_attention.default", {}),
        *(F.scaled_dot_product_attention, [((1, 4, 5, 3), 1)] * 3, _SHARE),
    ),
    # positions of other ranks are missing
    (
        *("aten.scaled_dot_product_attention.default", {}),
        *(F.scaled_dot_product_attention, [((1, 2, 6, 3), 2)] * 3, None),
    ),
    ("aten.cumsum.default", {"input_1": 1}, lambda x: x.cumsum(1), [((3, 6), 1)], None),
    ("aten.triu.default", {}, torch.triu, [((6, 6), 0)], None),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])
def test_a_claim_holds_for_the_operator_itself(case: Case) -> None:
    kind, params, function, sources, expected = case
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape, _ in sources]
    result = function(*whole)
    parts = []
    for rank in range(RANKS):
        own = [
            tensor if axis is None else tensor.chunk(RANKS, axis)[rank]
            for tensor, (_, axis) in zip(whole, sources, strict=True)
        ]
        part = function(*own)
        parts.append(part)
        portion = Portion(rank, RANKS, of_left=True)
        inputs = [(tuple(a.shape), tuple(b.shape)) for a, b in zip(own, whole, strict=True)]
        operation = memory_operation(kind, (0,), params=params)
        outputs = [(tuple(part.shape), tuple(result.shape))]
        assert outcome(operation, operation, inputs, outputs, portion) is expected
        if expected is _SHARE:
            views = make_views(*outputs[0], None, portion=portion)
            assert views is not None
            torch.testing.assert_close(
                torch.from_numpy(apply(part.numpy(), views.left)),
                torch.from_numpy(apply(result.numpy(), views.right)),
            )
    if expected is _SUM:
        torch.testing.assert_close(sum(parts), result)


def test_products_with_a_share_of_a_weight_give_columns_but_not_of_a_joined_one() -> None:
    shapes = [((5, 4), (5, 4))], [((5, 3), (5, 6))]
    for name, expected in (("q_proj", Outcome.SHARE), ("qkv_proj", Outcome.JOINED)):
        weights = {"input_1": {"name": f"root.attn.{name}.weight", "shape": [4, 3]}}
        product = memory_operation("aten.mm.default", (0,), weights=weights)
        assert outcome(product, product, *shapes, Portion(1, 2, of_left=True)) is expected


def test_rows_of_half_a_table_are_nothing_of_the_whole() -> None:
    own, whole = (
        memory_operation(
            "aten.embedding.default",
            (0,),
            weights={"input_0": {"name": "root.embed.weight", "shape": [words, 8]}},
        )
        for words in (16, 32)
    )
    shapes = [((1, 5), (1, 5))], [((1, 5, 8), (1, 5, 8))]
    assert outcome(own, whole, *shapes, Portion(0, 2, of_left=True)) is None
    assert outcome(own, own, *shapes, Portion(0, 2, of_left=True)) is Outcome.SHARE


@pytest.mark.parametrize(
    ("own", "whole", "ranks", "starts"),
    [
        ((3, 4), (3, 8), 2, [0, 4]),
        ((3, 2), (3, 8), 4, [0, 2, 4, 6]),
        ((3, 4), (3, 8), 4, [0, 0, 4, 4]),  # heads of keys, of which two ranks have the same
        ((3, 8), (3, 8), 4, None),
        ((3, 4), (3, 12), 2, None),
        ((3, 4), (6, 8), 2, None),
        ((3, 4), (1, 3, 8), 2, None),
    ],
)
def test_shares_are_equal_and_in_the_order_of_ranks(
    own: Shape, whole: Shape, ranks: int, starts: list[int] | None
) -> None:
    found = []
    for rank in range(ranks):
        portion = Portion(rank, ranks, of_left=False)
        axis = portion.axis(whole, own)
        if axis is not None:
            assert axis == 1
            left, right = portion.cut(whole, own, axis)
            assert right == ()
            found.append(left[0].start)
            assert left[0].stop - left[0].start == own[1]
    assert found == (starts or [])
