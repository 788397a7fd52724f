"""Captures that several tests of matching share."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dump_builder import DumpBuilder


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Process folders of ``variants.py`` by variant, all from one ``ait llm dump``."""
    folder = tmp_path_factory.mktemp("variants")
    table = folder / "pids.json"
    program = Path(__file__).parent / "variants.py"
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "-o", str(folder), "-er", "0,2"]
    words += ["--type", "tensor", "layer", "model", "--exec", f"{sys.executable} {program} {table}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tensors = folder / "ait_dump" / "tensors"
    return {name: tensors / f"0_{pid}" for name, pid in json.loads(table.read_text()).items()}


@pytest.fixture
def builder(tmp_path: Path) -> DumpBuilder:
    return DumpBuilder(tmp_path / "out" / "ait_dump")
