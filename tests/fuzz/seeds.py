"""Good files to begin with: recorded ones, and files that our own writers make."""

from __future__ import annotations

import functools
import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data"
REGRESSIONS = DATA / "fuzz" / "regressions"


def recorded(*patterns: str, most: int = 8, longest: int = 32 << 10) -> list[bytes]:
    """The content of files below ``tests/data``; of equal sizes only one."""
    found: dict[int, bytes] = {}
    for pattern in patterns:
        for path in sorted(DATA.glob(pattern)):
            if path.is_file() and path.stat().st_size <= longest:
                found.setdefault(path.stat().st_size, path.read_bytes())
    spread = max(1, len(found) // most)
    return list(found.values())[::spread][:most]


@functools.cache
def unpacked(archive: str) -> dict[str, bytes]:
    """The files of a recorded archive."""
    with tarfile.open(DATA / archive) as tar:
        return {
            member.name: file.read()
            for member in tar
            if member.isfile() and (file := tar.extractfile(member)) is not None
        }


def graph_text(name: str, operators: int = 12) -> bytes:
    """The first operators of a recorded graph, and one from its middle."""
    text = lzma.decompress((DATA / "torchair" / name).read_bytes())
    separator = b"\nop {" if b"\nop {" in text else b"\nnode {"
    head, *blocks = text.split(separator)
    if head.startswith(b"node {"):
        head, blocks = b"", [head.removeprefix(b"node {"), *blocks]
    chosen = [*blocks[:operators], blocks[len(blocks) // 2]]
    return head + b"".join(separator + block for block in chosen)


def written(write: Callable[[Path], object], suffix: str = "") -> bytes:
    """What a writer makes of a path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"seed{suffix}"
        write(path)
        return path.read_bytes()


def in_folder(work: Callable[[Path], Any]) -> Any:
    """The result of a function that needs a folder for a while."""
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder))


def json_bytes(value: Any) -> bytes:
    """JSON, one object or one value per line of a list."""
    if isinstance(value, list):
        return b"".join(json.dumps(line).encode() + b"\n" for line in value)
    return json.dumps(value).encode()


def arrays() -> Iterator[np.ndarray[Any, Any]]:
    """Arrays of several types, ranks and orders."""
    for dtype in ("<f4", "<f2", ">f8", "|i1", "<i8", "|b1", "<c8", "<u2"):
        yield np.arange(12).astype(dtype).reshape(3, 4)
    yield np.float32(1.5).reshape(())
    yield np.zeros((0, 3), np.float32)
    yield np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))


def npy(array: np.ndarray[Any, Any], version: tuple[int, int] = (1, 0)) -> bytes:
    """A ``.npy`` file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version, allow_pickle=False)
    return out.getvalue()


def small_dump(archive: str, name: str, records: int = 12) -> bytes:
    """A recorded ``dump.json`` or ``construct.json`` with some of its records."""
    content = json.loads(unpacked(archive)[name])
    inner = content.get("data", content)
    step = max(1, len(inner) // records)
    kept = dict(list(inner.items())[::step][:records])
    if "data" in content:
        content["data"] = kept
        return json.dumps(content, indent=1).encode()
    return json.dumps(kept).encode()
