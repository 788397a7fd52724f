"""Files that are wrong in some way cost their own verdict and nothing else."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compare_dumps import AtbPair, of

from ait_llm import compare
from ait_llm.compare import repeated
from ait_llm.core.comparison import Report, Verdict

SIDES = ("golden", "mine")


@pytest.fixture
def pair(tmp_path: Path) -> AtbPair:
    pair = AtbPair(tmp_path)
    pair.add_many(3)
    return pair


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)


def cut_header(path: Path) -> None:
    os.truncate(path, 40)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def claim_terabytes(path: Path) -> None:
    text = path.read_bytes().replace(b"dims=8,16", b"dims=4000000000000,16")
    path.write_bytes(text.replace(b"Length=256", b"Length=128000000000000"))


def write_something_else(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(500))


def link_outside(path: Path) -> None:
    secret = path.parents[7] / "secret.bin"
    path.rename(secret)
    path.symlink_to(secret)


def refer_outside(path: Path) -> None:
    text = path.read_bytes().partition(b"$Object.Count")[0]
    path.write_bytes(
        text + b"$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=8,16\n"
        b"data=../../../../../../../../etc/passwd\n$End=1\n"
    )


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "bytes"),
        (cut_header, "header"),
        (empty, "empty"),
        (claim_terabytes, "bytes"),
        (write_something_else, "tensor file"),
        (link_outside, "outside"),
        (refer_outside, ""),
        (make_pipe, "regular file"),
    ],
)
def test_a_bad_file_is_an_error_with_its_reason_and_the_rest_is_compared(
    pair: AtbPair, side: str, damage: Callable[[Path], None], words: str
) -> None:
    damage(pair.file(side, "1_LinearOperation"))
    report = compare(pair.golden, pair.mine)
    found = of(report, "LinearOperation_1 outtensor0")
    # A description whose data cannot be found has no values to compare; either way it is counted.
    assert found.verdict in (Verdict.ERROR, Verdict.SKIPPED)
    assert found.reason
    assert words in found.reason
    assert _others(report) == {Verdict.PASS}
    assert report.exit_code() == 3


def _others(report: Report) -> set[Verdict]:
    others = [item for item in report.comparisons if item.record.op != "LinearOperation_1"]
    assert len(others) == 2
    return {item.verdict for item in others}


@pytest.mark.parametrize("side", SIDES)
def test_a_file_that_vanishes_after_it_was_listed(pair: AtbPair, side: str) -> None:
    report = compare(
        pair.golden,
        pair.mine,
        on_matches=lambda _: pair.file(side, "1_LinearOperation").unlink(),
    )
    found = of(report, "LinearOperation_1 outtensor0")
    assert found.verdict is Verdict.ERROR
    assert "No such file" in found.reason
    assert _others(report) == {Verdict.PASS}


def test_a_file_that_shrinks_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tmp_path / "golden.npy", tmp_path / "mine.npy"
    for path in paths:
        np.save(path, np.zeros(1 << 22, np.float32))
    check = repeated.compare_match.__globals__["Aligned"].block
    calls = []

    def shrinking(self: Any, block: Any) -> Any:
        calls.append(block)
        if len(calls) == 3:
            os.truncate(paths[1], 1000)
        return check(self, block)

    monkeypatch.setattr(repeated.compare_match.__globals__["Aligned"], "block", shrinking)
    [found] = compare(*paths).comparisons
    assert (found.verdict, "became shorter" in found.reason) == (Verdict.ERROR, True)


class _Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch bomb-went-off",)


def pickle_bomb(path: Path) -> None:
    torch.save({"x": _Bomb()}, path)


def plain_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(_Bomb()))


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(32 << 20))


def huge_memo(path: Path) -> None:
    """A pickle that asks for slot 2**32 - 1 of a table, which Python's own reader would make."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02Nr\xff\xff\xff\xff.")


def lying_storage(path: Path) -> None:
    """The pickle says more elements than the storage has."""
    torch.save(torch.zeros(1000), path)
    data = path.read_bytes()
    shape = data.index(b"M\xe8\x03\x85", data.index(b"Q") - 10)
    path.write_bytes(data[:shape] + b"M\xff\xff\x85" + data[shape + 4 :])


def cut_archive(path: Path) -> None:
    torch.save(torch.zeros(1000), path)
    os.truncate(path, 2000)


@pytest.mark.parametrize(
    "make", [pickle_bomb, plain_pickle, zip_bomb, huge_memo, lying_storage, cut_archive, empty]
)
def test_hostile_torch_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in SIDES:
        folder = tmp_path / side
        folder.mkdir()
        torch.save(torch.ones(3), folder / "b.pth")
    torch.save(torch.zeros(1000), tmp_path / "golden" / "a.pth")
    make(tmp_path / "mine" / "a.pth")
    report = compare(tmp_path / "golden", tmp_path / "mine")
    bad = [item for item in report.comparisons if item.verdict is not Verdict.PASS]
    assert bad
    assert all(item.reason for item in bad)
    assert [item.record.op for item in report.with_verdict(Verdict.PASS)] == ["b.pth"]
    assert report.exit_code() == 3
    assert not (tmp_path / "bomb-went-off").exists()
