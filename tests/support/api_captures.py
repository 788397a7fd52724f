"""What an API capture left on disk, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ait_llm.dump.api import PrecisionDebugger


class Captured:
    """The files of one step of one process."""

    def __init__(self, dump_path: Path, step: int = 0) -> None:
        folders = [each for each in (dump_path / f"step{step}").iterdir() if each.is_dir()]
        assert len(folders) == 1
        self.folder = folders[0]

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    @property
    def data(self) -> dict[str, Any]:
        return self.json("dump.json")["data"]

    def tensor(self, name: str) -> torch.Tensor:
        return torch.load(self.folder / "dump_tensor_data" / name, weights_only=True)

    @property
    def files(self) -> set[str]:
        folder = self.folder / "dump_tensor_data"
        return {each.name for each in folder.iterdir()} if folder.is_dir() else set()


Debug = Callable[..., type[PrecisionDebugger]]
Read = Callable[..., Captured]
