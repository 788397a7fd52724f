"""Large files are decoded by processes of their own, with the same rows and errors."""

from __future__ import annotations

import io
import json
import marshal
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from api_dumps import call, scalar, tensor, write_dump
from msprobe_samples import sample

from ait_llm.compare.api import reader, reading
from ait_llm.compare.api.reader import ReaderError, read_apart
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.errors import FormatError

RECORDS = {
    f"Torch.exp.{number}.forward": call([tensor([number, 2.5]), scalar("zwölf")], [tensor()])
    for number in range(600)
}


@pytest.fixture(autouse=True)
def _every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_APART_BYTES", 0)


def dump(folder: Path, records: Mapping[str, Any] = RECORDS) -> Path:
    """The file of a dump of one rank."""
    write_dump(folder, records)
    (path,) = folder.rglob("dump.json")
    return path


@pytest.mark.parametrize("style", ["manual", "release"])
def test_tables_are_the_same_however_files_are_read(tmp_path: Path, style: Any) -> None:
    mine = {name: record for name, record in RECORDS.items() if "7" not in name}
    mine["Torch.add.0.forward"] = call([None], [tensor([3.0])])
    sides = dump(tmp_path / "mine", mine), dump(tmp_path / "golden")
    tables = []
    for jobs in (1, 2):
        options = ApiOptions(style=style, jobs=jobs)
        outcome = compare_api_dumps(*sides, tmp_path, str(jobs), options, formats=["csv"])
        tables.append(outcome.pairs[0].files[0].read_bytes())
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") > 1800


def test_single_points_of_a_program_are_read_apart_too() -> None:
    path = next(sample("debug_stat").rglob("debug.json"))
    with read_apart(path) as records:
        assert [record[0] for record in records] == list(json.loads(path.read_text())["data"])


def test_a_file_that_breaks_off_is_told_with_its_place(tmp_path: Path) -> None:
    sides = dump(tmp_path / "mine"), dump(tmp_path / "golden")
    sides[0].write_bytes(sides[0].read_bytes()[:-100])
    problems = []
    for jobs in (1, 2):
        options = ApiOptions(jobs=jobs)
        outcome = compare_api_dumps(*sides, tmp_path, str(jobs), options, formats=["csv"])
        problems.append(outcome.pairs[0].problems)
    assert problems[0] == problems[1]
    assert "dump.json: breaks off at line" in problems[1][0]


@pytest.mark.parametrize("wrong", [" [1]}", '{"Torch.a.0.forward": 7}}'])
def test_a_malformed_file_is_the_same_error(tmp_path: Path, wrong: str) -> None:
    sides = dump(tmp_path / "mine"), dump(tmp_path / "golden")
    text = sides[1].read_text()
    sides[1].write_text(text[: text.index('"data"')] + f'"data": {wrong}, ]')
    texts = []
    for jobs in (1, 2):
        with pytest.raises(FormatError) as caught:
            compare_api_dumps(*sides, tmp_path, "1", ApiOptions(jobs=jobs), formats=["csv"])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "import os; os.abort()"])
def test_a_process_that_ends_early_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(reader, "_PROGRAM", program)
    path = dump(tmp_path)
    with (
        pytest.raises(ReaderError, match=r"dump\.json: the process that read it ended early"),
        read_apart(path) as records,
    ):
        list(records)


def test_a_damaged_message_is_not_taken() -> None:
    data = marshal.dumps([("Torch.exp.0.forward", 0, 1, [])])
    head = reader._HEAD.pack(len(data), zlib.crc32(data))
    assert reader._receive(io.BytesIO(head + data)) == marshal.loads(data)
    assert reader._receive(io.BytesIO(head + data[:-1])) is None
    assert reader._receive(io.BytesIO(head + bytes(len(data)))) is None


def test_a_write_that_is_cut_short_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process is stopped within it and goes on."""
    written = bytearray()

    def write(_descriptor: int, data: memoryview) -> int:
        written.extend(data[:7])
        return min(len(data), 7)

    monkeypatch.setattr(reader.os, "write", write)
    message = [("Torch.exp.0.forward", 0, 1, [("a", 1.5, None)])]
    reader._send(message)
    monkeypatch.undo()
    assert reader._receive(io.BytesIO(bytes(written))) == message


def test_reading_may_stop_before_the_end(tmp_path: Path) -> None:
    with read_apart(dump(tmp_path)) as records:
        assert next(records)[0] == "Torch.exp.0.forward"


def test_modules_where_the_user_is_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gc", "fcntl", "struct", "subprocess", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    path = dump(tmp_path / "dump")
    monkeypatch.chdir(tmp_path)
    with read_apart(path) as records:
        assert len(list(records)) == len(RECORDS)
