"""Element type and shape of the tensor in a ``.pth`` file, without torch and without its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ait_llm.core import DType
from ait_llm.formats.pth_payload import pth_payloads


@dataclass(frozen=True, slots=True)
class PthHeader:
    """What a file says about its tensor."""

    dtype: DType
    shape: tuple[int, ...]


def read_pth_header(path: Path) -> PthHeader | None:
    """Read dtype and shape; None if the file is something else than one plain tensor.

    Raises:
        FormatError: the file cannot be opened.
    """
    payloads = pth_payloads(path)
    if payloads is None or list(payloads) != [""]:
        return None
    return PthHeader(payloads[""].dtype, payloads[""].shape)
