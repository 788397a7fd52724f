"""Names that steer a terminal, turn a line round or are half characters: nothing of it is shown."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dump_builder import HEADER, SEAL, DumpBuilder, entry

from ait_llm.apicheck.outcome import ApiResult
from ait_llm.apicheck.tables import Tables
from ait_llm.cli.main import ait
from ait_llm.compare.api.csv_lines import CsvLines
from ait_llm.errors import FormatError
from ait_llm.naming import escaped, told

EVIL = {
    "\x1b[2J": "\\x1b[2J",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\u202e": "\\u202e",
    "\n": "\\n",
    "\r": "\\r",
    "\udc80": "\\udc80",
    "\x7f": "\\x7f",
    "\u2028": "\\u2028",
}


def run(*words: str) -> Result:
    return CliRunner().invoke(ait, ["--lang", "en", "llm", *words])


@pytest.mark.parametrize("text", EVIL)
def test_show_lists_names_in_one_harmless_line(tmp_path: Path, text: str) -> None:
    builder = DumpBuilder(tmp_path / "out" / "ait_dump")
    builder.operation(f"0_Layer{text}End")
    builder.ledger(HEADER, entry("0_4242/0/0_Layer"), SEAL)
    result = run("show", str(tmp_path / "out"))
    assert f"Layer{EVIL[text]}End" in result.stdout
    assert all(line.isprintable() for line in result.stdout.split("\n"))
    assert sum("Layer" in line for line in result.stdout.split("\n")) == 1


@pytest.mark.parametrize("text", EVIL)
def test_error_lines_show_names_harmlessly(tmp_path: Path, text: str) -> None:
    folder = tmp_path / f"a{text}b"
    folder.mkdir()
    result = run("show", str(folder))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert f"a{EVIL[text]}b" in line
    assert line.isprintable()


@pytest.mark.parametrize("text", EVIL)
def test_errors_of_files_are_one_line(text: str) -> None:
    assert str(FormatError(f"a{text}b", "is odd")) == f"a{EVIL[text]}b: is odd"
    assert FormatError(f"a{text}b", "is odd").path == Path(f"a{text}b")


def test_messages_keep_their_lines() -> None:
    assert told("one\n\ttwo\x1b") == "one\n\ttwo\\x1b"
    assert escaped("数值 ok") == "数值 ok"


@pytest.mark.parametrize("text", EVIL)
def test_tables_of_api_calls_hold_no_such_characters(text: str) -> None:
    line = CsvLines().line([f"=a{text}b", 1])
    assert escaped(line[:-1], "\n") == line[:-1]
    assert next(csv.reader([line]))[0].startswith("'=a")


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "@x", "a\x1b[2J", "a\nb", "a\udc80", "+1"])
def test_a_table_of_api_check_holds_text_only_and_goes_on(tmp_path: Path, name: str) -> None:
    result = ApiResult(name, "error", " ", f"-{name}")
    with Tables(tmp_path, "20260101000000", "", "default") as tables:
        tables.add(result)
    raw = tables.result_path.read_text()
    (cells,) = list(csv.reader(raw.splitlines()))[1:]
    assert not cells[0].startswith(("=", "@", "+", "-"))
    assert not cells[3].startswith(("=", "@", "+", "-"))
    assert all(line.isprintable() for line in raw.splitlines())
    again = Tables(tmp_path, "20260101000000", "", "default")
    assert [each.name for each in again.earlier] == [cells[0]]
    assert tables.details_path.read_text().count("\n") == 2


def test_half_characters_end_no_command(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/bad\xff"
    os.mkdir(folder)  # noqa: PTH102  the bytes are the point
    result = run("show", os.fsdecode(folder))
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert "bad\\udcff" in result.stderr
