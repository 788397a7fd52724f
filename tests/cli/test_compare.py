"""``ait llm compare``: options, reports, exit codes, and what an interruption leaves."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.report import read_jsonl

ROOT = Path(__file__).parents[2]


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(ait, ["llm", "compare", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def tensor(path: Path, *values: float) -> Path:
    np.save(path, np.array(values, dtype=np.float32))
    return path


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return tensor(tmp_path / "golden.npy", 1, 2, 3, 4)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "reports"


def weights(path: Path, count: int, wrong: int = -1) -> Path:
    """A file of tensors ``t0`` to ``t{count - 1}``."""
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {
        f"t{n}": np.arange(1, 65, dtype=np.float32) * (3 if n == wrong else 1) for n in range(count)
    }
    numpy.save_file(tensors, path)
    return path


def test_two_equal_files_pass_and_a_csv_tells_it(
    tmp_path: Path, golden: Path, output: Path
) -> None:
    mine = tensor(tmp_path / "mine.npy", 1, 2, 3, 4)
    result = run("--golden-path", golden, "--my-path", mine, "--output", output)
    assert result.exit_code == 0
    assert result.stdout.startswith("ait llm compare: PASS\n")
    (path,) = output.iterdir()
    assert re.fullmatch(r"ait_cmp_report_\d{14}\.csv", path.name)
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["golden_data_path"] == str(golden)
    assert row["cosine_similarity"] == "1.0"
    assert row["cmp_fail_reason"] == ""


def test_a_wrong_file_fails_with_its_numbers_on_the_screen(
    tmp_path: Path, golden: Path, output: Path
) -> None:
    mine = tensor(tmp_path / "mine.npy", 1, 2, 3, 4.2)
    result = run("-gp", golden, "-mp", mine, "-o", output)
    assert result.exit_code == 1
    assert "verdict   FAIL: relative Euclidean distance 0.0365" in result.stdout
    assert "max_absolute_error 0.19999981" in result.stdout
    assert "largest error at [3]: golden 4, mine 4.2" in result.stdout
    assert result.stderr == f"comparing {mine} (file) with {golden} (file)\n"


def test_a_tolerance_decides(tmp_path: Path, golden: Path, output: Path) -> None:
    mine = tensor(tmp_path / "mine.npy", 1, 2, 3, 4.2)
    assert run("-gp", golden, "-mp", mine, "-o", output, "--tolerance", "0.1").exit_code == 0
    assert run("-gp", golden, "-mp", mine, "-o", output, "--tolerance", "fp32=0.1").exit_code == 0
    wrong = run("-gp", golden, "-mp", mine, "-o", output, "--tolerance", "small")
    assert wrong.exit_code == 2
    assert "--tolerance small" in wrong.stderr


def test_a_path_that_is_not_there_ends_with_2_and_leaves_nothing(
    tmp_path: Path, golden: Path, output: Path
) -> None:
    result = run("-gp", golden, "-mp", tmp_path / "absent.npy", "-o", output)
    assert result.exit_code == 2
    assert "absent.npy: no such file" in result.stderr
    assert list(output.iterdir()) == []


def test_what_has_no_partner_ends_with_3_unless_it_is_allowed(tmp_path: Path, output: Path) -> None:
    golden, mine = weights(tmp_path / "g.safetensors", 3), weights(tmp_path / "m.safetensors", 2)
    result = run("-gp", golden, "-mp", mine, "-o", output)
    assert result.exit_code == 3
    title = result.stdout.partition("\n")[0]
    assert title == "ait llm compare: INCOMPLETE; all that could be compared passed"
    assert "not compared" in result.stdout
    assert run("-gp", golden, "-mp", mine, "-o", output, "--allow-skip").exit_code == 0


def test_a_failure_is_a_failure_whatever_is_allowed(tmp_path: Path, output: Path) -> None:
    golden, mine = weights(tmp_path / "g.safetensors", 3), weights(tmp_path / "m.safetensors", 2, 1)
    result = run("-gp", golden, "-mp", mine, "-o", output, "--allow-skip")
    assert result.exit_code == 1
    assert shlex.split(result.stdout.splitlines()[-1]) == [
        "next", "ait", "llm", "compare", "-gp", str(golden), "-mp", str(mine),
        "-o", str(output), "--allow-skip", "--format", "csv", "html",
    ]  # fmt: skip


def test_json_is_the_only_line_on_stdout(tmp_path: Path, golden: Path, output: Path) -> None:
    mine = tensor(tmp_path / "mine.npy", 1, 2, 3, 5)
    result = run("-gp", golden, "-mp", mine, "-o", output, "--json")
    (line,) = result.stdout.splitlines()
    data = json.loads(line)
    assert (data["verdict"], data["exit_code"], result.exit_code) == ("FAIL", 1, 1)
    assert data["counts"] == {"PASS": 0, "FAIL": 1, "SKIPPED": 0, "ERROR": 0}
    assert data["reports"] == [str(path) for path in output.iterdir()]
    assert "ait llm compare: FAIL" in result.stderr


def test_every_format_is_written_under_one_name(tmp_path: Path, golden: Path, output: Path) -> None:
    pytest.importorskip("openpyxl")
    mine = tensor(tmp_path / "mine.npy", 1, 2, 3, 5)
    formats = ("csv", "xlsx", "jsonl", "html", "junit")
    result = run("-gp", golden, "-mp", mine, "-o", output, "--format", *formats)
    assert result.exit_code == 1
    names = {path.name.partition(".")[::2] for path in output.iterdir()}
    assert len({stem for stem, _ in names}) == 1
    assert {suffix for _, suffix in names} == {"csv", "xlsx", "jsonl", "html", "junit.xml"}
    (written,) = output.glob("*.jsonl")
    report = read_jsonl(written)
    assert report.verdict is Verdict.FAIL
    assert not report.partial


def test_two_reports_of_one_second_do_not_replace_each_other(golden: Path, output: Path) -> None:
    for _ in range(3):
        run("-gp", golden, "-mp", golden, "-o", output)
    assert len(list(output.iterdir())) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "cvs"), "unknown report format 'cvs'; did you mean 'csv'?"),
        (("--metrics", "cosine"), "unknown metric 'cosine'"),
        (("--steps", "one"), "one"),
        (("--jobs", "0"), "0"),
        (("-alg", "absent.py:f"), "absent.py"),
        (("--resume", "absent.jsonl"), "absent.jsonl: cannot be read"),
        (("-mf", "absent"), "absent"),
        (("--verbose",), "there is no option"),
    ],
)
def test_a_wrong_option_ends_with_2_before_anything_is_compared(
    golden: Path, output: Path, words: tuple[str, ...], message: str
) -> None:
    result = run("-gp", golden, "-mp", golden, "-o", output, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not output.exists() or not list(output.iterdir())


def test_a_pipe_in_place_of_a_file_ends_with_2_and_is_not_waited_for(
    tmp_path: Path, golden: Path, output: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    result = run("-gp", tmp_path / "pipe.npy", "-mp", golden, "-o", output)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pipe.npy" in result.stderr


def test_a_report_that_the_dump_cannot_give_is_told_and_the_others_are_written(
    golden: Path, output: Path
) -> None:
    pytest.importorskip("onnx")
    result = run("-gp", golden, "-mp", golden, "-o", output, "--format", "onnx", "csv")
    assert result.exit_code == 2
    assert "shows a topology of ATB operations or of a compiled graph" in result.stderr
    assert "ait llm compare: PASS" in result.stdout
    assert [path.suffix for path in output.iterdir()] == [".csv"]


def test_metrics_can_be_chosen_and_added(tmp_path: Path, golden: Path, output: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import numpy as np\n"
        "def largest(golden: np.ndarray, mine: np.ndarray):\n"
        "    return float(mine.max()), ''\n"
    )
    result = run(
        "-gp", golden, "-mp", golden, "-o", output, "--metrics", "max_absolute_error",
        "cosine_similarity", "-alg", f"{tmp_path / 'own.py'}:largest",
    )  # fmt: skip
    assert result.exit_code == 0
    assert "max_absolute_error 0\n" in result.stdout
    assert "largest 4\n" in result.stdout
    assert "kl_divergence" not in result.stdout


def test_options_of_the_manual_have_both_spellings(golden: Path, output: Path) -> None:
    result = run(
        "--golden-path", golden, "--my-path", golden, "--output", output, "--log-level", "warn",
        "--stats", "--jobs", "1",
    )  # fmt: skip
    assert result.exit_code == 0
    assert run("-gp", golden, "-mp", golden, "-o", output, "-l", "error", "-st").exit_code == 0


def program(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "compare", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


# A metric that interrupts the comparison it is part of, once, in the middle.
INTERRUPTING = """
import os, signal
import numpy as np
calls = 0
def interrupt(golden: np.ndarray, mine: np.ndarray):
    global calls
    calls += 1
    if calls == 200 and "INTERRUPT" in os.environ:
        os.kill(os.getpid(), int(os.environ["INTERRUPT"]))
    return 0.0, ""
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_comparison_leaves_a_part_that_resume_completes(
    tmp_path: Path, output: Path, number: signal.Signals
) -> None:
    golden = weights(tmp_path / "g.safetensors", 600)
    mine = weights(tmp_path / "m.safetensors", 600, 599)
    (tmp_path / "own.py").write_text(INTERRUPTING)
    words = (
        "-gp", golden, "-mp", mine, "-o", output, "-j", "1",
        "-alg", f"{tmp_path / 'own.py'}:interrupt",
    )  # fmt: skip
    first = program(*words, INTERRUPT=str(int(number)))
    (part,) = output.glob("*.jsonl")
    left = read_jsonl(part)
    assert left.partial
    assert len(left.comparisons) < 600
    if number != signal.SIGKILL:
        assert first.returncode == 3, first.stderr
        assert "interrupted: this is a part of the result" in first.stdout.splitlines()[0]
        assert f"--resume {part}" in first.stdout.splitlines()[-1]
        assert len(list(output.glob("*.csv"))) == 1
        assert len(left.comparisons) >= 199
    second = program(*words, "--resume", part, "--format", "jsonl")
    assert second.returncode == 1, second.stderr
    (whole,) = set(output.glob("*.jsonl")) - {part}
    report = read_jsonl(whole)
    assert not report.partial
    assert report.counts[Verdict.PASS] == 599
    assert report.counts[Verdict.FAIL] == 1


@pytest.mark.parametrize(
    "wrong", [None, True, -1, 10**30, math.inf, "text", "\ud800", [[]], {"a": [1]}]
)
def test_a_report_with_a_value_of_another_type_is_refused_or_gives_the_same_result(
    tmp_path: Path, output: Path, wrong: object
) -> None:
    golden, mine = (weights(tmp_path / f"{side}.safetensors", 2) for side in "gm")
    words = ("-gp", golden, "-mp", mine, "-o", output)
    run(*words, "--format", "jsonl")
    (earlier,) = output.iterdir()
    texts = earlier.read_text().splitlines()
    refused = 0
    for number in (0, 1, -1):  # the header, a comparison, the totals
        whole = json.loads(texts[number])
        for name in whole:
            lines = [*texts]
            lines[number] = json.dumps({**whole, name: wrong})
            earlier.write_text("\n".join(lines) + "\n")
            result = run(*words, "--format", "csv", "--resume", earlier)
            assert result.exit_code in (0, 2), (name, result.output)
            assert "Traceback" not in result.output
            refused += result.exit_code == 2
    assert refused


def test_a_resumed_comparison_must_have_the_same_options(
    tmp_path: Path, golden: Path, output: Path
) -> None:
    run("-gp", golden, "-mp", golden, "-o", output, "--format", "jsonl")
    (earlier,) = output.iterdir()
    result = run("-gp", golden, "-mp", golden, "-o", output, "--resume", earlier, "--by-value")
    assert result.exit_code == 2
    assert "was made with other options (by_value)" in result.stderr
