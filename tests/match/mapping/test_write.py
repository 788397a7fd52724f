"""A mapping that is written means, when it is read, the pairs it was written from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import call, ones, operation, run

from ait_llm.dumps.model import Operation
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.operators import placed
from ait_llm.match.views import Part, Plus, Reshape, View
from ait_llm.program.one_pass import Pass
from tests.match.mapping.checking import check_round_trip, compared


@st.composite
def trees(draw: st.DrawFn) -> tuple[Pass, dict[str, str]]:
    """A run of modules in layers, and what the other side calls each of them."""
    parts = st.sampled_from(["norm", "q_proj", "k_proj", "up2", "w1", "w10", "a-b", "x:y"])
    inner = draw(st.lists(parts, min_size=1, max_size=5, unique=True))
    layers = draw(st.integers(1, 4))
    first = draw(st.integers(0, 3))
    names = {f"root.m.layers.{n}": f"root.h{n + first}" for n in range(layers)}
    for n in range(layers):
        for name in inner:
            other = draw(st.sampled_from([name, "attn." + name])) if n == 0 else name
            names[f"root.m.layers.{n}.{name}"] = f"root.h{n + first}.{other}"
    for name in draw(st.lists(parts, max_size=3, unique=True)):
        names[f"root.m.{name}"] = f"root.t.{name}"
    operations = []
    for place, name in enumerate(names):
        calls = draw(st.integers(1, 2))
        inputs = {f"input_{n}": np.zeros(2) for n in range(draw(st.integers(0, 2)))}
        outputs = {f"output_{n}": np.zeros(2) for n in range(draw(st.integers(1, 3)))}
        for number in range(calls):
            operations.append(call(name, "Module", place, inputs, outputs, call=number))
    return run("torch", operations), names


def _renamed(golden: Pass, names: dict[str, str]) -> Pass:
    return run("torch", [replace(each, name=names[each.name]) for each in golden.operations])


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_random_trees_of_modules(
    tmp_path_factory: pytest.TempPathFactory, tree: tuple[Pass, dict[str, str]], data: st.DataObject
) -> None:
    golden, names = tree
    mine = _renamed(golden, names)
    matches = []
    confidences = st.sampled_from([1.0, 0.95, 0.9, 0.6, 0.4])
    for one, other in zip(placed(golden), placed(mine), strict=True):
        for tensor, theirs in zip(one.tensors, other.tensors, strict=True):
            if data.draw(st.integers(0, 9)):  # one in ten was not paired
                matches.append(
                    Match(
                        one.source(tensor),
                        other.source(theirs),
                        "test",
                        data.draw(confidences),
                        "same",
                    )
                )
    path = tmp_path_factory.mktemp("mapping") / "m.txt"
    check_round_trip([(golden, mine, matches)], path)


def _layers(count: int, width: int = 6) -> list[Operation]:
    parts = ("norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "mlp")
    names = [f"root.model.layers.{n}.{part}" for n in range(count) for part in parts]
    values = {"input_0": np.zeros((2, width))}, {"output": np.zeros((2, width))}
    return [call(name, "Module", place, *values) for place, name in enumerate(names)]


def test_what_holds_for_all_layers_is_a_line(tmp_path: Path) -> None:
    golden = run("torch", _layers(30))
    found = [each for each in match_runs(golden, golden, MatchOptions()) if isinstance(each, Match)]
    assert len(found) == 360
    lines = check_round_trip([(golden, golden, found)], tmp_path / "m.txt")
    assert lines == [
        "model.layers.{i}.{norm,mlp}:* -> =",
        "model.layers.{i}.attn.{q,k,v,o}_proj:* -> =",
    ]


def test_joined_parts_are_a_line(tmp_path: Path) -> None:
    golden = run("torch", _layers(3))
    rows = [
        call(f"root.h.{n}.qkv", "Linear", n, {}, {"output": np.zeros((2, 18))}) for n in range(3)
    ]
    mine = run("torch", rows)
    by_name = {each.operation.name: each for each in placed(golden)}
    matches = []
    for n, other in enumerate(placed(mine)):
        for number, part in enumerate("qkv"):
            one = by_name[f"root.model.layers.{n}.attn.{part}_proj"]
            view = Part(1, 6 * number, 6 * number + 6)
            matches.append(
                Match(
                    one.source(one.operation.outputs[0]),
                    other.source(other.operation.outputs[0], (view,)),
                    "test",
                    1.0,
                    "",
                )
            )
    assert check_round_trip([(golden, mine, matches)], tmp_path / "m.txt") == [
        "model.layers.{i}.attn.{q,k,v}_proj -> h.{i}.qkv[columns]"
    ]


def test_a_sum_is_written_as_one(tmp_path: Path) -> None:
    golden = run("torch", _layers(2))
    values = {"output_0": np.zeros((1, 2, 6)), "output_1": np.zeros((2, 6))}
    mine = run("torch", [call(f"root.h.{n}", "Layer", n, {}, values) for n in range(2)])
    matches = []
    for one, other in zip(placed(golden)[::6], placed(mine), strict=True):
        hidden, residual = other.operation.outputs
        views: tuple[View, ...] = (
            Reshape((2, 6)),
            Plus(other.source(residual).record, residual),
        )
        matches.append(
            Match(
                one.source(one.operation.outputs[0]), other.source(hidden, views), "test", 1.0, ""
            )
        )
    lines = check_round_trip([(golden, mine, matches)], tmp_path / "m.txt")
    assert lines == ["model.layers.{i}.norm:output -> h.{i}:output_0[shape 2x6] + h.{i}:output_1"]


def test_what_differs_from_step_to_step_has_a_heading(tmp_path: Path) -> None:
    rows = []
    for step, partner in ((0, 0), (1, 1), (2, 1)):
        golden, mine = run("torch", _layers(1), step), run("torch", _layers(1), step)
        one, other = placed(golden)[0], placed(mine)[partner]
        match = Match(
            one.source(one.operation.outputs[0]),
            other.source(other.operation.outputs[0]),
            "test",
            1.0,
            "",
        )
        rows.append((golden, mine, [match]))
    assert check_round_trip(rows, tmp_path / "m.txt") == [
        "when steps 0",
        "model.layers.0.norm -> =",
        "when steps 1,2",
        "model.layers.0.norm -> model.layers.0.attn.q_proj",
    ]


@pytest.mark.parametrize("mine", ["one", "four", "bf16", "warm"])
def test_captures_of_variants(captures: dict[str, Path], tmp_path: Path, mine: str) -> None:
    found = compared(captures["one"], captures[mine])
    pairs = sum(len(matches) for _, _, matches in found)
    lines = check_round_trip(found, tmp_path / "m.txt")
    assert pairs > 500
    assert len(lines) < pairs / 4


def test_a_tensor_of_each_layer_that_is_another_makes_no_line_for_each_layer(
    tmp_path: Path,
) -> None:
    """Other inputs of the layer still go together for all layers."""

    def lines(layers: int) -> list[str]:
        x = ones(2, 4)
        one = run("atb", [operation("Layer", (n,), [x, x, x, x], [x]) for n in range(layers)])
        matches = []
        for each in placed(one):
            for tensor in each.tensors:
                is_other = tensor.role == "in" and tensor.index == 2
                source = each.source(tensor, (Part(1, 0, 2),) if is_other else ())
                matches.append(Match(source, source, "test", 1.0, "same"))
        return check_round_trip([(one, one, matches)], tmp_path / "m.txt")

    assert lines(5) == lines(2)
