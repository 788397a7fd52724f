"""docs/metrics.md: its example runs, its tables name the metrics and limits that there are."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from ait_llm.metrics import METRIC_NAMES

_TEXT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text("utf-8")


def test_the_example_prints_what_the_page_shows() -> None:
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", _TEXT, re.DOTALL)[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown


def test_every_metric_has_its_formula() -> None:
    rows = [line.split("|")[1] for line in _TEXT.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(METRIC_NAMES)
