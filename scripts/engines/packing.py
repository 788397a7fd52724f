"""What is kept of captures: archives, and the truth as plain arrays."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path

import numpy as np

from ait_llm.dumps import open_dump


def truth(folder: Path, path: Path) -> None:
    """Write the tensors of a capture under their places, with fewer bits.

    Five digits of float32 and eleven of float64 are enough to tell values apart, and smaller.
    """
    arrays = {}
    for operation in open_dump(folder).operations():
        for tensor in operation.tensors:
            place = [0, operation.step, operation.name, operation.call, tensor.name]
            arrays[json.dumps(place)] = _shortened(np.asarray(tensor.nd()))
    np.savez(path, **arrays)


def _shortened(array: np.ndarray) -> np.ndarray:
    if array.dtype not in (np.float32, np.float64):
        return array
    fraction, bits, kept = (23, np.uint32, 16) if array.dtype == np.float32 else (52, np.uint64, 36)
    dropped = bits(fraction - kept)
    raw = np.ascontiguousarray(array).view(bits) + bits(1 << int(dropped - 1))
    shortened = (raw >> dropped << dropped).view(array.dtype).reshape(array.shape)
    return np.where(np.isfinite(array), shortened, array)


def anonymise(folder: Path) -> None:
    """Take the names of the machine and of its folders out of the captures' ledgers."""
    for path in folder.rglob("ait_dump/ledger/*.jsonl"):
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        header = json.loads(first)
        header |= {"host": "recorder", "executable": "python"}
        header["program"] = Path(header.get("program", "")).name
        if "arguments" in header:
            header["arguments"] = [Path(word).name for word in header["arguments"]]
        path.write_text(json.dumps(header) + "\n" + rest, encoding="utf-8")


def pack(folder: Path, names: list[str], path: Path) -> None:
    """One archive, so that what several captures share is stored once."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 27}]
    anonymise(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(path, "wb", format=lzma.FORMAT_XZ, filters=filters) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in names:
            archive.add(folder / name, name, filter=_plain)
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB", flush=True)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o755 if entry.isdir() else 0o644
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
