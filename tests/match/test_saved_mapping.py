"""A mapping that is saved, edited and given back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memory_runs import ones, operation, run

from ait_llm.errors import FormatError
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import pair_runs
from ait_llm.match.saved_mapping import read_either, read_mapping, write_mapping
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply

OPTIONS = MatchOptions()


def _matches(golden: Path, mine: Path, options: MatchOptions) -> list[list[Match | Unmatched]]:
    pairs = pair_runs(find_scenario(golden, mine)).pairs
    return [match_runs(pair.golden, pair.mine, options) for pair in pairs]


def _save(golden: Path, mine: Path, file: Path) -> None:
    pairs = pair_runs(find_scenario(golden, mine)).pairs
    rows = []
    for pair in pairs:
        found = match_runs(pair.golden, pair.mine, OPTIONS)
        rows.append((pair.golden, pair.mine, [m for m in found if isinstance(m, Match)]))
    write_mapping(file, rows)


def test_a_saved_mapping_gives_the_same_pairs_with_the_same_views(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    golden, mine = captures["one"], captures["four"]
    _save(golden, mine, tmp_path / "m.json")
    saved = replace(OPTIONS, mapping=read_mapping(tmp_path / "m.json"))
    count = 0
    for before, after in zip(
        _matches(golden, mine, OPTIONS), _matches(golden, mine, saved), strict=True
    ):
        for one, other in zip(before, after, strict=True):
            assert isinstance(one, Match)
            assert isinstance(other, Match)
            assert (one.golden.record, one.mine.record) == (other.golden.record, other.mine.record)
            assert other.rule == "saved_mapping"
            values = [apply(s.tensor.nd(), s.views) for s in (other.golden, other.mine)]
            np.testing.assert_allclose(values[0], values[1], rtol=1e-2, atol=1e-2)
            count += 1
    assert count == 754


def test_it_names_neither_process_nor_step_nor_path(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    _save(captures["one"], captures["bf16"], tmp_path / "m.txt")
    text = (tmp_path / "m.txt").read_text()
    assert captures["one"].name not in text
    assert str(tmp_path) not in text
    lines = [line for line in text.splitlines() if " -> " in line]
    assert lines[0] == "WordEmbedding_0:* -> ="
    assert any(line.startswith("Decoder_layer_{i}:") for line in lines)
    assert len(lines) < 100  # of 754 pairs


def test_a_mapping_serves_a_run_at_other_ids_and_steps(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    _save(captures["one"], captures["bf16"], tmp_path / "m.json")
    saved = replace(OPTIONS, mapping=read_mapping(tmp_path / "m.json"))
    rules = {
        found.rule
        for row in _matches(captures["one"], captures["warm"], saved)
        for found in row
        if isinstance(found, Match)
    }
    assert "saved_mapping" in rules


def test_an_edited_pair_wins_over_the_matchers(tmp_path: Path) -> None:
    x = ones(2, 4)
    row = [operation("Add", (0,), [], [x]), operation("Mul", (1,), [], [x])]
    golden, mine = run("atb", row), run("atb", row)
    pair = {
        "golden": {"op": "Mul_1", "tensor": "outtensor0"},
        "mine": {"op": "Add_0", "tensor": "outtensor0"},
    }
    (tmp_path / "m.json").write_text(
        json.dumps({"schema": "ait-llm-mapping", "version": 1, "pairs": [pair]})
    )
    found = match_runs(golden, mine, MatchOptions(mapping=read_mapping(tmp_path / "m.json")))
    pairs = {(m.golden.record.op, m.mine.record.op, m.rule) for m in found if isinstance(m, Match)}
    assert ("Mul_1", "Add_0", "saved_mapping") in pairs
    assert ("Add_0", "Add_0", "programs") not in pairs


def test_views_of_another_number_of_tokens_are_found_anew(tmp_path: Path) -> None:
    side = {"op": "Add_0", "tensor": "outtensor0"}
    viewed = side | {"views": [{"view": "reshape", "shape": [7, 4]}]}
    content = {
        "schema": "ait-llm-mapping",
        "version": 1,
        "pairs": [{"golden": viewed, "mine": side}],
    }
    (tmp_path / "m.json").write_text(json.dumps(content))
    golden = run("atb", [operation("Add", (0,), [], [ones(1, 3, 4)])])
    mine = run("atb", [operation("Add", (0,), [], [ones(3, 4)])])
    (match,) = match_runs(golden, mine, MatchOptions(mapping=read_mapping(tmp_path / "m.json")))
    assert isinstance(match, Match)
    assert match.rule == "saved_mapping"
    assert apply(match.mine.tensor.nd(), match.mine.views).shape == (1, 3, 4)


def test_the_option_takes_either_form(tmp_path: Path) -> None:
    file = tmp_path / "op_mapping_file.json"
    file.write_text(json.dumps({"schema": "ait-llm-mapping", "version": 1, "pairs": []}))
    table, saved = read_either(tmp_path)
    assert table is None
    assert saved is not None
    assert saved.lines == ()


_SIDE = {"op": "a", "tensor": "b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"A": "B"}, "its schema is not 'ait-llm-mapping'"),
        ({"schema": "ait-llm-mapping", "version": 2}, "is of version 2, this program reads 1"),
        ({"schema": "ait-llm-mapping", "version": 1}, "has no list 'pairs'"),
        ([{"golden": _SIDE}], "pair 1 does not name two tensors"),
        ([{"golden": _SIDE, "mine": {"op": 1, "tensor": "b"}}], "names are texts"),
        ([{"golden": _SIDE, "mine": _SIDE | {"views": [{"view": "x"}]}}], "unknown view 'x'"),
        (
            [{"golden": _SIDE, "mine": _SIDE | {"views": [{"view": "part", "axis": "0"}]}}],
            "'axis' of view 'part' is not numbers",
        ),
        ([{"golden": _SIDE, "mine": _SIDE, "confidence": 2}], "pair 1"),
    ],
)
def test_a_damaged_mapping_is_refused_with_the_pair(
    tmp_path: Path, content: object, reason: str
) -> None:
    if isinstance(content, list):
        content = {"schema": "ait-llm-mapping", "version": 1, "pairs": content}
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=reason):
        read_mapping(tmp_path / "m.json")


def test_the_file_is_complete_or_absent_and_not_for_everyone(tmp_path: Path) -> None:
    write_mapping(tmp_path / "m.json", [])
    assert (tmp_path / "m.json").stat().st_mode & 0o777 == 0o640
    with pytest.raises(FormatError, match="cannot be written"):
        write_mapping(tmp_path / "absent" / "m.json", [])
