"""Programs that are compared with what their checkpoint computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_program import capture_server, golden_model


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, and an engine that packs, chunks and caches prefixes, with its weights."""
    folder = tmp_path_factory.mktemp("engine")
    made = golden_model()
    made.save_pretrained(folder / "checkpoint")
    with torch.no_grad():
        capture_server(folder / "mine", made)
    return folder
