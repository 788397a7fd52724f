"""One front door to where tensors lie in files; ``load`` is the one to their values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from ait_llm.formats import atb_bin, ge_values, npy, safetensors_file, torch_file
from ait_llm.formats.ge_file import looks_like_ge
from ait_llm.formats.load import SUFFIXES
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import pth_payloads


def locate(path: Path | str) -> Mapping[str, Payload] | None:
    """Find the tensors of a file without reading them.

    Args:
        path: an ATB ``.bin``, ``.npy``, ``.pt``, ``.pth`` or ``.safetensors`` file, or a dump file
            of the graph engine.

    Returns:
        Tensors by name, ``""`` for the tensor of a file that holds one; None if the file must be
        read with ``load`` (compressed archives, other byte orders, types without bytes).

    Raises:
        FormatError: an unknown or damaged file, or one without data.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == safetensors_file.SUFFIX or suffix in torch_file.SUFFIXES:
        return _of_many(path, *_stamp(path))
    if suffix == npy.SUFFIX:
        payload = npy.npy_payload(path)
        return None if payload is None else {"": payload}
    if suffix not in SUFFIXES and looks_like_ge(path):
        return ge_values.ge_payloads(path)
    if suffix in SUFFIXES or atb_bin.looks_like_atb(path):
        holder, header = atb_bin.resolve_data(path)
        return {"": atb_bin.payload_of(holder, header)}
    return None


@lru_cache(maxsize=64)
def _of_many(path: Path, *stamp: int) -> Mapping[str, Payload] | None:
    """Tensors of a file that may hold thousands, found once for all of them.

    Args:
        path: the file.
        stamp: what changes when the file does.
    """
    if path.suffix.lower() == safetensors_file.SUFFIX:
        return MappingProxyType(safetensors_file.safetensors_payloads(path))
    found = pth_payloads(path)
    return None if found is None else MappingProxyType(dict(found))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()  # opening it says what is wrong
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
