"""The jsonl report reads back as what was written, whole or cut off anywhere."""

from __future__ import annotations

import json
import math
import stat
import string
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_builder import (
    comparison,
    decoder_report,
    not_finite,
    problems,
    record,
    report,
    unreadable,
)

from ait_llm.core.comparison import Report, Verdict
from ait_llm.errors import FormatError, UsageError
from ait_llm.report.jsonl import JsonlWriter, lines, read_jsonl, write_jsonl

MIXED = replace(
    decoder_report(layers=2),
    comparisons=(*decoder_report(layers=2).comparisons, unreadable(), comparison(golden=None)),
    problems=problems(),
)


def test_a_report_reads_back_equal(tmp_path: Path) -> None:
    write_jsonl(MIXED, tmp_path / "r.jsonl")
    assert read_jsonl(tmp_path / "r.jsonl") == MIXED


def test_numbers_that_are_not_finite_are_strings(tmp_path: Path) -> None:
    item = not_finite()
    (path,) = write_jsonl(report(item), tmp_path / "r.jsonl")
    data = json.loads(path.read_text().splitlines()[1], parse_constant=pytest.fail)
    assert data["values"] == {"max_absolute_error": "Infinity", "mean_absolute_error": "NaN"}
    values = read_jsonl(path).comparisons[0].values
    assert values["max_absolute_error"] == math.inf
    assert math.isnan(values["mean_absolute_error"])


def test_the_first_line_names_the_schema_and_the_last_the_totals() -> None:
    texts = [json.loads(text) for text in lines(MIXED)]
    assert texts[0]["type"] == "header"
    assert (texts[0]["schema"], texts[0]["version"]) == ("ait-llm.compare", 1)
    assert [text["type"] for text in texts[-5:]] == [*["problem"] * 2, "origin", "closeup", "total"]
    assert texts[-1]["verdict"] == "FAIL"
    assert texts[-1]["counts"] == {verdict.value: count for verdict, count in MIXED.counts.items()}
    assert texts[-1]["exit_code"] == 1
    assert texts[-1]["partial"] is False


def streamed(path: Path, value: Report) -> bytes:
    with JsonlWriter(path, value) as writer:
        for index in reversed(range(len(value.comparisons))):  # parallel workers keep no order
            writer.add(index, value.comparisons[index])
        writer.finish(value)
    return path.read_bytes()


def test_comparisons_written_as_they_came_read_back_in_order(tmp_path: Path) -> None:
    streamed(tmp_path / "r.jsonl", MIXED)
    assert read_jsonl(tmp_path / "r.jsonl") == MIXED


def test_a_report_cut_at_any_byte_is_a_valid_part(tmp_path: Path) -> None:
    value = report(comparison(), comparison(0.5), unreadable())
    data = streamed(tmp_path / "whole.jsonl", value)
    ends = [place for place, byte in enumerate(data, 1) if byte == ord("\n")]
    path = tmp_path / "cut.jsonl"
    for size in range(ends[0], len(data)):
        path.write_bytes(data[:size])
        part = read_jsonl(path)
        assert part.partial
        assert part.exit_code() == (1 if part.counts[Verdict.FAIL] else 3)
        complete = sum(end <= size for end in ends) - 1
        assert len(part.comparisons) == complete
        assert part.comparisons == value.comparisons[len(value.comparisons) - complete :]
    path.write_bytes(data)
    assert not read_jsonl(path).partial


def test_a_writer_that_is_killed_has_handed_over_what_it_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.report.jsonl.FIRST_SECONDS", 0.1)
    monkeypatch.setattr("ait_llm.report.jsonl.FLUSH_SECONDS", -1)
    writer = JsonlWriter(tmp_path / "r.jsonl", MIXED)
    writer.add(0, MIXED.comparisons[0])
    end = time.monotonic() + 60
    while not (part := read_jsonl(tmp_path / "r.jsonl")).comparisons:  # while the writer lives
        assert time.monotonic() < end
    assert part.partial
    assert part.comparisons == MIXED.comparisons[:1]
    writer.add(1, MIXED.comparisons[1])
    assert read_jsonl(tmp_path / "r.jsonl").comparisons == MIXED.comparisons[:2]
    writer.close()


def test_what_is_not_flushed_is_written_when_the_writer_closes(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "r.jsonl", MIXED)
    writer.add(0, MIXED.comparisons[0])
    assert not read_jsonl(tmp_path / "r.jsonl").comparisons
    writer.close()
    assert read_jsonl(tmp_path / "r.jsonl").comparisons == MIXED.comparisons[:1]


def test_a_report_that_nobody_needs_is_deleted(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "r.jsonl", MIXED)
    writer.add(0, MIXED.comparisons[0])
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_a_report_whose_folder_was_taken_away_can_be_discarded(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    writer = JsonlWriter(folder / "r.jsonl", MIXED)
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("in the way")
    writer.discard()
    assert folder.read_text() == "in the way"


def test_the_later_of_two_lines_with_one_index_counts(tmp_path: Path) -> None:
    value = report(comparison(0.5))
    with JsonlWriter(tmp_path / "r.jsonl", value) as writer:
        writer.add(0, unreadable())
        writer.add(0, value.comparisons[0])
        writer.finish(value)
    assert read_jsonl(tmp_path / "r.jsonl") == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ('{"type":"header"}\n', "it is no report of a comparison"),
        ("[1]\n", "line 1 is not an object"),
        ("no json\n", "line 1 is not JSON"),
        ('{"schema":"ait-llm.compare","version":9}\n', "it has version 9 of the schema"),
        ('{"schema":"ait-llm.compare","version":1}\n', "its header is damaged"),
        ("[" * 100_000 + "\n", "line 1 is not JSON"),
    ],
)
def test_what_is_no_report_is_refused_with_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(FormatError, match=reason):
        read_jsonl(tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    "damaged",
    [
        {"type": "comparison", "index": -1, "verdict": "PASS", "mine": None},
        {"type": "comparison", "index": 0, "verdict": "GOOD", "mine": None},
        {"type": "comparison", "index": 0, "verdict": "PASS"},
        {"type": "comparison", "index": 0, "verdict": "PASS", "mine": [1]},
        {"type": "problem", "side": "mine"},
        {"index": 0},
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, damaged: dict[str, object]) -> None:
    first = next(lines(MIXED))
    (tmp_path / "r.jsonl").write_text(first + json.dumps(damaged) + "\n" + first)
    with pytest.raises(FormatError, match="line 2 is damaged"):
        read_jsonl(tmp_path / "r.jsonl")


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    texts = [json.loads(text) for text in lines(MIXED)]
    for data in texts:
        data["added_later"] = 1
        for side in ("golden", "mine"):
            if data.get(side):
                data[side]["added_later"] = 1
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(data) + "\n" for data in texts))
    assert read_jsonl(tmp_path / "r.jsonl") == MIXED


@settings(max_examples=50)
@given(
    st.text(st.characters(exclude_categories=[]), min_size=1),
    st.dictionaries(st.text(string.printable), st.floats(allow_nan=False)),
)
def test_any_name_and_any_number_read_back(
    tmp_path_factory: pytest.TempPathFactory, text: str, values: dict[str, float]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    value = report(comparison(mine=record(text, name=text, path=text), values=values, reason=text))
    write_jsonl(value, path)
    assert read_jsonl(path) == value
    assert path.read_bytes().isascii()


def test_options_of_any_type_can_be_written(tmp_path: Path) -> None:
    options = {"output": Path("/out"), "steps": (0, 1), "limits": {"a": math.inf}, "by_value": True}
    write_jsonl(report(options=options), tmp_path / "r.jsonl")
    assert read_jsonl(tmp_path / "r.jsonl").options == {
        "output": "/out",
        "steps": [0, 1],
        "limits": {"a": "Infinity"},
        "by_value": True,
    }


def test_a_folder_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose another folder with --output"):
        JsonlWriter(tmp_path / "absent" / "r.jsonl", MIXED)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(UsageError):
        JsonlWriter(tmp_path / "r.jsonl", MIXED)
    assert not (tmp_path / "target").exists()


def test_files_are_not_for_everybody(tmp_path: Path) -> None:
    streamed(tmp_path / "stream.jsonl", MIXED)
    write_jsonl(MIXED, tmp_path / "whole.jsonl")
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0


def _replaced(path: tuple[str | int, ...], data: object, value: object) -> object:
    """JSON with one value in the place of another."""
    if not path:
        return value
    if isinstance(data, dict):
        return {
            key: _replaced(path[1:], item, value) if key == path[0] else item
            for key, item in data.items()
        }
    assert isinstance(data, list)
    return [
        _replaced(path[1:], item, value) if index == path[0] else item
        for index, item in enumerate(data)
    ]


def _places(data: object) -> list[tuple[str | int, ...]]:
    """Where values lie in JSON; of a list, the first element and the last."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)  # type: ignore[arg-type]
    found: list[tuple[str | int, ...]] = []
    for key, item in pairs:
        if isinstance(data, list) and 0 < key < len(data) - 1:
            continue
        found.append((key,))
        if isinstance(item, (dict, list)):
            found += [(key, *rest) for rest in _places(item)]
    return found


@pytest.mark.parametrize("wrong", [None, True, 7, -1, 1.5, "text", [], [[]], {}, {"a": []}])
def test_values_of_wrong_types_are_damage(tmp_path: Path, wrong: object) -> None:
    """Either one sentence, or a report that can be written again."""
    texts = list(lines(MIXED))
    path = tmp_path / "r.jsonl"
    refused = 0
    known = set()
    for number, text in enumerate(texts):
        data = json.loads(text)
        for place in _places(data):
            if (seen := (data["type"], place)) in known:
                continue  # lines of one type are read alike
            known.add(seen)
            changed = [*texts]
            changed[number] = json.dumps(_replaced(place, data, wrong)) + "\n"
            path.write_text("".join(changed))
            try:
                found = read_jsonl(path)
            except FormatError:
                refused += 1
            else:
                assert len(list(lines(found))) > 1
                assert found.exit_code() in (0, 1, 3)
    assert refused > 50
