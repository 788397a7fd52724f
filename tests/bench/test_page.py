"""The published figures: docs/performance.md and what writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"
# run by others, running others, with a page of its own, or in an environment of its own
PARTS = {
    "invariances",
    "decisions",
    "transplants",
    "aten_samples",
    "earlier",
    "engine_overhead",
    "healthy",
    "legal",
    "matching",
    "opcheck_model",
    "origins",
    "run_all",
    "torch_capture_step",
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def result(**more: Any) -> dict[str, Any]:
    return {
        "when": "2026-01-01",
        "machine": {"processor": "a fast one", "cores": "2"},
        "options": [],
        "seconds": 10,
        "load_before": 0.1,
        "exit_code": 0,
        "failed": "",
        "figures": [],
        **more,
    }


def of(value: float, target: float | None, at_least: bool = True) -> dict[str, Any]:
    return {
        "what": "reading",
        "value": value,
        "unit": "GB/s",
        "target": target,
        "at_least": at_least,
        "note": "",
    }


def page(results: dict[str, Any]) -> str:
    from page import as_page  # type: ignore[import-not-found]

    text: str = as_page(results)
    return text


@pytest.mark.usefixtures("bench")
def test_the_page_is_made_of_the_results_on_record() -> None:
    results = json.loads((BENCH / "results.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == page(results)


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("value", "target", "at_least", "verdict"),
    [
        (2.0, 2.0, True, "| at least 2 | met |"),
        (1.9, 2.0, True, "| at least 2 | **missed** |"),
        (2.0, 2.0, False, "| at most 2 | met |"),
        (2.1, 2.0, False, "| at most 2 | **missed** |"),
        (5.0, None, True, "|  |  |"),
    ],
)
def test_a_figure_stands_beside_its_target(
    value: float, target: float | None, at_least: bool, verdict: str
) -> None:
    text = page({"metrics": result(figures=[of(value, target, at_least)])})
    assert f"| reading | {value:g} GB/s {verdict}" in text


@pytest.mark.usefixtures("bench")
def test_misses_stand_first() -> None:
    text = page({"metrics": result(figures=[of(3, 2), of(1, 2)])})
    assert "1 of 2 targets are met." in text
    first = text.partition("## Missed")[2].partition("##")[0]
    assert "1 GB/s" in first
    assert "3 GB/s" not in first


@pytest.mark.usefixtures("bench")
def test_a_benchmark_that_failed_or_never_ran_is_said() -> None:
    text = page({"metrics": result(exit_code=2, failed="no disk")})
    assert "**It failed** with 2" in text
    assert "- Comparing two dumps" in text.partition("## Not measured")[2]


@pytest.mark.usefixtures("bench")
def test_figures_that_were_taken_beside_other_work_say_so() -> None:
    assert "while other work ran (load 4.2)" in page({"metrics": result(load_before=4.2)})


def test_every_benchmark_of_the_folder_is_run() -> None:
    listed = subprocess.run(
        [sys.executable, str(BENCH / "run_all.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    programs = {path.stem for path in BENCH.glob("*.py") if "def main() ->" in path.read_text()}
    assert {name for name in programs if name not in listed} <= PARTS


def test_a_quick_run_prints_figures_and_publishes_nothing(tmp_path: Path) -> None:
    before = (BENCH / "results.json").read_bytes()
    file = tmp_path / "figures.json"
    words = ["--only", "ge_graph", "--quick", "--no-peer", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, str(BENCH / "run_all.py"), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (figure,) = json.loads(file.read_text())["ge_graph"]["figures"]
    assert figure["target"] == 64
    assert 0 < figure["value"] < 64
    assert "MiB beyond the imports" in done.stdout
    assert (BENCH / "results.json").read_bytes() == before
