"""ATB against ATB of one topology: other batch size, element type, pool of the cache."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from memory_runs import ones, operation, run

from ait_llm.core import DType
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import Pairing, pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply
from ait_llm.program.one_pass import Pass

OPTIONS = MatchOptions()


def _pair(golden: Path, mine: Path) -> Pairing:
    return pair_runs(find_scenario(golden, mine))


def _all(pairing: Pairing) -> list[Match | Unmatched]:
    return [
        found for pair in pairing.pairs for found in match_runs(pair.golden, pair.mine, OPTIONS)
    ]


def _matches(found: list[Match | Unmatched]) -> list[Match]:
    assert not [each for each in found if isinstance(each, Unmatched)]
    return [each for each in found if isinstance(each, Match)]


def _values(match: Match) -> tuple[np.ndarray, np.ndarray]:
    golden = apply(match.golden.tensor.nd(), match.golden.views)
    mine = apply(match.mine.tensor.nd(), match.mine.views)
    return golden.astype(np.float64), mine.astype(np.float64)


def test_every_tensor_of_a_batch_of_four_agrees_with_the_batch_of_one(
    captures: dict[str, Path],
) -> None:
    pairing = _pair(captures["one"], captures["four"])
    assert [(p.golden.step, p.mine.step) for p in pairing.pairs] == [(0, 0), (1, 1), (2, 2)]
    matches = _matches(_all(pairing))
    assert len(matches) == 754
    for match in matches:
        golden, mine = _values(match)
        np.testing.assert_allclose(mine, golden, rtol=1e-2, atol=1e-2, err_msg=str(match))


def test_a_smaller_batch_of_mine_is_repeated_as_well(captures: dict[str, Path]) -> None:
    for match in _matches(_all(_pair(captures["four"], captures["one"]))):
        golden, mine = _values(match)
        np.testing.assert_allclose(mine, golden, rtol=1e-2, atol=1e-2, err_msg=str(match))


def test_bf16_answers_fp16_at_every_place(captures: dict[str, Path]) -> None:
    matches = _matches(_all(_pair(captures["one"], captures["bf16"])))
    assert len(matches) == 754
    dtypes = Counter((m.golden.record.dtype, m.mine.record.dtype) for m in matches)
    assert dtypes[DType.FLOAT16, DType.BFLOAT16] > 600
    for match in matches:
        assert match.golden.record.op == match.mine.record.op
        golden, mine = _values(match)
        hidden = np.isneginf(golden)  # by the mask, in the way of each type
        np.testing.assert_array_equal(np.isneginf(mine), hidden)
        error = np.linalg.norm(mine[~hidden] - golden[~hidden])
        assert error <= 0.05 * np.linalg.norm(golden[~hidden]) + 1e-6, match


def test_another_place_in_the_cache_is_no_difference(captures: dict[str, Path]) -> None:
    """The run with a warm-up has a larger pool, and ids and counts that are further on."""
    pairing = _pair(captures["one"], captures["warm"])
    assert [(p.golden.step, p.mine.step) for p in pairing.pairs] == [(0, 2), (1, 3), (2, 4)]
    for match in _matches(_all(pairing)):
        golden, mine = _values(match)
        np.testing.assert_array_equal(mine, golden, err_msg=str(match))


def test_places_count_from_the_first_operation_of_the_model() -> None:
    x = ones(2, 4)
    golden = run("atb", [operation("Add", (0,), [x], [x]), operation("Mul", (1,), [x], [x])])
    mine = run("atb", [operation("Add", (40,), [x], [x]), operation("Mul", (41,), [x], [x])])
    found = _matches(match_runs(golden, mine, OPTIONS))
    assert {(m.golden.record.op, m.mine.record.op) for m in found} == {
        ("Add_0", "Add_40"),
        ("Mul_1", "Mul_41"),
    }
    assert {m.rule for m in found} == {"programs"}


def test_the_same_ids_are_the_same_places_where_one_side_captured_less() -> None:
    x = ones(2, 4)
    layers = [operation("Layer", (place,), [x], [x]) for place in range(4)]
    found = match_runs(run("atb", layers), run("atb", layers[2:]), OPTIONS)
    pairs = {(m.golden.record.op, m.mine.record.op) for m in found if isinstance(m, Match)}
    assert pairs == {("Layer_2", "Layer_2"), ("Layer_3", "Layer_3")}


def test_members_of_one_layer_belong_to_that_layer() -> None:
    """A capture of ``-ids 1_0`` has no entry for layer 1 itself."""
    x = ones(2, 4)
    full = []
    for layer in (0, 1):
        full.append(operation("Layer", (layer,), [x], [x], is_graph=True))
        full.append(operation("Add", (layer, 0), [x], [x]))
    for rows in ((full, full[3:]), (full[3:], full)):
        found = match_runs(run("atb", rows[0]), run("atb", rows[1]), OPTIONS)
        pairs = {(m.golden.record.op, m.mine.record.op) for m in found if isinstance(m, Match)}
        assert pairs == {("Add_1_0", "Add_1_0")}


def test_shapes_that_no_batch_explains_are_unmatched_with_both_shapes() -> None:
    golden = run("atb", [operation("Add", (0,), [ones(3, 4)], [ones(3, 4)])])
    mine = run("atb", [operation("Add", (0,), [ones(3, 5)], [ones(3, 5)])])
    found = match_runs(golden, mine, OPTIONS)
    assert {(each.side, each.reason) for each in found if isinstance(each, Unmatched)} == {
        ("golden", "shapes [3, 4] and [3, 5] differ"),
        ("mine", "shapes [3, 4] and [3, 5] differ"),
    }


def test_a_weight_of_another_size_is_not_repeated() -> None:
    """The batch of the run is equal; a weight with more rows is another weight."""
    golden = run("atb", [operation("Linear", (0,), [ones(2, 4), ones(8, 4)], [ones(2, 8)])])
    mine = run("atb", [operation("Linear", (0,), [ones(2, 4), ones(16, 4)], [ones(2, 8)])])
    reasons = [m.reason for m in match_runs(golden, mine, OPTIONS) if isinstance(m, Unmatched)]
    assert reasons == ["shapes [8, 4] and [16, 4] differ"] * 2


@pytest.mark.parametrize("side", ["golden", "mine"])
def test_a_tensor_that_one_side_did_not_save_is_named(side: str) -> None:
    x = ones(2, 4)
    full, part = operation("Add", (0,), [x, x], [x]), operation("Add", (0,), [x], [x])
    runs: list[Pass] = [run("atb", [full]), run("atb", [part])]
    found = match_runs(*(runs if side == "golden" else runs[::-1]), OPTIONS)
    alone = [each for each in found if isinstance(each, Unmatched)]
    assert [(each.side, each.record.name) for each in alone] == [(side, "intensor1")]
    assert "Add_0 has no input 1" in alone[0].reason
