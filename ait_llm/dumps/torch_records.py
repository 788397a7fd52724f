"""Reading the tensors of a torch dump: ``.pth`` files, and rows of a statistics table."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.tensors import Described, Header, Source, Tensor
from ait_llm.dumps.torch_tables import Recorded
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, load
from ait_llm.formats.elements import Array
from ait_llm.formats.opening import contained_file
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import sole_payload
from ait_llm.formats.torch_bridge import read_tensor

if TYPE_CHECKING:
    import torch

SUFFIX = ".pth"

# The bytes of a small tensor are kept with its place: opening the file once more costs more than
# all else. So much of a tensor, and of all tensors of a dump.
_KEPT_BYTES, _ALL_KEPT_BYTES = 4096, 32 << 20

# Size and time of last change of a file; offset, length and strides of the tensor in it.
_Place = tuple[int, int, int, int, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class _Located:
    """The header of a file, and where the values lie for as long as the file does not change.

    Attributes:
        desc: type and dims.
        place: where the values lie.
        kept: the values of a small tensor.
    """

    desc: TensorDesc
    place: _Place | None
    kept: bytes | None = None


# Many tensors of a dump are of few types and shapes.
_desc = lru_cache(maxsize=4096)(TensorDesc)


class TorchFiles(Source):
    """Reads ``.pth`` files, one tensor each; shared by all tensors of a dump.

    Args:
        root: folder that no link may leave.
    """

    __slots__ = ("_free", "_root")

    def __init__(self, root: Path) -> None:
        self._root = root
        self._free = _ALL_KEPT_BYTES

    def header(self, tensor: Tensor) -> Header:
        """Type and shape, and where the values lie."""
        payload, located = self._locate(tensor)
        if payload is not None:
            if located.kept is not None:
                self._free -= len(located.kept)
            return located
        loaded = self.loaded(tensor)
        return Described(_desc(loaded.dtype, loaded.array.shape))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values."""
        return self.loaded(tensor).array

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if only :meth:`values` can read them."""
        header = self._known(tensor)
        if not isinstance(header, _Located) or header.place is None:
            return self._locate(tensor)[0]
        desc, place, kept = header.desc, header.place, header.kept
        if _state(tensor.file) != place[:2]:
            return self._locate(tensor)[0]
        return Payload(
            tensor.file,
            place[2],
            place[3],
            desc.dtype,
            desc.shape,
            strides=place[4],
            kept=None if kept is None else (kept, place[:2]),
        )

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their logical type."""
        return load(Path(contained_file(tensor.file, self._root)))

    def as_torch(self, tensor: Tensor) -> torch.Tensor:
        """The values, read into their place at once where they lie in one piece."""
        payload = self.payload(tensor)
        found = None if payload is None else read_tensor(payload)
        return super().as_torch(tensor) if found is None else found

    def _known(self, tensor: Tensor) -> Header:
        """What the file itself says."""
        return tensor.header

    def _locate(self, tensor: Tensor) -> tuple[Payload | None, _Located]:
        """Where the values lie; nothing, and no header, if only loading tells."""
        name = tensor.file
        path = contained_file(name, self._root)
        found, state, content = sole_payload(path)
        if found is None:
            return None, _Located(_desc(DType.UNDEFINED, ()), None)
        desc = _desc(found.dtype, found.shape)
        if path is not name or state[0] < 0:
            return found, _Located(desc, None)  # a link is followed each time
        keeps = content is not None and len(content) <= min(_KEPT_BYTES, self._free)
        place = (*state, found.offset, found.length, found.strides)
        return found, _Located(desc, place, content if keeps else None)


class TorchRow(TorchFiles):
    """Reads one row of a statistics table, and the file beside it if there is one.

    Args:
        root: folder that no link may leave.
        recorded: type, shape and statistics that the capture computed.
        exists: the values were saved as well.
    """

    __slots__ = ("_exists", "_in_file", "_recorded")

    def __init__(self, root: Path, recorded: Recorded, *, exists: bool) -> None:
        super().__init__(root)
        self._recorded = recorded
        self._exists = exists
        self._in_file: Header | None = None

    def header(self, tensor: Tensor) -> Header:
        """As recorded; of a type that the table has no name for, as in the file."""
        dtype, shape, _ = self._recorded
        if dtype is DType.UNDEFINED and self._exists:
            return super().header(tensor)
        return Described(_desc(dtype, shape))

    def has_data(self, tensor: Tensor) -> bool:
        """True if the values were saved, not only their statistics."""
        return self._exists

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if none were saved."""
        return super().payload(tensor) if self._exists else None

    def recorded_statistics(self, tensor: Tensor) -> Statistics:
        """As recorded."""
        return self._recorded[2]

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their logical type."""
        if not self._exists:
            raise FormatError(
                tensor.path, "was not saved, only its statistics were", "Dump with --type torch"
            )
        return super().loaded(tensor)

    def _known(self, tensor: Tensor) -> Header:
        if self._in_file is None:
            self._in_file = super().header(tensor)
        return self._in_file


def _state(path: str) -> tuple[int, int]:
    """Size and time of the last change, in bytes and ns; -1 if it cannot be told, as of a link."""
    try:
        status = os.lstat(path)
    except OSError:
        return -1, -1  # opening it says why
    return (-1, -1) if stat.S_ISLNK(status.st_mode) else (status.st_size, status.st_mtime_ns)
