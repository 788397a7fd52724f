"""Programs that are surveyed and captured, and what they left."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

Parts = Counter[str]


def part_of(path: Path) -> str:
    """The part of an estimate that a file below ``ait_dump`` belongs to."""
    top = path.parts[0]
    if path.name == "op_param.json":
        return "parameters"
    if top in ("layer", "model") or path.name.startswith("model_tree"):
        return "topology"
    if path.suffix == ".csv" and top in ("statistics", "torch_tensors"):
        return "statistics"
    if "weights" in path.parts:
        return "weights"
    return {
        "operation_io_tensors": "tables",
        "kernel_io_tensors": "tables",
        "cpu_profiling": "times",
        "ledger": "ledger",
    }.get(top, "topology" if path.suffix == ".json" else "tensors")


@pytest.fixture(scope="session")
def written() -> Callable[[Path], tuple[Parts, Parts]]:
    """Bytes and numbers of files by part below ``folder/ait_dump``; links count once."""

    def count(folder: Path) -> tuple[Parts, Parts]:
        sizes, files = Counter[str](), Counter[str]()
        seen = set()
        root = folder / "ait_dump"
        for path in root.rglob("*"):
            status = path.lstat()
            if path.is_file() and status.st_ino not in seen:
                seen.add(status.st_ino)
                part = part_of(path.relative_to(root))
                sizes[part] += status.st_size
                files[part] += 1
        return sizes, files

    return count


@pytest.fixture(scope="session")
def unheard() -> Iterator[IO[bytes]]:
    """Where programs print to."""
    with open(os.devnull, "r+b") as nowhere:  # noqa: PTH123 - no file of ours
        yield nowhere


@pytest.fixture(scope="session")
def llama() -> list[str]:
    """A decoder on ATB."""
    return [sys.executable, *shlex.split("-m ait_llm.hostatb.demo.llama --tokens 6")]


@pytest.fixture(scope="session")
def bert() -> list[str]:
    """An encoder on ATB."""
    return [sys.executable, *shlex.split("-m ait_llm.hostatb.demo.bert --weights random")]
