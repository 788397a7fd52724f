"""The rank of a process in its ledger, where no launcher has set one in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ait_llm import DumpConfig, open_dump, register_hook


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job of one process, as a worker of an engine starts it."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _environment(folder: Path) -> dict[str, str]:
    model = nn.Linear(4, 4)
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder)):
        model(torch.ones(1, 4))
    (process,) = open_dump(folder).processes
    environment: dict[str, str] = process.header["environment"]
    return environment


@pytest.mark.usefixtures("group")
def test_what_the_job_says_is_recorded(tmp_path: Path) -> None:
    environment = _environment(tmp_path)
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("0", "1")


@pytest.mark.usefixtures("group")
def test_a_launcher_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    environment = _environment(tmp_path)
    assert environment["LOCAL_RANK"] == "3"
    assert "RANK" not in environment


def test_a_process_by_itself_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert "RANK" not in _environment(tmp_path)
