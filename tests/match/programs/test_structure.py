"""ATB against ATB of another topology: float against quantised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import ones, operation, run

from ait_llm.core import DType
from ait_llm.dumps.model import Operation
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply
from ait_llm.program.one_pass import Pass

OPTIONS = MatchOptions()
GENERATOR = np.random.default_rng(0)


def _found(golden: Pass, mine: Pass) -> list[Match | Unmatched]:
    return match_runs(golden, mine, OPTIONS)


def _pairs(found: Sequence[Match | Unmatched]) -> set[tuple[str, str, str]]:
    return {
        (m.golden.record.op, m.mine.record.op, m.mine.record.name)
        for m in found
        if isinstance(m, Match)
    }


def _quantised(captures: dict[str, Path]) -> list[Match | Unmatched]:
    (pair,) = pair_runs(find_scenario(captures["float"], captures["w8a8"])).pairs
    return _found(pair.golden, pair.mine)


def test_float_and_w8a8_operations_pair_around_the_inserted_quantisation(
    captures: dict[str, Path],
) -> None:
    pairs = _pairs(_quantised(captures))
    for block in "01":
        assert {(one, other) for one, other, _ in pairs if one.split("_")[1] == block} == {
            (f"FloatBlock_{block}", f"QuantBlock_{block}"),
            (f"RmsNormOperation_{block}_0", f"RmsNormOperation_{block}_0"),
            (f"LinearOperation_{block}_1", f"LinearOperation_{block}_2"),
            (f"ElewiseOperation_{block}_2", f"ElewiseOperation_{block}_3"),
        }


def test_dequantised_weights_and_biases_are_those_of_the_float_model(
    captures: dict[str, Path],
) -> None:
    """Both programs are made from the same integers and scales."""
    compared = 0
    for match in _quantised(captures):
        if isinstance(match, Match) and match.mine.record.dtype in (DType.INT8, DType.INT32):
            golden = match.golden.tensor.nd().astype(np.float64)
            mine = apply(match.mine.tensor.nd(), match.mine.views).astype(np.float64)
            if match.mine.record.name == "intensor0":  # activation: half a step of rounding
                limit = 0.5 / 32 + 1e-3
            else:
                limit = 1e-3 * np.abs(golden).max()
            # rounding errors of the first block reach the second one's activation
            first = match.mine.record.op_id.startswith("0")
            np.testing.assert_allclose(mine, golden, rtol=0, atol=limit * (1 if first else 4))
            compared += 1
    # weight and bias at the product and at the block, activation at the product
    assert compared == 10


def test_outputs_of_the_quantised_model_are_close_to_the_float_ones(
    captures: dict[str, Path],
) -> None:
    errors = {}
    for match in _quantised(captures):
        if isinstance(match, Match) and match.mine.record.role == "out":
            golden, mine = match.golden.tensor.nd(), match.mine.tensor.nd()
            difference = np.linalg.norm(mine.astype(float) - golden.astype(float))
            errors[match.mine.record.op] = difference / np.linalg.norm(golden.astype(float))
    assert len(errors) == 8
    assert max(errors.values()) < 0.02, errors


def test_what_only_the_quantised_model_has_is_named(captures: dict[str, Path]) -> None:
    alone = {
        (each.record.op, each.record.name): each.reason
        for each in _quantised(captures)
        if isinstance(each, Unmatched)
    }
    assert alone["ElewiseOperation_0_1", "outtensor0"] == (
        "the golden run has no operation that answers ElewiseOperation_0_1"
    )
    assert alone["QuantBlock_0", "intensor4"].startswith("the two graphs take different inputs")
    # deqScale of a product is looked at with its weight
    assert ("LinearOperation_0_2", "intensor3") not in alone
    assert len(alone) == 6


def test_inputs_of_graphs_are_known_by_their_members_without_a_reported_topology() -> None:
    """A block that also takes a scale has other positions; values say which input is which."""
    x, weight = GENERATOR.standard_normal((2, 4, 4)).astype(np.float16)
    scale, out = ones(4), x @ weight.T
    golden = [
        operation("Block", (0,), [x, weight], [out], is_graph=True),
        operation("LinearOperation", (0, 0), [x, weight], [out]),
    ]
    mine = [
        operation("Block", (0,), [scale, weight, x], [out], is_graph=True),
        operation("CastOperation", (0, 0), [scale], [scale]),
        operation("LinearOperation", (0, 1), [x, weight], [out]),
    ]
    found = _found(run("atb", golden), run("atb", mine))
    pairs = {
        (m.golden.record.name, m.mine.record.name)
        for m in found
        if isinstance(m, Match) and m.mine.record.op == "Block_0"
    }
    assert pairs == {
        ("intensor0", "intensor2"),
        ("intensor1", "intensor1"),
        ("outtensor0", "outtensor0"),
    }


def test_int8_without_its_scale_in_the_dump_is_unmatched() -> None:
    x = np.arange(8, dtype=np.float16).reshape(2, 4)
    linear = [x, ones(4, 4)]
    quantised: list[np.ndarray[Any, Any]] = [x.astype(np.int8), np.ones((4, 4), np.int8)]
    quantised += [np.zeros(4, np.int32), np.ones(4, np.float32)]
    golden = run("atb", [operation("LinearOperation", (0,), linear, [x])])
    mine = run("atb", [operation("LinearQuantOperation", (0,), quantised, [x])])
    reasons = {
        each.record.name: each.reason
        for each in _found(golden, mine)
        if isinstance(each, Unmatched) and each.side == "mine"
    }
    expected = "LinearQuantOperation_0 is quantised, its scale is not in the dump"
    assert reasons["intensor0"] == reasons["intensor1"] == expected
    assert ("LinearOperation_0", "LinearQuantOperation_0", "outtensor0") in _pairs(
        _found(golden, mine)
    )


def test_per_token_scales_turn_activations_and_weights_into_real_numbers() -> None:
    x = np.array([[1, -2, 4, 8], [3, 1, -1, 0.5]], np.float16)
    per_token = (np.abs(x).max(1) / 127).astype(np.float32)
    quantised = np.round(x / per_token[:, None]).astype(np.int8)
    weight = np.diag([2, 4, 6, 8]).astype(np.int8)
    deq = np.array([0.5, 1, 2, 4], np.float32)
    params = {"quantMode": 2, "hasBias": False, "transposeB": True}
    golden_weight = (weight * deq[:, None]).astype(np.float16)
    y = (x @ golden_weight.T).astype(np.float16)
    golden = run("atb", [operation("LinearOperation", (0,), [x, golden_weight], [y])])
    inputs = [quantised, weight, deq, per_token]
    extra = operation("ElewiseOperation", (1,), [y], [y])
    mine = run("atb", [operation("LinearOperation", (0,), inputs, [y], params=params), extra])
    matches = {
        m.mine.record.name: m
        for m in _found(golden, mine)
        if isinstance(m, Match) and m.mine.record.role == "in"
    }
    seen = {name: apply(m.mine.tensor.nd(), m.mine.views) for name, m in matches.items()}
    np.testing.assert_allclose(seen["intensor0"], x, atol=per_token.max() / 2)
    np.testing.assert_array_equal(seen["intensor1"], golden_weight)


def test_elementwise_operations_of_other_kinds_never_pair() -> None:
    x = ones(2, 4)
    add = operation("ElewiseOperation", (0,), [x, x], [x], params={"elewiseType": 8})
    cast = operation("ElewiseOperation", (0,), [x], [x], params={"elewiseType": 1})
    other = operation("ElewiseOperation", (1,), [x, x], [x], params={"elewiseType": 8})
    pairs = _pairs(_found(run("atb", [add]), run("atb", [cast, other])))
    assert {(one, two) for one, two, _ in pairs} == {("ElewiseOperation_0", "ElewiseOperation_1")}


def test_twins_are_reported_as_ambiguous() -> None:
    x = ones(2, 4)
    golden = [operation("SoftmaxOperation", (place,), [x], [x]) for place in (0, 1)]
    mine = [
        operation("NewOperation", (0,), [x], [x]),
        operation("SoftmaxOperation", (1,), [x], [x]),
    ]
    found = _found(run("atb", golden), run("atb", mine))
    matches = [m for m in found if isinstance(m, Match)]
    assert all(m.confidence < 0.5 for m in matches)
    names = {m.golden.record.op for m in matches} | {a for m in matches for a in m.alternatives}
    assert names == {"SoftmaxOperation_0", "SoftmaxOperation_1"}


def test_an_operation_that_a_graph_wraps_on_one_side_is_found_in_it() -> None:
    x = ones(2, 4)
    golden = [operation("LinearOperation", (0,), [x, ones(4, 4)], [x])]
    mine = [
        operation("LinearWrapper", (0,), [x], [x], is_graph=True),
        operation("CastOperation", (0, 0), [x], [x]),
        operation("LinearOperation", (0, 1), [x, ones(4, 4)], [x]),
    ]
    pairs = _pairs(_found(run("atb", golden), run("atb", mine)))
    assert {(one, two) for one, two, _ in pairs} == {("LinearOperation_0", "LinearOperation_0_1")}


@dataclass
class _Sketch:
    """An operation by kind and width, or a graph of such."""

    kind: str
    width: int
    members: list[_Sketch]
    number: int = -1  # its identity; -1 for an inserted one


_LEAVES = st.builds(
    _Sketch, st.sampled_from(["Linear", "RmsNorm", "Softmax"]), st.sampled_from([4, 8]), st.just([])
)
_GRAPHS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(
        _Sketch,
        st.sampled_from(["Attention", "Mlp"]),
        st.just(4),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
_MODELS = st.lists(_GRAPHS, min_size=1, max_size=4)


def _number(row: list[_Sketch], start: int = 0) -> int:
    for sketch in row:
        sketch.number = start
        start = _number(sketch.members, start + 1)
    return start


def _rows(row: list[_Sketch]) -> list[list[_Sketch]]:
    return [row, *(inner for sketch in row for inner in _rows(sketch.members) if sketch.members)]


def _operations(row: list[_Sketch], ids: tuple[int, ...] = ()) -> list[Operation]:
    found = []
    for place, sketch in enumerate(row):
        x = ones(2, sketch.width)
        here = (*ids, place)
        found.append(
            operation(sketch.kind, here, [x], [x], is_graph=bool(sketch.members), pid=sketch.number)
        )
        found += _operations(sketch.members, here)
    return found


@settings(max_examples=60)
@given(_MODELS, st.data())
def test_operations_inserted_at_random_places_never_make_a_wrong_certain_pair(
    model: list[_Sketch], data: st.DataObject
) -> None:
    _number(model)
    golden = run("atb", _operations(model))
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.sampled_from(_rows(model)))
        inserted = data.draw(_LEAVES)
        row.insert(data.draw(st.integers(0, len(row))), inserted)
    mine = run("atb", _operations(model))
    for found in _found(golden, mine):
        if isinstance(found, Match) and found.confidence >= 0.5:
            assert found.golden.record.pid == found.mine.record.pid


@settings(max_examples=40)
@given(_MODELS)
def test_operations_of_kinds_that_the_other_side_lacks_leave_every_pair_certain(
    model: list[_Sketch],
) -> None:
    count = _number(model)
    golden = run("atb", _operations(model))
    for row in _rows(model):
        for place in range(len(row), -1, -1):
            row.insert(place, _Sketch("ElewiseOperation", 4, []))
    mine = run("atb", _operations(model))
    matches = [m for m in _found(golden, mine) if isinstance(m, Match)]
    assert {m.golden.record.pid for m in matches} == set(range(count))
    assert all(m.golden.record.pid == m.mine.record.pid for m in matches)
