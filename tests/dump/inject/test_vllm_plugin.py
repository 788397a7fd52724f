"""The entry point that vLLM loads in each of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.dump.inject.settings import VARIABLE
from ait_llm.dump.inject.vllm_plugin import start

ROOT = Path(__file__).resolve().parents[3]


def test_it_is_an_entry_point_of_the_group() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    group = project.partition('[project.entry-points."vllm.general_plugins"]\n')[2]
    assert group.startswith(f'ait_llm = "{start.__module__}:{start.__name__}"\n')


def test_without_a_capture_nothing_is_imported() -> None:
    code = (
        "import sys; from ait_llm.dump.inject.vllm_plugin import start; start(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_capture_that_has_begun_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    name = "ait_llm.dump.inject.site.ait_torch_capture.capture_when_its_library_is_imported"
    monkeypatch.setattr(name, lambda: begun.append(1))
    monkeypatch.setenv(VARIABLE, "{}")
    monkeypatch.delitem(sys.modules, "ait_llm.dump.inject.root_finder", raising=False)
    start()
    monkeypatch.setitem(sys.modules, "ait_llm.dump.inject.root_finder", sys)
    start()
    assert begun == [1]
