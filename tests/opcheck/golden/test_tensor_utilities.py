"""Small operators on tensors, caches and padding, against loops over their elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz

Run = Callable[..., Result]
AssertClose = Callable[..., None]


def _int32(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("axis", [0, 1])
def test_cumsum_rounds_once(run: Run, assert_close: AssertClose, axis: int) -> None:
    x = torch.randn(6, 50).half()
    (y,) = run("CumsumOperation", [x], {"axes": [axis]}).outputs
    assert_close(y, np.cumsum(x.double().numpy(), axis=axis), floor=0.1)
    ones = torch.ones(1, 3000).half()
    (long,) = run("CumsumOperation", [ones], {"axes": [1]}).outputs
    assert float(long[0, -1]) == 3000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int8])
def test_fill_writes_where_the_mask_is_set(
    run: Run, dtype: torch.dtype, mask_dtype: torch.dtype
) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    mask = torch.tensor([1, 0, 0, 1]).to(mask_dtype)
    (y,) = run("FillOperation", [x, mask], {"withMask": True, "value": [-10000.0, 3.0]}).outputs
    constant = float(torch.tensor(-10000.0).to(dtype))
    assert y.dtype == dtype
    assert y.tolist() == [[constant, r + 1, r + 2, constant] for r in (0, 4, 8)]


def test_fill_without_a_mask_makes_float16(run: Run) -> None:
    params = {"withMask": False, "value": [1.5], "outDim": [2, 3]}
    (y,) = run("FillOperation", [], params).outputs
    assert y.dtype == torch.float16
    assert y.tolist() == [[1.5] * 3] * 2


@given(st.lists(st.integers(-2, 6), min_size=2, max_size=2), st.integers(-3, 2))
def test_onehot_honours_the_axis(run: Run, row: list[int], axis: int) -> None:
    """Disagreement 24: depth goes to the given axis, not always last."""
    indices = torch.tensor([row, [0, 4]])
    params = {"axis": axis, "depth": 5}
    one, zero = torch.tensor([7]), torch.tensor([-1])
    (y,) = run("OnehotOperation", [indices, one, zero], params).outputs
    moved = y.movedim(axis, -1)
    for i, j, d in itertools.product(range(2), range(2), range(5)):
        assert moved[i, j, d] == (7 if int(indices[i, j]) == d else -1)


def test_pad_picks_the_last_token_of_each_sequence(run: Run) -> None:
    states = torch.randn(6, 8).half()
    inputs = [states, _int32([[0] * 6]), _int32([[1], [3], [2]]), torch.zeros(3, 3).long()]
    (y,) = run("PadOperation", inputs).outputs
    assert torch.equal(y, states[[0, 3, 5]])


def test_unpad_packs_tokens_and_offsets(run: Run) -> None:
    ids = torch.tensor([[11, 12, 0], [21, 0, 0], [31, 32, 33]])
    # Padding of 1 and 2, cumulated.
    inputs = [ids, _int32([[1], [3], [3]]), torch.tensor([[6]]), _int32([[2], [1], [3]])]
    packed, before, offsets = run("UnpadOperation", inputs).outputs
    assert packed.tolist() == [[11, 12, 21, 31, 32, 33, 0, 0, 0]]
    assert before.tolist() == [[0], [1], [3]]
    assert offsets.tolist() == [[0, 0, 1, 3, 3, 3, 0, 0, 0]]


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_repeat_tiles(run: Run, multiples: list[int]) -> None:
    x = torch.randint(0, 2**15, (2, 3), dtype=torch.int16).view(torch.float16)
    (y,) = run("RepeatOperation", [x], {"multiples": multiples}).outputs
    expected = np.tile(x.view(torch.int16).numpy(), multiples)
    assert np.array_equal(y.view(torch.int16).numpy(), expected)


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_nonzero_lists_coordinates_in_order(run: Run, values: list[int]) -> None:
    """Disagreement 23: [rank, elements] with a count, int64."""
    x = torch.tensor(values).reshape(2, 3)
    places, count = run("NonzeroOperation", [x]).outputs
    expected = [(r, c) for r in range(2) for c in range(3) if x[r, c] != 0]
    assert int(count) == len(expected)
    columns = list(zip(*places[:, : len(expected)].tolist(), strict=True))
    assert columns == expected
    assert not places[:, len(expected) :].any()


def test_where_keeps_the_bits_of_both_sides(run: Run) -> None:
    condition = torch.tensor([[1], [0], [-3]], dtype=torch.int8)
    x = torch.tensor([1.0, math.nan]).half()
    y = torch.tensor([[-0.0, 5.0], [math.inf, 6.0], [7.0, 8.0]]).half()
    (z,) = run("WhereOperation", [condition, x, y]).outputs
    assert z[1].tolist() == [math.inf, 6.0]
    assert z[0, 0] == 1
    assert z[2, 1].isnan()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_index_add_accumulates_repeats(run: Run, assert_close: AssertClose, axis: int) -> None:
    x = torch.randn(4, 5).half()
    index = [1, 3, 1]
    shape = [4, 5]
    shape[axis] = 3
    updates, alpha = torch.randn(shape).half(), torch.tensor([1.5]).half()
    result = run(
        "IndexAddOperation", [x, _int32(index), updates, alpha], {"indexType": 1, "axis": axis}
    )
    expected = x.double().movedim(axis, 0).clone()
    for row, target in enumerate(index):
        expected[target] += 1.5 * updates.double().movedim(axis, 0)[row]
    assert_close(result.outputs[0], expected.movedim(0, axis), floor=0.05)
    assert result.updated_inputs[0] is result.outputs[0]


def test_index_add_valid_takes_the_first_updates_only(run: Run, assert_close: AssertClose) -> None:
    """Disagreement 21."""
    x, updates = torch.randn(4, 16).bfloat16(), torch.randn(3, 16).bfloat16()
    inputs = [x, _int32([2, 2, 0]), updates, _int32([2])]
    (y,) = run("IndexAddOperation", inputs, {"indexType": 2, "axis": 0}).outputs
    expected = x.double()
    expected[2] += updates[0].double() + updates[1].double()
    assert_close(y, expected, floor=0.05)
    assert torch.equal(y[[0, 1, 3]], x[[0, 1, 3]])


def test_set_value_slices_every_dimension(run: Run) -> None:
    """Disagreement 36."""
    target, source = torch.arange(24.0).reshape(4, 6), -torch.ones(2, 3)
    params = {"starts": [1, 2], "ends": [3, 5], "strides": [1, 1]}
    result = run("SetValueOperation", [target, source], params)
    changed = result.updated_inputs[0]
    assert result.outputs == ()
    for r, c in itertools.product(range(4), range(6)):
        inside = 1 <= r < 3 and 2 <= c < 5
        assert changed[r, c] == (-1 if inside else 6 * r + c)


def test_as_strided_indexes_the_flat_storage(run: Run) -> None:
    x = torch.arange(12).reshape(3, 4)
    params = {"size": [2, 3], "stride": [1, 4], "offset": [1]}
    (y,) = run("AsStridedOperation", [x], params).outputs
    assert y.tolist() == [[1, 5, 9], [2, 6, 10]]


@given(st.integers(1, 2), st.integers(1, 33), st.integers(1, 33))
def test_transdata_goes_and_returns(run: Run, batch: int, rows: int, columns: int) -> None:
    x = torch.randn(batch, rows, columns).half()
    (blocked,) = run("TransdataOperation", [x], {"transdataType": 2}).outputs
    assert blocked.shape[2] % 16 == 0
    params = {"transdataType": 1, "outCrops": [rows, columns]}
    formats = {0: FORMAT_FRACTAL_NZ}
    (back,) = run("TransdataOperation", [blocked], params, formats=formats).outputs
    assert torch.equal(back, x)


@pytest.mark.parametrize("layout", ["plain", "nz", "wide"])
def test_kv_cache_keeps_history(run: Run, layout: str) -> None:
    """Disagreement 22: rows that are not written stay."""
    lengths, ends = [2, 3], [5, 3]
    new, past = torch.randn(5, 32).half(), torch.randn(2, 2, 16, 32).half()
    expected = past.clone()
    expected[1, 0, 3:5] = new[:2]
    expected[1, 1, 0:3] = new[2:]
    tail = [_int32(ends), _int32(lengths)]
    given_new, given_past = new, past
    if layout == "nz":
        given_past, expected = nd_to_nz(past), nd_to_nz(expected)
    if layout == "wide":
        given_new = torch.zeros(2, 3, 2, 16).half()
        given_new = torch.cat([new, torch.zeros(1, 32).half()]).reshape(2, 3, 2, 16)
    result = run("KvCacheOperation", [given_new, _int32([1]), given_past, *tail])
    assert result.outputs == ()
    assert torch.equal(result.updated_inputs[2], expected)


def _desc(dtype: DType, *shape: int) -> TensorDesc:
    return TensorDesc(dtype, shape)


HALF, INT = DType.FLOAT16, DType.INT32


@pytest.mark.parametrize(
    ("op", "descs", "params", "text"),
    [
        ("CumsumOperation", [_desc(HALF, 4)], {"axes": [0], "reverse": True}, "false only"),
        ("CumsumOperation", [_desc(HALF, 4)], {"axes": [1]}, "one axis"),
        ("FillOperation", [_desc(HALF, 4), _desc(DType.INT8, 2, 4)], {"value": [1]}, "larger"),
        ("FillOperation", [], {"withMask": False, "value": [1]}, "outDim"),
        ("OnehotOperation", [_desc(INT, 2)] * 3, {"depth": 3}, "input 1"),
        ("RepeatOperation", [_desc(HALF, 2, 2)], {"multiples": [2]}, "each of"),
        ("AsStridedOperation", [_desc(HALF, 4)], {"size": [5], "stride": [1], "offset": [0]}, "4"),
        (
            "SetValueOperation",
            [_desc(HALF, 4, 4), _desc(HALF, 2, 4)],
            {"starts": [0, 0], "ends": [2, 4], "strides": [1, 1]},
            "exactly one",
        ),
        ("TransdataOperation", [_desc(HALF, 4)], {"transdataType": 2}, "2 or 3 dimensions"),
        ("IndexAddOperation", [_desc(HALF, 4)] * 2, {"indexType": 1}, "takes 4"),
    ],
)
def test_utilities_say_what_they_refuse(
    op: str, descs: list[TensorDesc], params: dict[str, object], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape(descs, params)


@pytest.mark.parametrize(
    ("op", "inputs", "params", "text"),
    [
        (
            "PadOperation",
            [torch.zeros(2, 4).half(), _int32([[0, 0]]), _int32([[3]]), torch.zeros(1, 3).long()],
            {},
            "do not fit 2 tokens",
        ),
        (
            "IndexAddOperation",
            [
                torch.zeros(2, 4).half(),
                _int32([2]),
                torch.zeros(1, 4).half(),
                torch.ones(1).half(),
            ],
            {"indexType": 1, "axis": 0},
            "outside dimension 0",
        ),
        (
            "KvCacheOperation",
            [
                torch.zeros(2, 16).half(),
                _int32([0]),
                torch.zeros(1, 1, 4, 16).half(),
                _int32([5]),
                _int32([2]),
            ],
            {},
            "cache of 4",
        ),
    ],
)
def test_values_out_of_range_are_refused(
    run: Run, op: str, inputs: list[Tensor], params: dict[str, object], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        run(op, inputs, params)
