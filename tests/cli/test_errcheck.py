"""``ait llm errcheck`` on dumps: exit codes, files and words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from odd_dumps import half, write_operation

from ait_llm.cli.main import ait


def errcheck(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "errcheck", *words])


def write_dump(folder: Path, output: float = 0.5) -> str:
    left = half(2, 3, at_1_2=output)
    write_operation(folder, "0_RmsNormOperation", [half(2, 3)], [left])
    write_operation(folder, "1_LinearOperation", [left, half(3, 3)], [left])
    return str(folder)


def test_a_clean_dump_exits_with_0_in_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = errcheck("--dump", write_dump(tmp_path / "dump"), "-o", str(out))
    assert result.exit_code == 0
    assert result.output == (
        "ait llm errcheck: no overflow in 2 operations, 5 tensors, 33 elements of 1 pass in "
        "1 process\n"
    )
    assert not out.exists()


def test_a_birth_exits_with_1_and_is_written_down(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = errcheck("--dump", write_dump(tmp_path / "dump", np.inf), "-o", str(out))
    assert result.exit_code == 1
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines[0] == "ait llm errcheck: 1 place where numbers go wrong"
    assert lines[1] == "born in  RmsNormOperation_0 (id 0), step 0, rank 0, process 4242"
    assert lines[2] == "outtensor0 float16 [2, 3]: 1 Inf, first at [1, 2]"
    assert lines[4].startswith("went on through 1 operation: LinearOperation_1; up to the last")
    assert (out / "ait_overflow_res_4242.txt").read_text() == (
        "Overflow detected! Operator name: RmsNormOperation_0\n"
        "Overflow detected! Operator name: LinearOperation_1\n"
    )
    document = json.loads((out / "ait_overflow_res.json").read_text())
    assert [each["harmful"] for each in document["findings"]] == [True]
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in out.iterdir())


def test_json_is_one_line_with_everything(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump", np.nan)
    result = errcheck("--dump", dump, "-o", str(tmp_path), "--json")
    found = json.loads(result.stdout)
    assert found["found"]
    assert found["findings"][0]["tensors"][0]["nan"] == 1
    assert found["operators"] == {"4242": ["RmsNormOperation_0", "LinearOperation_1"]}


def test_what_could_not_be_checked_exits_with_3_unless_allowed(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump")
    (path,) = tmp_path.glob("dump/tensors/*/0/1_*/after/outtensor0.bin")
    path.write_bytes(path.read_bytes()[:-4])
    result = errcheck("--dump", dump, "-o", str(tmp_path))
    assert result.exit_code == 3
    assert "1 tensor could not be checked, the first is LinearOperation_1" in result.output
    assert errcheck("--dump", dump, "-o", str(tmp_path), "--allow-skip").exit_code == 0


def test_a_finding_comes_before_what_could_not_be_checked(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump", np.nan)
    (path,) = tmp_path.glob("dump/tensors/*/0/1_*/after/outtensor0.bin")
    path.write_bytes(path.read_bytes()[:-4])
    assert errcheck("--dump", dump, "-o", str(tmp_path)).exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either --exec with a command or --dump with a folder"),
        (("--exec", "true", "--dump", "x"), "give either --exec"),
        (("--dump", "x", "--exit"), "--exit is for --exec"),
        (("--dump", "nowhere"), "no such file or directory"),
        (("--exec", "true", "--type", "torch", "--exit"), "runs to its end"),
        (("--exec", "no_such_program_of_ours"), "no_such_program_of_ours"),
    ],
)
def test_wrong_usage_is_said_and_exits_with_2(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    result = errcheck(*words, "-o", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert message in result.output
    shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_a_kept_capture_does_not_replace_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "ait_dump").mkdir()
    result = errcheck("--exec", "true", "--keep", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "is there already" in result.output
