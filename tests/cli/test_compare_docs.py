"""docs/compare.md names every format, metric and field; tests/docs runs its example."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import ait_llm.compare.onnx_report  # noqa: F401  registers its format
from ait_llm.cli.compare import FORMATS
from ait_llm.core.comparison import Comparison, Origin, Problem, Side, SideSummary, TensorRecord
from ait_llm.metrics import METRIC_NAMES
from ait_llm.report import writers
from ait_llm.report.summary import BUILD_FORMATS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def test_the_page_names_every_format_and_every_metric() -> None:
    reports = PAGE.partition("## Reports")[2].partition("### ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", reports, re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(FORMATS)
    assert sorted([*writers, *BUILD_FORMATS]) == sorted(FORMATS)
    metrics = PAGE.partition("## Metrics")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", metrics, re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(METRIC_NAMES)


def test_the_schema_names_every_field() -> None:
    schema = PAGE.partition("### Schema of the jsonl")[2].partition("## ")[0]
    named = set(re.findall(r"`(\w+)`", schema))
    for kind in (Comparison, Origin, Problem, Side, SideSummary, TensorRecord):
        assert {field.name for field in fields(kind)} <= named
