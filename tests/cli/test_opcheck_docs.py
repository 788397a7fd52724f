"""docs/opcheck.md is true: its columns, its levels, and its examples."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ait_llm.core import DType
from ait_llm.judge.standards import standards
from ait_llm.opcheck import declared
from ait_llm.opcheck.element_errors import LEVELS
from ait_llm.opcheck.golden import UnverifiableError
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.reports.table import columns
from ait_llm.opcheck.rerun import function_backend

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "opcheck.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_names_every_column_in_its_order() -> None:
    report = OpcheckReport("", [], metrics=("abs", "cos_sim", "kl"), rerun="torch_atb")
    named = re.findall(r"`([^` ]+)`", section("The report"))
    places = [named.index(name) for name in columns(report)]
    assert places == sorted(places)


def test_the_page_has_the_levels_of_the_standard() -> None:
    rows = re.findall(r"^\| ([a-z].*) \| (\S+).* \| (\S+) % \|", section("Standards"), re.MULTILINE)
    documented = {
        name: (float(error), float(rate))
        for names, error, rate in rows
        for name in names.split(", ")
    }
    assert documented == {
        dtype.torch_name: (level.error, level.rate) for dtype, level in LEVELS.items()
    }
    assert DType.BFLOAT16 in LEVELS


def test_the_page_names_every_standard() -> None:
    assert sorted(re.findall(r"^\| `(\w+)` \|", section("Standards"), re.MULTILINE)) == [*standards]


@pytest.mark.parametrize("name", ["opcheck.md", "opcheck.zh.md"])
def test_the_python_examples_print_what_the_page_shows(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    own = page.partition("{ #kernels-of-your-own }" if "zh" in name else "## Kernels of your own")[
        2
    ]
    examples = re.findall(
        r"```python\n((?:(?!```).)*?)```\n\n```(?:text)?\n(.*?)```", own, re.DOTALL
    )
    assert len(examples) == 3
    names: dict[str, object] = {}
    try:
        for code, expected in examples:
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                exec(code, names)
            assert shown.getvalue() == expected
    finally:
        declared._declared.clear()


def test_the_example_of_another_implementation_reruns(tmp_path: Path) -> None:
    (code,) = re.findall(r'```python title="other.py"\n(.*?)```', PAGE, re.DOTALL)
    (tmp_path / "other.py").write_text(code)
    x, weight = torch.ones(2, 16).half(), torch.ones(4, 16).half()
    backend = function_backend(f"{tmp_path / 'other.py'}:run")
    params = {"transposeB": True, "hasBias": False}
    made = backend.run("LinearOperation", params, [x, weight])
    assert torch.equal(made.outputs[0], torch.full((2, 4), 16.0).half())
    with pytest.raises(UnverifiableError, match="does not have"):
        backend.run("SoftmaxOperation", {}, [x])


def normal(text: str) -> list[str]:
    """Lines without what differs between runs and machines."""
    text = re.sub(r"/\S*/(report|failures)/", r"/\1/", text)
    text = re.sub(r"result_\d{8}_\d{6}", "result_STAMP", text)
    return re.sub(r"step0_0_\d+", "step0_0_PID", text).splitlines()


@pytest.mark.native
def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    example, capture = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[:2]
    command, _, expected = example.partition("\n")
    for line in (capture.strip(), command):
        words = shlex.split(line.removeprefix("$ "))
        words = [word.replace("python ", f"{sys.executable} ") for word in words]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
        done = subprocess.run(
            [sys.executable, "-m", "ait_llm", *words[1:]],
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (1 if line is command else 0), done.stderr
    assert normal(done.stdout) == normal(expected)
