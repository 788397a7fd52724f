"""Tensors that are made up from what a record says, and arguments from its JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.apicheck.inputs import TensorSource, generate
from ait_llm.dumps.api_values import ApiValue
from ait_llm.dumps.api_walk import values_of
from ait_llm.opcheck.api.arguments import arguments_of
from ait_llm.opcheck.api.unchecked import UncheckableError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def made(dtype: torch.dtype, shape: tuple[int, ...], low: Any, high: Any, **more: Any) -> Any:
    recorded = {
        "type": "torch.Tensor",
        "dtype": str(dtype),
        "shape": list(shape),
        "Max": high,
        "Min": low,
        **more,
    }
    value = ApiValue("Torch.f.0.forward", "input", (0,), "in", recorded)
    return generate(value, shape, torch.Generator().manual_seed(1234))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FLOATS), st.floats(-100, 100), st.floats(0, 100), st.integers(2, 40))
def test_floats_lie_in_the_recorded_range_with_its_ends_first_and_last(
    dtype: torch.dtype, low: float, width: float, size: int
) -> None:
    low, high = (float(torch.tensor(x).to(dtype)) for x in (low, low + width))
    tensor = made(dtype, (size,), low, high)
    assert tensor.dtype == dtype
    assert (float(tensor[0]), float(tensor[-1])) == (low, high)
    assert bool((tensor.double() >= low).all() and (tensor.double() <= high).all())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(INTEGERS), st.data(), st.integers(2, 40))
def test_integers_lie_in_the_recorded_range_with_its_ends_first_and_last(
    dtype: torch.dtype, data: st.DataObject, size: int
) -> None:
    info = torch.iinfo(dtype)
    low = data.draw(st.integers(info.min, info.max))
    high = data.draw(st.integers(low, info.max))
    tensor = made(dtype, (size,), low, high)
    assert (int(tensor[0]), int(tensor[-1])) == (low, high)
    assert (int(tensor.min()), int(tensor.max())) == (low, high)


def test_infinite_ends_are_put_back_and_the_rest_is_finite() -> None:
    tensor = made(torch.float16, (50,), -math.inf, math.inf)
    assert (float(tensor[0]), float(tensor[-1])) == (-math.inf, math.inf)
    assert bool(tensor[1:-1].isfinite().all())
    bounded = made(
        torch.float32, (50,), -math.inf, 3.0, Min_except_inf_nan=-2.0, Max_except_inf_nan=3.0
    )
    assert float(bounded[0]) == -math.inf
    assert -2.0 <= float(bounded[1:].min()) <= float(bounded.max()) == 3.0


def test_a_recorded_nan_makes_all_elements_nan() -> None:
    assert bool(made(torch.float32, (3,), math.nan, math.nan).isnan().all())
    assert bool(made(torch.float32, (3,), "nan", "nan").isnan().all())


def test_flags_empty_scalar_and_complex_tensors() -> None:
    assert made(torch.bool, (8, 8), False, True).dtype == torch.bool
    assert made(torch.float32, (0, 3), None, None).shape == (0, 3)
    assert made(torch.float32, (), -2.5, -2.5) == torch.tensor(-2.5)
    numbers = made(torch.complex64, (100,), 1.0, 2.0)
    assert 0.99 < float(numbers.abs().min()) < float(numbers.abs().max()) < 2.01


def test_the_same_record_gives_the_same_tensor() -> None:
    assert torch.equal(made(torch.float32, (9,), 0.0, 1.0), made(torch.float32, (9,), 0.0, 1.0))


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("torch.no_such", 0, 1), ("torch.float32", None, None), ("torch.int32", math.nan, 1)],
)
def test_a_tensor_of_unknown_range_cannot_be_made(dtype: str, low: Any, high: Any) -> None:
    recorded = {"type": "torch.Tensor", "dtype": dtype, "shape": [2], "Max": high, "Min": low}
    value = ApiValue("Torch.f.0.forward", "input", (0,), "in", recorded)
    with pytest.raises(UncheckableError):
        generate(value, (2,), torch.Generator())


def test_a_tensor_of_any_recorded_size_is_not_allocated(tmp_path: Path) -> None:
    recorded = {"type": "torch.Tensor", "dtype": "torch.int8", "shape": [2**40], "Max": 1, "Min": 0}
    value = ApiValue("Torch.f.0.forward", "input", (0,), "in", recorded)
    with pytest.raises(UncheckableError, match="too large"):
        TensorSource(tmp_path)(value)


def arguments(tmp_path: Path, args: list[Any], kwargs: Any = None, api: str = "f") -> Any:
    record = {"input_args": args, "input_kwargs": kwargs or {}, "output": []}
    values = values_of(f"Torch.{api}.0.forward", record, tmp_path, tmp_path / "dump.json")
    return arguments_of(api, values, TensorSource(tmp_path))


def leaf(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (leaf("int", 3), 3),
        (leaf("int", 10**20), 10**20),
        (leaf("bool", True), True),
        (leaf("float", 1), 1.0),
        (leaf("float", -math.inf), -math.inf),
        (leaf("str", "ij,ij->i"), "ij,ij->i"),
        (leaf("slice", [1, None, 2]), slice(1, None, 2)),
        (leaf("ellipsis", "..."), ...),
        (leaf("torch.Size", [1, 2]), torch.Size([1, 2])),
        (leaf("torch.dtype", "torch.float16"), torch.float16),
        (leaf("torch.device", "npu:0"), torch.device("cpu")),
        (leaf("complex", "(1+2j)"), 1 + 2j),
        (leaf("float32", 1.5), 1.5),
        ({"type": "torch.memory_format", "format": "channels_last"}, torch.channels_last),
        ([leaf("int", 1), [leaf("int", 2), None]], [1, [2, None]]),
        ([], []),
        (None, None),
    ],
)
def test_recorded_arguments_come_back(tmp_path: Path, recorded: Any, expected: Any) -> None:
    args, kwargs = arguments(tmp_path, [leaf("int", 0), recorded], {"key": recorded})
    assert args[1] == expected
    assert type(args[1]) is type(expected)
    assert kwargs["key"] == expected


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({}, "was not recorded"),
        (leaf("torch.dtype", "torch.load"), "is a torch.dtype"),
        (leaf("torch.ProcessGroup", None), "is a torch.ProcessGroup"),
        (leaf("int", "3"), "is a int"),
        ({"type": "torch.memory_format", "format": "load"}, "is a torch.memory_format"),
    ],
)
def test_arguments_that_cannot_be_made_are_named(
    tmp_path: Path, recorded: Any, reason: str
) -> None:
    with pytest.raises(UncheckableError, match=rf"input\.1 {reason}"):
        arguments(tmp_path, [leaf("int", 0), recorded])


def test_a_recorded_list_is_a_tuple_where_it_is_an_index(tmp_path: Path) -> None:
    index = [leaf("slice", [0, 1, None]), leaf("int", 2)]
    args, _ = arguments(tmp_path, [leaf("int", 0), index, leaf("int", 5)], api="__setitem__")
    assert args[1] == (slice(0, 1), 2)
