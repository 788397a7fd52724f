"""The fixture in a project of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ait_llm

ROOT = Path(ait_llm.__file__).parents[1]
TESTS = """
import torch

X = torch.linspace(1, 2, 64).half()

def test_right(opcheck):
    assert opcheck(lambda x: x + x, [X], golden=lambda x: 2 * x)

def test_wrong(opcheck):
    opcheck(lambda x: x + x + 1, [X], golden=lambda x: 2 * x)

def test_not_looked_at(opcheck):
    opcheck(lambda x: None, [X], golden=lambda x: 2 * x)

def test_swept(opcheck):
    opcheck.sweep(lambda x: x * x, shapes=[(2, 3)], dtypes=["float16"], golden=lambda x: x * x)

def test_swept_wrong(opcheck):
    opcheck.sweep(lambda x: x * x * (1 + (x.shape[-1] > 2)), shapes=[(2, 9)], dtypes=["float16"],
                  golden=lambda x: x * x)
"""


_SESSION = ("-q", "--import-mode=importlib", "-p", "ait_llm.opcheck.pytest_plugin")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """A session in this process, which has torch already."""

    def of(*words: str) -> str:
        (tmp_path / "test_kernel.py").write_text(TESTS)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        pytest.main([*_SESSION, "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", *words])
        return capsys.readouterr().out

    return of


def run_with_workers(folder: Path, *words: str) -> str:
    """One in processes of its own. It is stopped, and says where it is, if it takes too long."""
    (folder / "test_kernel.py").write_text(TESTS)
    patience = ("-o", "faulthandler_timeout=240", "-o", "faulthandler_exit_on_timeout=true")
    workers = ("-p", "xdist.plugin", "-n", "1")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *_SESSION, *workers, *patience, *words, "."],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return ran.stdout + ran.stderr


def test_the_fixture_fails_tests_of_wrong_and_unchecked_kernels(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    said = run("--opcheck-report", "report")
    assert "3 failed, 2 passed" in said, said
    assert "outtensor0: FAIL [contract error<=bound of its arithmetic]" in said
    assert "outtensor0: FAIL: the kernel did not return it" in said
    assert "smallest case that fails: [1, 3] float16, contiguous, normal, seed 0" in said
    summary = (tmp_path / "report" / "opcheck.md").read_text()
    assert summary.startswith("## opcheck: 5 checks: 3 FAIL, 2 PASS\n")
    assert "| test_kernel.py::test_right | &lt;lambda> | PASS |" in summary
    assert "| [2, 9] | float16 |" in summary
    suites = ElementTree.parse(tmp_path / "report" / "opcheck.junit.xml").getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("5", "3")
    names = {case.get("name") for case in suites.iter("testcase") if len(case)}
    tests = ("wrong", "not_looked_at", "swept_wrong")
    assert names == {f"test_kernel.py::test_{name}" for name in tests}
    lines = (tmp_path / "report" / "opcheck.annotations").read_text().splitlines()
    assert len(lines) == 3
    (scan,) = json.loads((tmp_path / "report" / "opcheck.sarif").read_text())["runs"]
    places = [one["locations"][0]["physicalLocation"] for one in scan["results"]]
    assert [one["artifactLocation"]["uri"] for one in places] == ["test_kernel.py"] * 3
    # the line of each lambda, which is that of the kernel and not of the test
    assert [one["region"]["startLine"] for one in places] == [10, 13, 19]
    assert lines[0].startswith("::error file=test_kernel.py,line=9,title=opcheck%3A <lambda>::")
    assert "%0A" in lines[2]


def test_a_session_leaves_no_files_unless_it_is_told(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    assert "1 passed" in run("-k", "test_right")
    assert list(tmp_path.glob("*/opcheck*")) == []


def test_what_a_worker_checked_is_in_the_files_of_the_session(tmp_path: Path) -> None:
    said = run_with_workers(tmp_path, "-k", "test_right", "--opcheck-report", "all")
    assert "1 passed" in said, said
    names = [f"opcheck.{end}" for end in ("annotations", "junit.xml", "md", "sarif")]
    assert sorted(file.name for file in tmp_path.glob("*/opcheck*")) == names
    assert "1 check: 1 PASS" in (tmp_path / "all" / "opcheck.md").read_text()
    assert (tmp_path / "all" / "opcheck.annotations").read_text() == ""


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    points = text.partition("[project.entry-points.pytest11]\n")[2].splitlines()
    assert points[0] == 'ait_llm_opcheck = "ait_llm.opcheck.pytest_plugin"'
