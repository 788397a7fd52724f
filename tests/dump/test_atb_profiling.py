"""cpu_profiling: raw lines become the manual's blocks and a csv; twice changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.dump.profiling import merge_profiling, parse_statistics
from ait_llm.errors import IncompleteError

# Spelling, order and separators of ATB 8.0.0 (atb-probe.md 2.5), shortened.
SETUP = "totalTime:188, runnerCreateTime:12, runnerSetupTime:115"
EXECUTE = "totalTime:535801, streamSyncTime:0, kernelExecuteTime:416"
RAW = f"[DecoderLayer_0]:{SETUP}\n[DecoderLayer_0]:{EXECUTE}\n[Head_1]:{SETUP}\n"
MERGED_TEXT = (
    f"DecoderLayer_0:\n[execute] {EXECUTE}\n[setup] {SETUP}\n\nHead_1:\n[setup] {SETUP}\n\n"
)
MERGED_CSV = (
    "opname,execute_kernelExecuteTime,execute_streamSyncTime,execute_totalTime,"
    "setup_runnerCreateTime,setup_runnerSetupTime,setup_totalTime\n"
    "DecoderLayer_0,416,0,535801,12,115,188\n"
    "Head_1,,,,12,115,188\n"
)


def raw_file(tmp_path: Path, text: str = RAW, name: str = "operation_statistic_1.txt") -> Path:
    path = tmp_path / "20261121110000" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_raw_lines_become_blocks_and_a_table(tmp_path: Path) -> None:
    path = raw_file(tmp_path)
    (merged,) = merge_profiling(path.parent)
    assert path.read_text() == MERGED_TEXT
    assert merged.table.read_text() == MERGED_CSV
    assert (merged.table.name, merged.operations) == ("operation_statistic_1.csv", 2)
    assert merged.unread_lines == 0


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    path = raw_file(tmp_path)
    for _ in range(2):
        merge_profiling(path.parent)
    assert path.read_text() == MERGED_TEXT
    assert path.with_suffix(".csv").read_text() == MERGED_CSV
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "operation_statistic_1.csv",
        "operation_statistic_1.txt",
    ]


def test_the_last_report_of_each_kind_wins_also_over_a_merged_block(tmp_path: Path) -> None:
    later = EXECUTE.replace("416", "999")
    path = raw_file(tmp_path, MERGED_TEXT + f"[DecoderLayer_0]:{later}\n")
    merge_profiling(path.parent)
    assert path.read_text() == MERGED_TEXT.replace("416", "999")


def test_a_file_that_is_still_appended_to_keeps_its_raw_text(tmp_path: Path) -> None:
    path = raw_file(tmp_path)
    merge_profiling(path.parent, rewrite_text=False)
    assert path.read_text() == RAW
    assert path.with_suffix(".csv").read_text() == MERGED_CSV


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    path = raw_file(tmp_path, name="notes.txt")
    assert merge_profiling(path.parent) == []
    assert path.read_text() == RAW


def test_lines_that_are_no_report_are_counted() -> None:
    operations, unread = parse_statistics(["garbage", "[A_0]:unknown:1", f"[A_0]:{SETUP}", ""])
    assert (list(operations), unread) == (["A_0"], 2)


def test_a_file_that_cannot_be_written_is_an_error_and_stays(tmp_path: Path) -> None:
    path = raw_file(tmp_path)
    (path.parent / "operation_statistic_1.csv").mkdir()
    with pytest.raises(IncompleteError, match="could not be merged"):
        merge_profiling(path.parent)
    assert path.read_text() == RAW
    assert not list(path.parent.glob(".*"))
