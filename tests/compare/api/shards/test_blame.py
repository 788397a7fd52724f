"""Which part of a sum is wrong, and whether communication did what it should."""

from __future__ import annotations

import numpy as np
import pytest

from ait_llm.compare.api.shards.blame import wrong_parts
from ait_llm.compare.api.shards.collectives import wrong_results
from ait_llm.core import DType
from ait_llm.formats.elements import Array

RNG = np.random.default_rng(11)


def products() -> tuple[list[dict[str, Array]], list[Array]]:
    """Inputs and outputs of a row-parallel projection on four ranks."""
    inputs = [
        {".input.0": RNG.standard_normal((3, 8)), ".input.1": RNG.standard_normal((5, 8))}
        for _ in range(4)
    ]
    return inputs, [each[".input.0"] @ each[".input.1"].T for each in inputs]


def test_a_product_is_computed_again_from_each_ranks_inputs() -> None:
    inputs, parts = products()
    whole = sum(parts)
    parts[2] = parts[2].copy()
    parts[2][1, 1] += 0.5
    assert wrong_parts("linear", inputs, whole, parts) == (2,)


def test_parts_that_are_right_for_their_inputs_are_not_blamed() -> None:
    inputs, parts = products()
    assert wrong_parts("linear", inputs, sum(parts) + 1.0, parts) == ()


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_a_part_that_is_wrong_by_a_factor_stands_out(factor: float) -> None:
    _, parts = products()
    whole = sum(parts)
    parts[1] = parts[1] * factor
    assert wrong_parts("add", [{}] * 4, whole, parts) == (1,)


def test_a_part_with_nan_is_blamed() -> None:
    _, parts = products()
    parts[3] = np.full_like(parts[3], np.nan)
    assert wrong_parts("add", [{}] * 4, np.zeros((3, 5)), parts) == (3,)


def test_a_small_change_that_nothing_explains_is_not_blamed_on_anybody() -> None:
    _, parts = products()
    assert wrong_parts("add", [{}] * 4, sum(parts) + 0.1, parts) == ()


def gathered(function: str, given: list[Array]) -> list[dict[str, Array]]:
    """What each rank of a right collective records."""
    total = np.sum(given, axis=0)
    results: dict[str, list[dict[str, Array]]] = {
        "all_reduce": [{".input.0": x, ".output.0": total} for x in given],
        "broadcast": [{".input.0": x, ".output.0": given[1]} for x in given],
        "all_gather_into_tensor": [
            {".input.1": x, ".output.0": np.concatenate(given), ".output.1": x} for x in given
        ],
        "all_gather": [
            {".input.1": x, **{f".output.0.{n}": each for n, each in enumerate(given)}}
            for x in given
        ],
        "reduce_scatter_tensor": [
            {".input.1": x, ".output.0": part}
            for x, part in zip(given, np.split(total, len(given)), strict=True)
        ],
    }
    return results[function]


@pytest.mark.parametrize(
    "function",
    ["all_reduce", "broadcast", "all_gather_into_tensor", "all_gather", "reduce_scatter_tensor"],
)
def test_a_collective_is_checked_against_its_own_inputs(function: str) -> None:
    given = [RNG.standard_normal((8, 3)).astype(np.float32) for _ in range(4)]
    ranks = gathered(function, given)
    assert wrong_results(function, ranks, DType.FLOAT32, "SUM", 1) == ()
    name = ".output.0.2" if function == "all_gather" else ".output.0"
    ranks[2] = {**ranks[2], name: ranks[2][name] + np.float32(0.1)}
    assert wrong_results(function, ranks, DType.FLOAT32, "SUM", 1) == (2,)


def test_other_reductions_are_known() -> None:
    given = [np.array([rank, -rank], np.float32) for rank in (1, 2)]
    for name, right in {"MAX": [2, -1], "MIN": [1, -2], "AVG": [1.5, -1.5]}.items():
        ranks = [{".input.0": x, ".output.0": np.array(right, np.float32)} for x in given]
        assert wrong_results("all_reduce", ranks, DType.FLOAT32, name, 0) == ()
        assert wrong_results("all_reduce", ranks, DType.FLOAT32, "SUM", 0) == (0, 1)


def test_what_is_not_known_is_not_judged() -> None:
    ranks = [{".input.0": np.ones(2), ".output.0": np.ones(2)}] * 2
    assert wrong_results("all_to_all", ranks, DType.FLOAT32, "SUM", 0) is None
    assert wrong_results("all_reduce", ranks, DType.FLOAT32, "BAND", 0) is None
