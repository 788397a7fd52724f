from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "topology"


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the demo capture that a test may write into."""
    return Path(shutil.copytree(DATA / "demo", tmp_path / "ait_dump"))


@pytest.fixture
def layer(demo: Path) -> Path:
    return demo / "layer" / "4242" / "DecoderLayer_0.json"


@pytest.fixture
def model(demo: Path) -> Path:
    return demo / "model" / "4242" / "DemoModel.json"


@pytest.fixture
def write_json(tmp_path: Path) -> Callable[..., Path]:
    def write(value: Any, name: str = "topology.json") -> Path:
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    return write
