"""The examples of ``examples/ci``: their commands, in their order, in one folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from doc_pages import DOCS, ROOT, Captures, Ran, Shell, blocks, own_environment

pytestmark = pytest.mark.native
FOLDER = ROOT / "examples" / "ci"
_PROGRAM = "demo.llama --tokens 3"
_FAULT = f"{_PROGRAM} --fault swapped_heads:layer=1"


def read(name: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return content


def github_commands(folder: Path, branch: str) -> Iterator[tuple[str, str]]:
    """Name and command of each step that runs; installing is what the test need not do."""
    conditions = {
        "": lambda: True,
        "hashFiles('last.jsonl') == ''": lambda: not (folder / "last.jsonl").exists(),
        "hashFiles('last.jsonl') != ''": lambda: (folder / "last.jsonl").exists(),
        "github.ref == 'refs/heads/main'": lambda: branch == "main",
    }
    for step in read("github.yml")["jobs"]["numbers"]["steps"]:
        if "run" in step and step["name"] != "install" and conditions[step.get("if", "")]():
            yield step["name"], step["run"].strip()


def gitlab_commands() -> Iterator[tuple[str, str]]:
    jobs = read("gitlab-ci.yml")
    for stage in jobs["stages"]:
        for command in jobs[stage]["script"]:
            yield stage, command


@pytest.fixture
def shell(tmp_path: Path, captures: Captures) -> Shell:
    return Shell(tmp_path, own_environment(), captures)


def run(shell: Shell, commands: Iterator[tuple[str, str]], fault: bool = False) -> dict[str, Ran]:
    """Run until a step fails, as a build does."""
    done = {}
    for name, command in commands:
        if fault and command.endswith("-o mine"):
            command = command.replace(_PROGRAM, _FAULT)
        done[name] = shell.run(command)
        if done[name].exit_code:
            break
    return done


def test_the_github_workflow_passes_and_keeps_a_baseline(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shell.folder / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    done = run(shell, github_commands(shell.folder, "main"))
    assert {ran.exit_code for ran in done.values()} == {0}, done
    assert list(done) == [
        *("golden", "mine", "operators", "compare", "keep the result of the main branch"),
    ]
    titles = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert titles == ["## ait llm opcheck: PASS", "## ait llm compare: PASS"]
    scans = [json.loads(path.read_text()) for path in shell.folder.glob("report/*.sarif")]
    assert [scan["runs"][0]["results"] for scan in scans] == [[], []]
    again = run(
        shell,
        (step for step in github_commands(shell.folder, "other") if step[0].startswith("compare")),
    )
    assert again["compare with the baseline"].exit_code == 0
    assert "PASS against the baseline" in again["compare with the baseline"].output


def test_the_github_workflow_ends_at_a_wrong_operator_and_annotates_it(shell: Shell) -> None:
    done = run(shell, github_commands(shell.folder, "main"), fault=True)
    name, ran = list(done.items())[-1]
    assert (name, ran.exit_code) == ("operators", 1)
    errors = [line for line in ran.output.splitlines() if line.startswith("::error ")]
    assert errors[0].startswith("::error title=ait llm opcheck%3A SelfAttentionOperation_3_0_2_1")


def test_the_gitlab_jobs_pass_and_leave_what_gitlab_shows(shell: Shell) -> None:
    done = run(shell, gitlab_commands())
    assert {ran.exit_code for ran in done.values()} == {0}, done
    pattern = read("gitlab-ci.yml")["numbers"]["artifacts"]["reports"]["junit"]
    reports = sorted(shell.folder.glob(pattern))
    assert len(reports) == 2
    for path in reports:
        root = ElementTree.parse(path).getroot()
        assert (root.get("failures"), root.get("errors")) == ("0", "0")
        cases = [(one.get("classname"), one.get("name")) for one in root.iter("testcase")]
        assert len(set(cases)) == len(cases) > 50


@pytest.mark.parametrize("page", ["ci.md", "ci.zh.md"])
def test_the_page_shows_the_examples_as_they_are(page: str) -> None:
    shown = {block.text for block in blocks((DOCS / page).read_text("utf-8"))}
    assert {path.read_text("utf-8") for path in FOLDER.glob("*.yml")} <= shown
