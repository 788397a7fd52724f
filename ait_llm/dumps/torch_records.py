"""Tensors and module calls of a torch dump."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.core import FORMAT_ND, DType, OpId
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, load, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.opening import contained_file
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_payload import pth_payloads

if TYPE_CHECKING:
    import torch

SUFFIX = ".pth"


# Size and time of last change of a file; offset, length and strides of the tensor in it.
_Place = tuple[int, int, int, int, tuple[int, ...] | None]


def _state(path: Path | str) -> tuple[int, int]:
    """Size and time of the last change, in bytes and ns; -1 if it cannot be told, as of a link."""
    try:
        status = os.lstat(path)
    except OSError:
        return -1, -1  # opening it says why
    return (-1, -1) if stat.S_ISLNK(status.st_mode) else (status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class TorchTensor:
    """A ``.pth`` file, or a row of a statistics table; see :class:`ait_llm.dumps.model.Tensor`.

    Attributes:
        stem: file name without its suffix, such as ``input_attention_mask``.
        recorded: statistics that the capture computed, with dtype and shape; None if it did not.
    """

    role: Role
    index: int
    stem: str
    file: str
    root: Path = field(repr=False, compare=False)
    exists: bool = True
    recorded: tuple[DType, tuple[int, ...], Statistics] | None = field(default=None, repr=False)
    _known: tuple[DType, tuple[int, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _place: _Place | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``: position among the inputs or outputs."""
        return f"{self.role}tensor{self.index}"

    @property
    def ir_name(self) -> str | None:
        """The argument or field: ``attention_mask``, ``0``, ``logits``; None for a sole output."""
        _, _, rest = self.stem.partition("_")
        return rest or None

    @property
    def phase(self) -> Phase:
        """Inputs are captured before the module runs, outputs after it."""
        return "before" if self.role == "in" else "after"

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file)

    @property
    def dtype(self) -> DType:
        """Logical element type.

        Raises:
            FormatError: the file is damaged.
        """
        return self._header()[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor.

        Raises:
            FormatError: the file is damaged.
        """
        return self._header()[1]

    @property
    def format(self) -> int:
        """Always row-major."""
        return FORMAT_ND

    @property
    def has_data(self) -> bool:
        """True if the values were saved, not only their statistics."""
        return self.exists

    @property
    def statistics(self) -> Statistics | None:
        """Recorded statistics, else computed from the values; None for complex values.

        Raises:
            FormatError: the file is damaged.
        """
        if self.recorded is not None:
            return self.recorded[2]
        array = self.numpy()
        return None if array.dtype.kind == "c" else measure(array)

    @property
    def recorded_statistics(self) -> Statistics | None:
        """Statistics that the capture computed; None if it did not."""
        return None if self.recorded is None else self.recorded[2]

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values.

        Raises:
            FormatError: no values were saved, or the file is damaged.
        """
        return self._load().array

    def payload(self) -> Payload | None:
        """Where the values lie; None if none were saved or only :meth:`numpy` can read them.

        Raises:
            FormatError: the file cannot be opened, or is a link that leaves the dump.
        """
        if not self.exists:
            return None
        place, known = self._place, self._known
        if place is not None and known is not None and _state(self.file) == place[:2]:
            _, _, offset, length, strides = place
            return Payload(self.file, offset, length, *known, strides=strides)
        return self._locate()

    def nd(self) -> Array:
        """The values, which are row-major already."""
        return self.numpy()

    def torch(self) -> torch.Tensor:
        """The values as a CPU tensor of the same element type."""
        return self._load().torch()

    def _header(self) -> tuple[DType, tuple[int, ...]]:
        """Type and shape, read once."""
        if self._known is None:
            object.__setattr__(self, "_known", self._read_header())
        assert self._known is not None
        return self._known

    def _read_header(self) -> tuple[DType, tuple[int, ...]]:
        if self.recorded is not None and self.recorded[0] is not DType.UNDEFINED:
            return self.recorded[:2]
        if not self.exists and self.recorded is not None:
            return self.recorded[:2]
        if self.exists:
            found = self._locate()
            if found is not None:
                return found.dtype, found.shape
        loaded = self._load()
        return loaded.dtype, loaded.array.shape

    def _locate(self) -> Payload | None:
        """Where the values lie, and remember it for as long as the file does not change."""
        path = contained_file(self.file, self.root)
        state = _state(self.file)
        payloads = pth_payloads(path)
        found = payloads.get("") if payloads is not None and len(payloads) == 1 else None
        if found is not None:
            object.__setattr__(self, "_known", (found.dtype, found.shape))
            if state[0] < 0:
                return found  # a link is followed each time
            place = (*state, found.offset, found.length, found.strides)
            object.__setattr__(self, "_place", place)
        return found

    def _load(self) -> LoadedTensor:
        if not self.exists:
            raise FormatError(
                self.path, "was not saved, only its statistics were", "Dump with --type torch"
            )
        return load(Path(contained_file(self.file, self.root)))


@dataclass(frozen=True, slots=True)
class TorchCall:
    """One call of a module or operator; see :class:`ait_llm.dumps.model.Operation`.

    Attributes:
        name: dotted path: ``root.model.layers.0.mlp``.
        call: which call within its step, from 0.
        params: plain Python values that it received and returned, by name.
        weights: inputs that are parameters of the model, by name.
        not_captured: names and reasons of values of which there is no tensor.
    """

    name: str
    op_id: OpId
    type: str
    step: int
    call: int
    device: int
    pid: int
    is_graph: bool
    folder: str
    tensors: tuple[TorchTensor, ...] = field(repr=False)
    params: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    weights: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    not_captured: Sequence[Mapping[str, str]] = field(default=(), repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        found = {tensor.phase for tensor in self.tensors}
        phases: tuple[Phase, ...] = ("before", "after")
        return tuple(phase for phase in phases if phase in found)

    @property
    def kernels(self) -> tuple[()]:
        """Torch captures know no kernels."""
        return ()

    @property
    def inputs(self) -> tuple[TorchTensor, ...]:
        """What the module received, as it was when it was called."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "in")

    @property
    def outputs(self) -> tuple[TorchTensor, ...]:
        """What the module returned."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "out")
