"""What a comparison costs beside an earlier version: which version is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


def test_the_version_of_an_environment_is_run_wherever_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import earlier  # type: ignore[import-not-found]

    (tmp_path / "ait_llm").mkdir()
    (tmp_path / "ait_llm" / "__init__.py").write_text("raise SystemExit(7)")
    words = [sys.executable, "-c", earlier._COMMAND, "llm", "compare", "--help"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0
