"""``--format markdown github sarif html`` of every command that gives a verdict."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner, Result
from graph_dumps import GraphDump
from odd_dumps import half, write_operation

from ait_llm.apicheck.outcome import ApiResult, Checked, Outcome
from ait_llm.apicheck.summary import api_check_summary
from ait_llm.cli.main import ait
from ait_llm.report.summary.github import annotation_lines

Case = Callable[[Path], list[object]]
STACKS = {
    "0": [
        ["Functional.linear.0.forward"],
        [
            "File /usr/lib/python3.11/site-packages/torch/functional.py, line 3, in linear, \n a",
            "File /home/model.py, line 12, in forward, \n x = linear(x, w)",
            "File /home/run.py, line 3, in <module>, \n main()",
        ],
    ]
}


def api_dump(root: Path, last: float) -> Path:
    """A linear whose result ends with some value."""
    x, weight = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    result = np.array([[1.0, last]])
    names = ("x.pt", "w.pt", "y.pt")
    values = (x, weight, result)
    record = call(
        [tensor(v, name=n) for v, n in zip(values[:2], names[:2], strict=True)],
        [tensor(result, name="y.pt")],
    )
    files = {n: np.asarray(v, np.float32) for n, v in zip(names, values, strict=True)}
    write_dump(
        root, {"Functional.linear.0.forward": record}, task="tensor", tensors=files, stacks=STACKS
    )
    return root


def of_compare(folder: Path) -> list[object]:
    golden, mine = api_dump(folder / "golden", 2.0), api_dump(folder / "mine", 5.0)
    return ["compare", "-gp", golden, "-mp", mine, "-o", folder / "out"]


def of_opcheck(folder: Path) -> list[object]:
    api_dump(folder / "mine", 5.0)
    return ["opcheck", "-i", folder / "mine", "-o", folder / "out"]


def of_errcheck(folder: Path) -> list[object]:
    odd = half(2, 3, at_1_2=np.inf)
    write_operation(folder / "dump", "0_RmsNormOperation", [half(2, 3)], [odd])
    return ["errcheck", "--dump", folder / "dump", "-o", folder / "out"]


def of_replay(folder: Path) -> list[object]:
    dump = GraphDump(folder / "ait_dump", linear="SecretOperation").write()
    return ["replay", "--dump", dump, "-o", folder / "out"]


def of_bisect(folder: Path) -> list[object]:
    failing = f"{sys.executable} -S -c 'raise SystemExit(9)'"
    return ["bisect", "--exec", failing, "--golden-exec", "true", "-o", folder / "out"]


# The annotation of the first finding, and the exit code.
CASES: dict[str, tuple[Case, str]] = {
    "compare": (
        of_compare,
        "::error file=/home/model.py,line=12,title=ait llm compare%3A Functional.linear.0.forward",
    ),
    "opcheck": (
        of_opcheck,
        "::error file=/home/model.py,line=12,title=ait llm opcheck%3A Functional.linear.0",
    ),
    "errcheck": (
        of_errcheck,
        "::error title=ait llm errcheck%3A RmsNormOperation_0 step 0 rank 0::born here%3A",
    ),
    "replay": (
        of_replay,
        "::warning title=ait llm replay%3A SecretOperation_0_0 step 0::there is no golden",
    ),
    "bisect": (
        of_bisect,
        "::error title=ait llm bisect%3A suspicious program::the suspicious program ended with",
    ),
}


def run(*words: object) -> Result:
    result = CliRunner().invoke(ait, ["llm", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_annotated_and_its_page_has_the_summary(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, annotation = CASES[name]
    page = tmp_path / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    ran = run(*case(tmp_path), "--format", "github", "markdown", "sarif")
    assert ran.exit_code not in (0, 2, 4)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("::")]
    assert lines[0].startswith(annotation.replace("born here%3A", "born here:")), lines
    (summary,) = tmp_path.rglob("out/**/*.md")
    assert page.read_text() == summary.read_text() + "\n"
    assert page.read_text().startswith(f"## ait llm {name}: ")
    (scanned,) = tmp_path.rglob("out/**/*.sarif")
    found = json.loads(scanned.read_text())["runs"][0]["results"]
    assert bool(found) == ("file=" in annotation)


@pytest.mark.parametrize("name", ["opcheck", "errcheck", "replay", "bisect"])
def test_every_verdict_has_a_page_with_what_was_found(name: str, tmp_path: Path) -> None:
    case, annotation = CASES[name]
    run(*case(tmp_path), "--format", "html")
    (page,) = tmp_path.rglob("out/**/*.html")
    seen = html.unescape(page.read_text("ascii"))
    assert f"ait llm {name}" in seen
    where = annotation.partition("%3A ")[2].partition("::")[0].split()[0]
    assert where in seen
    assert page.stat().st_mode & 0o777 == 0o640


def test_with_json_the_line_on_stdout_is_json_and_annotations_go_to_stderr(tmp_path: Path) -> None:
    ran = run(*of_compare(tmp_path), "--format", "github", "--json")
    assert ran.stdout.count("\n") == 1
    assert json.loads(ran.stdout)["exit_code"] == ran.exit_code == 1
    assert "::error file=/home/model.py,line=12" in ran.stderr


def test_calls_that_err_are_annotated_at_the_line_that_made_them(tmp_path: Path) -> None:
    api_dump(tmp_path, 5.0)
    file = tmp_path / "step0" / "rank0" / "dump.json"
    results = (
        ApiResult("Functional.linear.0", "error", message="too far"),
        ApiResult("Functional.relu.0", "warning", message="far"),
        ApiResult("Functional.silu.0", "SKIP", message="no such function"),
        ApiResult("Functional.gelu.0", "pass"),
    )
    outcome = Outcome("cpu", "contract", (Checked(file, (tmp_path / "t.csv",), results),))
    summary = api_check_summary(outcome, outcome.exit_code(), places=True)
    place = "file=/home/model.py,line=12"
    assert annotation_lines(summary, {}) == [
        f"::error {place},title=ait llm api-check%3A Functional.linear.0::too far",
        "::warning title=ait llm api-check%3A Functional.silu.0::no such function",
    ]
    assert [each.rule for each in summary.findings] == ["failed", "not-checked", "doubtful"]
    assert summary.counts == {"error": 1, "warning": 1, "SKIP": 1, "pass": 1}
