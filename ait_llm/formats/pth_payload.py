"""Where the tensors of a ``.pth`` file lie, without torch and without reading their data."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ait_llm.formats.opening import not_here, open_descriptor
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_archive import Archive, Record
from ait_llm.formats.pth_known import known_payload, remember
from ait_llm.formats.pth_pickle import StoredTensor, UnexpectedPickleError, read_tensor_pickle
from ait_llm.formats.repeats import check_repeats

_MAX_PICKLE_BYTES = 16 << 20
_MAX_DEPTH = 32
_MAX_VALUES = 1 << 18  # a small pickle can describe a tree of any size by repeating its parts
_LITTLE = (6, zlib.crc32(b"little"))


def pth_payloads(path: Path | str) -> dict[str, Payload] | None:
    """Every tensor of the file that can be mapped; None if ``read_torch`` must read the file.

    Names are those of ``torch_file.read_torch``: ``""`` for a sole tensor, else the path within
    dicts, lists and tuples joined with ``.``.

    Raises:
        FormatError: the file cannot be opened, or repeats what it stores too often.
    """
    if (elsewhere := not_here(path)) is not None:
        return _payloads(path, Archive(elsewhere.pread, elsewhere.size))
    descriptor, status = open_descriptor(path)
    try:
        return _payloads(path, Archive(partial(os.pread, descriptor), status.st_size))
    finally:
        os.close(descriptor)


def sole_payload(path: Path | str) -> tuple[Payload | None, tuple[int, int], bytes | None]:
    """The one tensor of a file.

    Returns:
        Where it lies, None if ``read_torch`` must read the file or it holds several; size in bytes
        and time of the last change in ns of the file, -1 of one elsewhere; and the bytes of the
        tensor, if they had to be read to find their place.

    Raises:
        FormatError: as :func:`pth_payloads`.
    """
    if not_here(path) is not None:
        return _sole(pth_payloads(path)), (-1, -1), None
    descriptor, status = open_descriptor(path)
    try:
        archive = Archive(partial(os.pread, descriptor), status.st_size)
        found = _sole(_payloads(path, archive))
    finally:
        os.close(descriptor)
    stamp = (status.st_size, status.st_mtime_ns)
    if found is None or found.offset + found.length > len(archive.head):
        return found, stamp, None
    return found, stamp, archive.head[found.offset : found.offset + found.length]


def _sole(payloads: Mapping[str, Payload] | None) -> Payload | None:
    return payloads.get("") if payloads is not None and len(payloads) == 1 else None


def _payloads(path: Path | str, archive: Archive) -> dict[str, Payload] | None:
    known = known_payload(path, archive)
    if known is not None:
        return {"": known}
    records = archive.records()
    if records is None or not _is_little(records):
        return None
    pickled = records.get("data.pkl")
    if pickled is None or pickled.size > _MAX_PICKLE_BYTES:
        return None
    text = archive.read(pickled)
    if text is None:
        return None
    try:
        found = list(_tensors(read_tensor_pickle(text), "", 0, [_MAX_VALUES]))
    except (UnexpectedPickleError, RecursionError):
        return None
    payloads: dict[str, Payload] = {}
    for name, tensor in found:
        payload = _payload(path, tensor, records, archive)
        if payload is None or name in payloads:
            return None
        payloads[name] = payload
    stored = {each.storage: each.storage_bytes // (each.dtype.bits // 8) for _, each in found}
    described = sum(each.elements for each in payloads.values())
    check_repeats(path, described, sum(stored.values()))
    if list(payloads) == [""]:
        data = f"data/{found[0][1].storage}"
        others = [record for name, record in records.items() if name != data]
        remember(archive, records[data], others, payloads[""])
    return payloads


def _is_little(records: Mapping[str, Record]) -> bool:
    order = records.get("byteorder")
    return order is None or (order.size, order.crc) == _LITTLE


def _payload(
    path: Path | str, tensor: StoredTensor, records: Mapping[str, Record], archive: Archive
) -> Payload | None:
    record = records.get(f"data/{tensor.storage}")
    offset = archive.data_offset(record) if record is not None else None
    if record is None or offset is None or record.size != tensor.storage_bytes:
        return None
    width = tensor.dtype.bits // 8
    if 0 in tensor.shape:
        return Payload(path, offset, 0, tensor.dtype, tensor.shape)
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    begin, end = tensor.first * width, (tensor.first + reach + 1) * width
    if end > record.size:
        return None
    strides = None if _is_row_major(tensor) else tensor.strides
    return Payload(path, offset + begin, end - begin, tensor.dtype, tensor.shape, strides=strides)


def _is_row_major(tensor: StoredTensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _tensors(
    value: Any, name: str, depth: int, budget: list[int]
) -> Iterator[tuple[str, StoredTensor]]:
    budget[0] -= 1
    if budget[0] < 0:
        raise UnexpectedPickleError("it describes more values than any file of tensors holds")
    if type(value) is StoredTensor:
        yield name, value
        return
    if depth == _MAX_DEPTH:
        return
    if type(value) is dict:
        items = [(str(key), item) for key, item in value.items()]
    elif type(value) in (list, tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return
    for key, item in items:
        yield from _tensors(item, f"{name}.{key}" if name else key, depth + 1, budget)
