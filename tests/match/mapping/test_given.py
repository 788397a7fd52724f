"""Lines against two runs: which tensors they pair, and what is done to these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_runs import call, operation, run

from ait_llm.dumps.model import Operation
from ait_llm.errors import FormatError
from ait_llm.match.choose import match_runs
from ait_llm.match.mapping.text import read_text
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.saved_mapping import check_mapping
from ait_llm.match.views import apply
from ait_llm.program.one_pass import Pass

FILE = Path("mapping.txt")
RANDOM = np.random.default_rng(0)


def _values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def _module(name: str, place: int, *outputs: np.ndarray, **more: Any) -> Operation:
    stems = ["output"] if len(outputs) == 1 else [f"output_{n}" for n in range(len(outputs))]
    values = dict(zip(stems, outputs, strict=True))
    return call(name, "Module", place, more.pop("inputs", None), values, **more)


def _matches(golden: Pass, mine: Pass, text: str) -> list[Match]:
    mapping = read_text(FILE, text)
    check_mapping(mapping, [(golden, mine)])
    found = match_runs(golden, mine, MatchOptions(mapping=mapping))
    return [each for each in found if isinstance(each, Match) and each.rule == "saved_mapping"]


def _agree(match: Match) -> bool:
    """True if both sides have the same values after their views."""
    first, second = (apply(s.tensor.nd(), s.views) for s in (match.golden, match.mine))
    return first.size == second.size and bool((first.reshape(-1) == second.reshape(-1)).all())


def _titles(matches: list[Match]) -> list[tuple[str, str]]:
    return sorted((m.golden.record.title, m.mine.record.title) for m in matches)


def _qkv(layers: int, order: str = "qkv") -> tuple[Pass, Pass]:
    golden, mine = [], []
    for layer in range(layers):
        parts = {"q": _values(1, 5, 8), "k": _values(1, 5, 4), "v": _values(1, 5, 4)}
        for name, value in parts.items():
            path = f"root.model.layers.{layer}.self_attn.{name}_proj"
            golden.append(_module(path, len(golden), value))
        joined = np.concatenate([parts[each] for each in order], axis=-1)
        mine.append(_module(f"root.transformer.h.{layer}.attn.qkv", layer, joined))
    return run("torch", golden), run("torch", mine)


@pytest.mark.parametrize("order", ["qkv", "kqv", "vkq"])
def test_parts_of_a_joined_projection_in_any_order(order: str) -> None:
    golden, mine = _qkv(3, order)
    line = "model.layers.{i}.self_attn.{%s}_proj -> transformer.h.{i}.attn.qkv[columns]"
    matches = _matches(golden, mine, line % ",".join(order))
    assert len(matches) == 9
    assert all(map(_agree, matches))
    back = "transformer.h.{i}.attn.qkv[columns] -> model.layers.{i}.self_attn.{%s}_proj"
    matches = _matches(mine, golden, back % ",".join(order))
    assert len(matches) == 9
    assert all(map(_agree, matches))


def test_parts_of_other_widths_are_refused_with_the_line() -> None:
    golden, mine = _qkv(1)
    text = "# joined\nmodel.layers.{i}.self_attn.{q,k}_proj -> transformer.h.{i}.attn.qkv[columns]"
    options = MatchOptions(mapping=read_text(FILE, text))
    reasons = {
        each.reason
        for each in match_runs(golden, mine, options)
        if isinstance(each, Unmatched) and each.reason.startswith("mapping.txt:2: ")
    }
    assert reasons == {
        "mapping.txt:2: [columns] does not fit shape [1, 5, 16]: the parts have 8 + 4"
    }


def test_two_residual_streams_are_added() -> None:
    layers = [(_values(1, 5, 4), _values(1, 5, 4)) for _ in range(3)]
    golden = run(
        "torch", [_module(f"root.h.{n}", n, one + other) for n, (one, other) in enumerate(layers)]
    )
    mine = run(
        "torch",
        [_module(f"root.m.{n}", n, one[0], other[0]) for n, (one, other) in enumerate(layers)],
    )
    matches = _matches(golden, mine, "h.{i} -> m.{i}:output_0 + m.{i}:output_1")
    assert len(matches) == 3
    assert all(map(_agree, matches))
    assert [record.name for match in matches for _, record in match.uses] == ["outtensor1"] * 3
    assert matches[0].mine.tensors == tuple(mine.operations[0].outputs)


def test_numbers_with_an_offset_and_calls() -> None:
    value = [_values(4) for _ in range(3)]
    golden = run("torch", [_module(f"root.rope.{n}", n, value[n]) for n in range(3)])
    mine = run("torch", [_module("root.rotary", n, value[n], call=n) for n in range(3)])
    assert all(map(_agree, _matches(golden, mine, "rope.{i} -> rotary@{i}")))
    shifted = _matches(golden, mine, "rope.{i} -> rotary@{i+1}")
    assert _titles(shifted) == [
        ("root.rope.0 outtensor0", "root.rotary outtensor0"),
        ("root.rope.1 outtensor0", "root.rotary outtensor0"),
    ]
    # calls correspond by number where neither side names one
    assert len(_matches(mine, mine, "rotary -> =")) == 3
    assert len(_matches(mine, mine, "rotary@0 -> =")) == 1


def test_stars_stand_for_the_same_text() -> None:
    names = ["root.a.x.0", "root.a.y", "root.b.x.0"]
    golden = run("torch", [_module(name, n, _values(2)) for n, name in enumerate(names)])
    mine = run(
        "torch",
        [_module(name.replace(".a.", ".c."), n, _values(2)) for n, name in enumerate(names)],
    )
    assert _titles(_matches(golden, mine, "a.** -> c.**")) == [
        ("root.a.x.0 outtensor0", "root.c.x.0 outtensor0"),
        ("root.a.y outtensor0", "root.c.y outtensor0"),
    ]
    assert _titles(_matches(golden, mine, "a.* -> c.*")) == [
        ("root.a.y outtensor0", "root.c.y outtensor0")
    ]


def test_tensors_by_argument_and_all_of_them() -> None:
    inputs = {"input_hidden_states": _values(2), "input_mask": _values(2)}
    golden = run("torch", [_module("root.a", 0, _values(2), inputs=inputs)])
    mine = run("torch", [_module("root.b", 0, _values(2), inputs=inputs)])
    named = _matches(golden, mine, "a:input_mask -> b:intensor1")
    assert _titles(named) == [("root.a intensor1", "root.b intensor1")]
    assert len(_matches(golden, mine, "a:* -> b:*")) == 3
    assert len(_matches(golden, mine, "a:input_* -> b:input_*")) == 2
    assert len(_matches(golden, mine, "a -> b")) == 1


def test_atb_places_count_from_the_first_of_the_model() -> None:
    values = [_values(5, 4) for _ in range(2)]
    golden = run("torch", [_module(f"root.norm.{n}", n, v[None]) for n, v in enumerate(values)])
    mine = run("atb", [operation("RmsNorm", (7 + n, 0), [], [v]) for n, v in enumerate(values)])
    matches = _matches(golden, mine, "norm.{i} -> RmsNorm_{i}_0")
    assert len(matches) == 2
    assert all(map(_agree, matches))


def test_the_given_pair_wins_over_names() -> None:
    golden = run("torch", [_module("root.a", 0, _values(3)), _module("root.b", 1, _values(3))])
    found = match_runs(golden, golden, MatchOptions(mapping=read_text(FILE, "a -> b\nb -> a ~0.4")))
    matches = [each for each in found if isinstance(each, Match)]
    assert _titles(matches) == [
        ("root.a outtensor0", "root.b outtensor0"),
        ("root.b outtensor0", "root.a outtensor0"),
    ]
    assert {match.golden.record.op: match.confidence for match in matches} == {
        "root.a": 1.0,
        "root.b": 0.4,
    }


def test_lines_for_some_steps_alone() -> None:
    row = [_module("root.a", 0, _values(3)), _module("root.b", 1, _values(3))]
    text = "when steps 1-2\na -> b"
    assert not _matches(run("torch", row, 0), run("torch", row, 0), text)
    assert len(_matches(run("torch", row, 2), run("torch", row, 2), text)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "a -> b\nmodel.layer.{i}.self_atn.q_proj -> h.{i}.q",
            r"mapping.txt:2: the golden dump has no operation 'model.layer.\{i\}.self_atn.q_proj'. "
            r"The nearest names are model.layers.0.self_attn.q_proj",
        ),
        ("a -> c", "mapping.txt:1: my dump has no operation 'c'. The nearest names are a, b"),
        ("a:input_0 -> b", "mapping.txt:1: 'a' of the golden dump has no such tensor or call"),
        ("a -> a + d", "mapping.txt:1: my dump has no operation 'd'"),
        ("{a,e} -> b", "mapping.txt:1: the golden dump has no operation 'e'"),
    ],
)
def test_a_name_that_is_in_no_dump_is_an_error_with_the_nearest_ones(
    text: str, reason: str
) -> None:
    row = [_module("root.a", 0, _values(3)), _module("root.b", 1, _values(3))]
    golden = [*row, _module("root.model.layers.0.self_attn.q_proj", 2, _values(3))]
    runs = run("torch", golden), run("torch", row)
    with pytest.raises(FormatError, match=reason):
        check_mapping(read_text(FILE, text), [runs])
    check_mapping(read_text(FILE, f"allow missing\n{text}"), [runs])


def test_several_outputs_need_a_name() -> None:
    golden = run("torch", [_module("root.a", 0, _values(3))])
    mine = run("torch", [_module("root.b", 0, _values(3), _values(3))])
    options = MatchOptions(mapping=read_text(FILE, "a -> b"))
    reasons = [
        each.reason for each in match_runs(golden, mine, options) if isinstance(each, Unmatched)
    ]
    assert (
        reasons
        == ["mapping.txt:1: golden has 1 outputs and mine 2; name the tensor behind a colon"] * 3
    )
