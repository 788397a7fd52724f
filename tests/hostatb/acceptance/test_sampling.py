"""What sampling, SwigluQuant and StridedBatchMatmul refuse, and with which status."""

from __future__ import annotations

from typing import Any

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb import (
    MultinomialParam,
    SwigluQuantParam,
    TopkToppSamplingParam,
)
from ait_llm.hostatb.acceptance import Gate
from ait_llm.hostatb.params.train import StridedBatchMatmulParam
from ait_llm.opcheck.golden.base import Refusal, RefusedError

F16, F32, I32 = DType.FLOAT16, DType.FLOAT32, DType.INT32
_Kind = TopkToppSamplingParam.TopkToppSamplingType


def _status(call: Any, *args: Any) -> int:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status


def _multinomial(samples: int) -> Gate:
    entries = MultinomialParam(num_samples=samples).entries(printed_only=False)
    return Gate("MultinomialOperation", entries, 1)


def test_multinomial_draws_up_to_64_samples() -> None:
    _multinomial(64)
    assert _status(_multinomial, 65) == Refusal.PARAM


def test_multinomial_takes_a_matrix() -> None:
    assert _status(_multinomial(2).check_inputs, [TensorDesc(F16, (1, 3, 4))]) == Refusal.DIM


@pytest.mark.parametrize(
    ("width", "output", "status"),
    [(4, (3, 5), Refusal.PARAM), (8, (3, 4), Refusal.DIM), (8, (3, 5, 1), Refusal.DIM)],
    ids=["more samples than entries", "other number", "dimensions"],
)
def test_multinomial_looks_at_the_number_of_samples_at_setup(
    width: int, output: tuple[int, ...], status: int
) -> None:
    gate, given = _multinomial(5), [TensorDesc(F16, (3, width))]
    gate.check_inputs(given)
    wrong, right = TensorDesc(I32, output), TensorDesc(I32, (3, 5))
    assert _status(gate.check_setup, given, [wrong], lambda: [right]) == status


def _sampling(kind: int, **fields: Any) -> Gate:
    named = {"topk": 2} | fields
    param = TopkToppSamplingParam(topk_topp_sampling_type=_Kind(kind), **named)
    count = {0: 2, 1: 3}.get(kind, 4)
    return Gate("TopkToppSamplingOperation", param.entries(printed_only=False), count)


_TYPES = {
    0: (F16, F16),
    1: (F16, I32, F16),
    2: (F16, I32, F16, F16),
    3: (F16, I32, F16, F32),
    4: (F16, I32, F16, F16),
}


@pytest.mark.parametrize("kind", [_Kind.SAMPLING_UNDEFINED, _Kind.SAMPLING_MAX])
def test_sampling_of_no_kind_is_not_created(kind: int) -> None:
    assert _status(_sampling, kind) == Refusal.PARAM


@pytest.mark.parametrize(
    ("kind", "fields", "shapes", "status"),
    [
        (0, {}, ((3, 8), (3,)), Refusal.DIM_COUNT),
        (0, {"topk": 9}, ((3, 8), (3, 1)), Refusal.PARAM),
        (0, {}, ((3, 8), (3, 2)), Refusal.DIM),
        (0, {}, ((513, 8), (513, 1)), Refusal.DIM),
        (1, {"rand_seeds": [1, 2]}, ((3, 8), (3, 1), (3, 1)), Refusal.PARAM),
        (1, {"rand_seeds": [1, 2]}, ((2, 8), (3, 1), (2, 1)), Refusal.DIM),
        (2, {}, ((3, 8), (3, 1), (3, 1), (3, 7)), Refusal.DIM),
        (2, {}, ((3, 8), (3, 1), (3, 2), (3, 8)), Refusal.DIM),
        (2, {}, ((513, 8), (513, 1), (513, 1), (513, 8)), Refusal.DIM),
        (3, {"log_probs_size": 9}, ((3, 8), (3, 1), (3, 1), (3, 1)), Refusal.PARAM),
        (3, {}, ((3, 8), (3, 1), (3, 1), (2, 1)), Refusal.DIM),
        (4, {"log_probs_size": -1}, ((3, 8), (3, 1), (3, 1), (3, 8)), Refusal.PARAM),
    ],
)
def test_sampling_refuses_shapes_and_sizes(
    kind: int, fields: dict[str, Any], shapes: tuple[tuple[int, ...], ...], status: int
) -> None:
    given = [TensorDesc(*one) for one in zip(_TYPES[kind], shapes, strict=True)]
    assert _status(_sampling(kind, **fields).check_inputs, given) == status


@pytest.mark.parametrize(("output", "status"), [((3,), Refusal.DIM_COUNT), ((3, 2), Refusal.DIM)])
def test_sampling_gives_one_token_for_a_row(output: tuple[int, ...], status: int) -> None:
    given = [TensorDesc(F16, (3, 8)), TensorDesc(F16, (3, 1))]
    right = [TensorDesc(I32, (3, 1)), TensorDesc(F16, (3, 1))]
    outputs = [right[0], TensorDesc(F16, output)]
    assert _status(_sampling(0).check_setup, given, outputs, lambda: right) == status


@pytest.mark.parametrize(
    ("shape", "status"),
    [
        ((1, 3, 4), Refusal.DIM_COUNT),
        ((3, 5), Refusal.DIM),
        ((3, 15714), Refusal.DIM),
    ],
    ids=["dimensions", "odd", "wide"],
)
def test_swiglu_quant_refuses_a_row_that_it_cannot_halve_or_hold(
    shape: tuple[int, ...], status: int
) -> None:
    gate = Gate("SwigluQuantOperation", SwigluQuantParam().entries(printed_only=False), 1)
    gate.check_inputs([TensorDesc(F16, (3, 15712))])
    assert _status(gate.check_inputs, [TensorDesc(F16, shape)]) == status


@pytest.mark.parametrize(
    "fields",
    [
        {"m": [4]},
        {"n": [4, 0]},
        {"head_num": 0},
        {"m": [2147483647, 2147483647], "n": [2147483647, 2147483647], "head_num": 2},
    ],
    ids=["number of sizes", "no column", "no head", "more than 63 bits"],
)
def test_strided_products_have_a_positive_size_each(fields: dict[str, Any]) -> None:
    named = {"batch": 2, "m": [4, 4], "n": [4, 4]} | fields
    entries = StridedBatchMatmulParam(**named).entries(printed_only=False)
    gate = Gate("StridedBatchMatmulOperation", entries, 2)
    given = [TensorDesc(F16, (64,)), TensorDesc(F16, (64,))]
    assert _status(gate.check_inputs, given) == Refusal.PARAM
