"""The tensors of a ``.pth`` file as NumPy arrays, without torch, which takes seconds to load."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ait_llm.formats.elements import decode, is_decoded
from ait_llm.formats.loaded import LoadedTensor
from ait_llm.formats.opening import open_descriptor
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import pth_payloads


def plain_tensors(path: Path) -> dict[str, LoadedTensor] | None:
    """Every tensor of a file that holds nothing but tensors in row-major order.

    Returns:
        Names and values as :func:`ait_llm.formats.torch_file.read_torch`; None if that must read
        the file with torch.

    Raises:
        FormatError: the file cannot be opened, or became shorter.
    """
    payloads = pth_payloads(path)
    if not payloads or not all(map(_is_plain, payloads.values())):
        return None
    descriptor, status = open_descriptor(path)
    try:
        if sum(each.length for each in payloads.values()) > status.st_size:
            return None  # tensors that share their memory; torch reads that once
        return {name: _loaded(descriptor, each) for name, each in payloads.items()}
    finally:
        os.close(descriptor)


def _is_plain(payload: Payload) -> bool:
    expected = payload.dtype.byte_count(payload.elements)
    return payload.strides is None and is_decoded(payload.dtype) and payload.length == expected


def _loaded(descriptor: int, payload: Payload) -> LoadedTensor:
    raw = np.empty(payload.length, np.uint8)
    payload.read_into(descriptor, raw.data)
    flat = decode(raw, payload.dtype, payload.elements)
    return LoadedTensor(flat.reshape(payload.shape), payload.dtype)
