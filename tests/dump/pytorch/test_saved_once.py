"""A tensor is saved once while it is unchanged, and never linked to a value it had before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from capture_models import Returns, calls, capture, ledger_lines, values
from torch import nn

from ait_llm.dump.pytorch.snapshot import BufferPool, SavedOnce, snapshot


def _write_numpy(x: torch.Tensor) -> None:
    x.numpy()[0] = 9.0


def _write_raw(x: torch.Tensor) -> None:
    import ctypes

    ctypes.c_float.from_address(x.data_ptr()).value = 9.0


CHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "view": lambda x: x[1:].zero_(),
    "out": lambda x: torch.add(x, 1, out=x),
    "data": lambda x: x.data.mul_(2),
    "data of a view": lambda x: x.view(-1).data[0].fill_(5),
    "set": lambda x: x.set_(torch.full((3,), 4.0)),
    "data swapped": lambda x: setattr(x, "data", torch.full((3,), 4.0)),
    "resized": lambda x: x.resize_(2),
    "numpy": _write_numpy,
    "raw pointer": _write_raw,
    "not a number": lambda x: x.data.fill_(float("nan")),
    "permuted": lambda x: x.data.copy_(x.flip(0)),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_tensor_is_saved_anew(tmp_path: Path, name: str, inference: bool) -> None:
    seen = []

    def change(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        CHANGES[name](x)
        seen.append(x.clone())
        return x

    with torch.inference_mode(inference):
        x = torch.tensor([1.0, 2.0, 3.0])
        dump = capture(nn.Sequential(nn.Identity(), Returns(change), nn.Identity()), tmp_path, x)
    found = calls(dump, 0)
    before, after = seen
    for call, stem, expected in [
        ("root", "input_0", before),
        ("root.0", "output", before),
        ("root.1", "input_0", before),
        ("root.1", "output", after),
        ("root.2", "input_0", after),
        ("root", "output", after),
    ]:
        assert torch.equal(
            torch.nan_to_num(values(found[call])[stem], 77.0), torch.nan_to_num(expected, 77.0)
        ), (call, stem)


def test_an_unchanged_tensor_is_one_file_with_several_names(tmp_path: Path) -> None:
    dump = capture(nn.Sequential(nn.Identity(), nn.Identity()), tmp_path, torch.ones(3))
    files = list(dump.root.rglob("*.pth"))
    assert len(files) == 6
    assert len({file.stat().st_ino for file in files}) == 1
    linked = sum(line.get("linked", 0) for line in ledger_lines(tmp_path))
    assert linked == 5


def test_each_step_has_files_of_its_own(tmp_path: Path) -> None:
    from ait_llm import DumpConfig, register_hook

    model, x = nn.Sequential(nn.Identity()), torch.ones(3)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1])):
        model(x)
        model(x)
    folders = [path for path in tmp_path.rglob("*") if path.name in ("0", "1")]
    inodes = [{file.stat().st_ino for file in folder.rglob("*.pth")} for folder in folders]
    assert len(inodes) == 2
    assert not inodes[0] & inodes[1]


def _remember(saved: SavedOnce, pool: BufferPool, tensor: torch.Tensor, name: str) -> None:
    copy = snapshot(tensor, pool)
    release = saved.remember(tensor, name, copy)
    if release is not None:
        release()


def test_copies_beyond_the_limit_are_forgotten_oldest_first() -> None:
    pool, saved = BufferPool(), SavedOnce(3 * 400)
    tensors = [torch.full((100,), float(i)) for i in range(4)]
    for i, tensor in enumerate(tensors):
        _remember(saved, pool, tensor, str(i))
        saved.find(tensors[0])
    assert saved.find(tensors[0]).path == "0"
    assert not saved.find(tensors[1]).path
    assert saved.find(tensors[3]).path == "3"


def test_memory_of_a_remembered_copy_is_not_given_to_another_tensor() -> None:
    pool, saved = BufferPool(), SavedOnce(1 << 20)
    first, second = torch.zeros(100), torch.ones(100)
    _remember(saved, pool, first, "first")
    _remember(saved, pool, second, "second")
    assert saved.find(first).path == "first"
    saved.forget()
    assert not saved.find(first).path


def test_free_buffers_are_kept_up_to_a_limit() -> None:
    pool = BufferPool(250)
    taken = [pool.take(100, pinned=False) for _ in range(3)]
    for _, give_back in taken:
        give_back()
    again = [pool.take(100, pinned=False)[0] for _ in range(3)]
    known = {buffer.data_ptr() for buffer, _ in taken}
    assert len({id(buffer) for buffer in again} & {id(buffer) for buffer, _ in taken}) == 2
    assert len(known) == 3


def test_a_new_tensor_with_the_id_of_a_dead_one_is_not_it() -> None:
    pool, saved = BufferPool(), SavedOnce(1 << 20)
    for i in range(200):
        tensor = torch.full((4,), 1.0)
        assert not saved.find(tensor).path
        _remember(saved, pool, tensor, str(i))
        del tensor
