"""docs/compare.md is true: its columns, its schema, and its example."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import ait_llm.compare.onnx_report  # noqa: F401  registers its format
from ait_llm.cli.compare import FORMATS
from ait_llm.core.comparison import Comparison, Origin, Problem, Side, SideSummary, TensorRecord
from ait_llm.metrics import METRIC_NAMES
from ait_llm.probe.library import find_packaged
from ait_llm.report import writers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def test_the_page_names_every_format_and_every_metric() -> None:
    reports = PAGE.partition("## Reports")[2].partition("### ")[0]
    assert re.findall(r"^\| `(\w+)`", reports, re.MULTILINE) == list(FORMATS)
    assert sorted(writers) == sorted(FORMATS)
    metrics = PAGE.partition("## Metrics")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", metrics, re.MULTILINE)
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(METRIC_NAMES)


def test_the_schema_names_every_field() -> None:
    schema = PAGE.partition("### Schema of the jsonl")[2].partition("## ")[0]
    named = set(re.findall(r"`(\w+)`", schema))
    for kind in (Comparison, Origin, Problem, Side, SideSummary, TensorRecord):
        assert {field.name for field in fields(kind)} <= named


def normal(text: str) -> list[str]:
    """Rows without line breaks, and without what differs between runs and machines."""
    text = re.sub(r"/\S*/(golden|mine|report)\b", r"/\1", text)
    text = re.sub(r"(report|ledger)_\d{14}", r"\1_STAMP", text)
    text = re.sub(r"\n {14,}", " ", text)
    # Which of many wrong elements is the example is up to the order of the search.
    text = re.sub(r"\[[\d, ]+\] is \S+ and should be [^\s;]+", "ELEMENT", text)
    return text.splitlines()


@pytest.mark.native
def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    if not find_packaged("libatb_probe_abi1.so", os.environ):
        pytest.skip("needs the compiled libraries")
    example, captures = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[:2]
    command, _, expected = example.partition("\n")
    for line in [*captures.splitlines(), command]:
        words = shlex.split(line.removeprefix("$ "))
        words = [word.replace("python ", f"{sys.executable} ") for word in words]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
        done = subprocess.run(
            [sys.executable, "-m", "ait_llm", *words[1:]],
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == (1 if line is command else 0), done.stderr
    assert normal(done.stdout) == normal(expected)
