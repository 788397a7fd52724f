"""Chaos: what it takes for broken, and that a few draws break nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "robustness"
sys.path.insert(0, str(SCRIPTS))

from chaos_page import (  # noqa: E402
    Drawn,
    added,
    publish,
    read,
    read_records,
    write_records,
)
from invariants import Seen, Undisturbed, broken, stable  # noqa: E402

RESULT = f"result {'0' * 64}\n"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "out" / "ait_dump" / "0_4242"
    folder.mkdir(parents=True)
    folder.joinpath("a.bin").write_bytes(b"right")
    folder.joinpath("rows.csv").write_bytes(b"one\ntwo\n")
    return tmp_path / "out"


@pytest.fixture
def usual(output: Path) -> Undisturbed:
    return Undisturbed(stable(output, output), "0" * 64, 0, 1.0)


def _broken(
    seen: Seen, usual: Undisturbed, *, strikes: bool = False, ends: bool = False
) -> list[str]:
    return broken(seen, usual, strikes=strikes, removes=False, ends=ends)


def test_a_run_like_that_without_a_fault_is_not_broken(output: Path, usual: Undisturbed) -> None:
    assert _broken(Seen(output, RESULT, 0, 1.0, shown=0), usual) == []


def test_a_compiled_program_may_say_what_it_says_without_a_capture(output: Path) -> None:
    usual = Undisturbed(stable(output, output), "1" * 64, 0, 1.0, alone="0" * 64)
    assert _broken(Seen(output, RESULT, 0, 1.0, shown=0), usual) == []


def test_other_bytes_are_broken_whatever_was_killed(output: Path, usual: Undisturbed) -> None:
    output.joinpath("ait_dump", "0_4242", "a.bin").write_bytes(b"wrong")
    seen = Seen(output, "", -9, 1.0)
    assert _broken(seen, usual, strikes=True, ends=True) == ["ait_dump/N_N/a.bin has other bytes"]


def test_rows_may_be_missing_from_a_table_and_not_be_others(
    output: Path, usual: Undisturbed
) -> None:
    table_file = output.joinpath("ait_dump", "0_4242", "rows.csv")
    table_file.write_bytes(b"two\n")
    assert _broken(Seen(output, RESULT, 3, 1.0), usual) == []
    table_file.write_bytes(b"tw\n")
    assert _broken(Seen(output, RESULT, 3, 1.0), usual) == ["ait_dump/N_N/rows.csv has other bytes"]


def test_a_missing_file_is_broken_only_where_the_exit_code_is_zero(
    output: Path, usual: Undisturbed
) -> None:
    output.joinpath("ait_dump", "0_4242", "a.bin").unlink()
    assert _broken(Seen(output, RESULT, 3, 1.0), usual) == []
    (found,) = _broken(Seen(output, RESULT, 0, 1.0), usual)
    assert "files of 1 names are missing, ait_dump/N_N/a.bin for one" in found


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_capture_that_was_moved_away_is_broken_only_where_it_was_not_whole(
    output: Path, usual: Undisturbed, is_whole: bool
) -> None:
    if not is_whole:
        output.joinpath("ait_dump", "0_4242", "a.bin").unlink()
    output.joinpath("ait_dump").rename(output.parent / "moved-ait_dump")
    output.joinpath("ait_dump").write_text("not a folder", encoding="utf-8")
    seen = Seen(output, RESULT, 0, 1.0)
    found = broken(seen, usual, strikes=False, removes=True, ends=False)
    assert bool(found) is not is_whole


def test_an_output_that_is_taken_away_before_the_program_starts_is_refused(
    output: Path, usual: Undisturbed
) -> None:
    seen = Seen(output, "", 2, 1.0)
    assert broken(seen, usual, strikes=False, removes=True, ends=False) == []
    assert broken(seen, usual, strikes=False, removes=False, ends=False)


def test_a_second_capture_in_a_folder_may_number_its_graph_anew(output: Path) -> None:
    graph = output / "ait_dump" / "graph_1" / "graph.json"
    graph.parent.mkdir()
    graph.write_text('{"graph": 1, "nodes": []}', encoding="utf-8")
    usual = Undisturbed(stable(output, output), "0" * 64, 0, 1.0)
    graph.write_text('{"graph": 2, "nodes": []}', encoding="utf-8")
    assert _broken(Seen(output, RESULT, 0, 1.0), usual) == []
    graph.write_text('{"graph": 2, "nodes": [1]}', encoding="utf-8")
    assert _broken(Seen(output, RESULT, 0, 1.0), usual)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"text": "result " + "1" * 64}, "another result"),
        ({"text": ""}, "has no result"),
        ({"seconds": 1000.0}, "it took 1000 s"),
        ({"code": 1}, "exit code 1"),
        ({"code": 4}, "an exception that nobody foresaw"),
        ({"alive": [7]}, "processes are left"),
        ({"segments": ["ait-1"]}, "shared memory is left"),
        ({"temporary": ["ait-1"]}, "temporary files are left"),
        ({"shown": 4}, "cannot be shown"),
        (
            {"text": f"{RESULT}Traceback (most recent call last):\n  ait_llm/cli/main.py"},
            "a traceback of ait",
        ),
    ],
)
def test_what_must_not_be_is_said(
    output: Path, usual: Undisturbed, change: dict[str, object], text: str
) -> None:
    seen = replace(Seen(output, RESULT, 0, 1.0), **change)  # type: ignore[arg-type]
    assert any(text in each for each in _broken(seen, usual))


def test_lines_of_a_ledger_are_whole_but_for_the_last(output: Path, usual: Undisturbed) -> None:
    ledger = output / "ait_dump" / "ledger.jsonl"
    ledger.write_text('{"a": 1}\n{"b"', encoding="utf-8")
    assert _broken(Seen(output, RESULT, 3, 1.0), usual) == []
    ledger.write_text('{"a"\n{"b": 1}\n', encoding="utf-8")
    assert _broken(Seen(output, RESULT, 3, 1.0), usual) == [
        "ait_dump/ledger.jsonl has a line that is no JSON"
    ]


def test_the_page_has_all_draws_and_findings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- chaos: written by scripts/chaos --write -->\nold\n<!-- end of chaos -->\nb\n"
    )
    draws = [
        Drawn(7, 0, "torch", "nothing", "0 torch, nothing"),
        Drawn(7, 1, "torch", "nothing", "1 torch, nothing", ("it broke",)),
        Drawn(9, 0, "show", "nothing", "0 show, nothing"),
    ]
    publish([page], added({}, draws, "abc"))
    text = page.read_text("utf-8")
    assert text.startswith("a\n")
    assert text.endswith("<!-- end of chaos -->\nb\n")
    assert "old" not in text
    assert "3 draws (2 of seed 7 until abc, 1 of seed 9 until abc): 1 with findings" in text
    assert "| nothing | 1 | 2 | 3 |" in text
    assert "- **1 torch, nothing**: it broke" in text


def test_the_record_grows_and_a_draw_that_is_made_again_says_what_it_finds_now(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chaos.json"
    assert read_records(path) == {}
    draws = [Drawn(7, each, "torch", "nothing", f"{each} torch", ("broke",)) for each in (0, 1, 5)]
    write_records(path, added({}, draws, "abc"))
    again = added(read_records(path), [replace(draws[1], found=())], "def")
    write_records(path, again)
    found = read_records(path)
    assert found == again
    assert found[7].numbers == {0, 1, 5}
    assert found[7].counts == {("torch", "nothing"): 3}
    assert list(found[7].findings) == [0, 5]


def test_results_are_what_runs_have_added(tmp_path: Path) -> None:
    path = tmp_path / "draws.jsonl"
    assert read(path) == []
    draws = [Drawn(1, each, "show", "nothing", "what", ("ü",)) for each in range(2)]
    path.write_text("".join(each.line() for each in draws), encoding="utf-8")
    assert read(path) == draws


@pytest.mark.native
def test_draws_without_a_moment_break_nothing() -> None:
    # Clocks that jump, in a plain program and in one that forks.
    words = ["--draws", "2", "--seed", "1151", "--kinds", "tensor"]
    done = _chaos(*words)
    assert done.stdout.endswith("2 draws, 0 with findings\n"), done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.native
def test_draws_are_shared_out_and_not_made_again(tmp_path: Path) -> None:
    results = str(tmp_path / "draws.jsonl")
    words = ["--draws", "4", "--seed", "1152", "--kinds", "show", "--results", results]
    assert "2 draws, 0 with findings" in _chaos(*words, "--share", "2/2").stdout
    assert [each.number for each in read(Path(results))] == [1, 3]
    assert "2 draws, 0 with findings" in _chaos(*words).stdout
    assert sorted(each.number for each in read(Path(results))) == [0, 1, 2, 3]


def _chaos(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "chaos.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
