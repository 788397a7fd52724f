"""The page of what was run on engines keeps the rows that are not run again, with their day."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "engines" / "results_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _healthy(case: str, day: str, passed: int = 10) -> dict[str, Any]:
    counts = {"PASS": passed, "FAIL": 0, "SKIPPED": 3, "ERROR": 0}
    about = {"family": "llama", "case": case, "day": day, "verdict": "PASS", "compare": 0}
    return {**about, "counts": counts, "not_comparable": 3, "left_out": 0}


def _faulty(case: str, day: str, **about: Any) -> dict[str, Any]:
    named = {"origins": ["a.b"], "certain": True, "right": True, "among": True}
    other = {"innocent": [], "accused": [], "verdict": "FAIL"}
    return {"family": "llama", "case": case, "day": day, **named, **other, **about}


def test_a_row_that_was_not_run_again_keeps_its_day(script: ModuleType) -> None:
    before = script.page([_healthy("offline", "2026-01-01"), _healthy("serve", "2026-01-01")], [])
    now = script.page([_healthy("serve", "2026-02-02", 12)], [], before)
    assert "| llama | offline | PASS | 0 | 10 of 10 |  | 2026-01-01 |" in now
    assert "| llama | serve | PASS | 0 | 12 of 12 |  | 2026-02-02 |" in now
    assert now.count("| llama | serve |") == 1
    assert "Healthy: 2 of 2 pass" in now
    assert "Run: 1 on 2026-02-02, 1 on 2026-01-01." in now


def test_a_fault_of_which_an_innocent_is_certain_is_counted_on_every_page_after(
    script: ModuleType,
) -> None:
    wrong = {"right": False, "among": False, "innocent": ["c.d"], "accused": ["c.d"]}
    before = script.page([_faulty("scale", "2026-01-01", **wrong), _faulty("x", "2026-01-01")], [])
    now = script.page([_faulty("x", "2026-02-02")], [], before)
    for page in (before, now):
        assert "right in 1 of 2" in page
        assert "called certain in 1" in page


def test_what_was_never_run_is_listed(script: ModuleType) -> None:
    before = script.page([_healthy("offline", "2026-01-01")], [])
    now = script.page([], ["llama offline", "llama serve"], before)
    assert now.rstrip().endswith("Not run: llama serve.")
