"""Recorded dumps of a two-layer decoder and small ones of three nodes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from compiled_dumps import CompiledRun

_DATA = Path(__file__).parents[2] / "data"
_ARCHIVES = {
    "fused": _DATA / "ge_dump" / "ge_run_fused.tar.xz",
    "unfused": _DATA / "ge_dump" / "ge_run_fusion_off.tar.xz",
    "fx": _DATA / "torchair" / "fx_fp16_dynamic.tar.xz",
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One prefill and four decode steps: fused, with fusion off, and as FX nodes."""
    found = {}
    for name, archive in _ARCHIVES.items():
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        [found[name]] = folder.iterdir()
    return found


@pytest.fixture
def golden(tmp_path: Path) -> CompiledRun:
    return CompiledRun(tmp_path / "golden")


@pytest.fixture
def mine(tmp_path: Path) -> CompiledRun:
    return CompiledRun(tmp_path / "mine")
