"""No part of a dump, whatever its level, is a way out of it: one rule for all readers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_dumps import call, tensor, write_dump
from capture_models import Decoder, capture, ids
from dump_builder import HEADER, SEAL, DumpBuilder, entry
from fx_dumps import write_add

from ait_llm import open_dump
from ait_llm.errors import AitError, FormatError

_watched: list[str] = []  # audit hooks cannot be taken back
_opened: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(_watched[0]):
            _opened.append(path)


sys.addaudithook(_hook)


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[list[str]]:
    """The files below a folder that are opened in the block."""
    _opened.clear()
    _watched.append(os.path.realpath(folder) + "/")
    try:
        yield _opened
    finally:
        _watched.clear()


def atb(folder: Path) -> Path:
    builder = DumpBuilder(folder / "ait_dump")
    builder.operation("0_Layer/0_LinearOperation", params={"a": 1})
    builder.layer("Layer_0", {"opName": "Layer_0", "nodes": []})
    builder.ledger(HEADER, entry("0_4242/0/0_Layer/0_LinearOperation"), SEAL)
    return builder.root


def torch_modules(folder: Path) -> Path:
    capture(Decoder(1), folder, ids(), token_range=[0])
    return folder / "ait_dump"


def api(folder: Path) -> Path:
    values = np.ones((2, 2), np.float32)
    record = call(
        [tensor(values, name="a.pt")],
        [tensor(values, name="b.pt")],
    )
    names = {"a.pt": values, "b.pt": values}
    write_dump(folder, {"Torch.relu.0.forward": record}, task="tensor", tensors=names, stacks={})
    return folder


def fx(folder: Path) -> Path:
    write_add(folder / "worldsize1_global_rank0" / "graph_0" / "0")
    return folder


def read_everything(root: Path) -> None:
    """Whatever a command may look at."""
    dump = open_dump(root)
    for process in dump.processes:
        assert process.problem is None or process.problem
    for step in dump.steps:
        for operation in dump.operations(step=step):
            assert operation.type
            for each in (*operation.inputs, *operation.outputs):
                with contextlib.suppress(AitError):
                    each.numpy()


@pytest.mark.parametrize("make", [atb, torch_modules, api, fx])
def test_links_out_are_not_followed_at_any_level(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    root = make(tmp_path / "in")
    with watching(root) as opened:
        read_everything(root)
    used = set(opened)
    assert len(used) > 1
    parts = sorted({Path(file) for file in used} | {up for f in used for up in Path(f).parents})
    tried = 0
    for part in (each for each in parts if root.resolve() in each.parents):
        moved = tmp_path / "elsewhere" / part.name
        part.rename(moved)
        part.symlink_to(moved)
        with watching(tmp_path / "elsewhere") as followed, contextlib.suppress(FormatError):
            read_everything(root)
        assert followed == [], part
        part.unlink()
        moved.rename(part)
        tried += 1
    assert tried >= 4


@pytest.mark.parametrize("make", [atb, api])
def test_links_within_a_dump_are_followed(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    root = make(tmp_path)
    part = next(each for each in root.rglob("*") if each.name in ("ledger", "dump.json"))
    moved = part.with_name("moved")
    part.rename(moved)
    part.symlink_to(moved)
    (root / "unrelated").symlink_to("/")
    (process,) = open_dump(root).processes
    assert process.problem is None
