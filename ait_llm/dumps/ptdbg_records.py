"""Calls and tensors of a ptdbg dump."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.api_values import ApiTensor, ApiValue, Section
from ait_llm.dumps.model import Phase
from ait_llm.dumps.ptdbg_lines import PtdbgLine, PtdbgName, parse_line
from ait_llm.dumps.ptdbg_place import PtdbgPlace
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor
from ait_llm.formats.elements import Array
from ait_llm.formats.opening import open_regular
from ait_llm.formats.payload import Payload

_NPY = ".npy"


@dataclass(frozen=True, slots=True)
class PtdbgValue(ApiValue):
    """One argument or result of a call of ptdbg."""

    @property
    def item(self) -> str:
        """Name in tables: ``Tensor_permute_1_forward_input.0``."""
        return f"{self.record_name}_{self.label}"


@dataclass(frozen=True, slots=True)
class PtdbgTensor(ApiTensor):
    """A tensor of a ptdbg dump. Its type is that of the ``.pkl`` file.

    Values of 16 bits may lie in the ``.npy`` file as float32, from which they are rounded back.
    """

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values in the recorded type.

        Raises:
            FormatError: no values were saved, or the file is damaged.
        """
        return self._load().array

    def payload(self) -> Payload | None:
        """Where the values lie, None if they must be converted.

        Raises:
            FormatError: the file cannot be opened, or is a link that leaves the dump.
        """
        found = ApiTensor.payload(self)
        return found if found is not None and found.dtype is self.dtype else None

    def _load(self) -> LoadedTensor:
        loaded = ApiTensor._load(self)
        if loaded.dtype is DType.FLOAT32 and self.dtype in (DType.FLOAT16, DType.BFLOAT16):
            assert self.dtype.numpy_type is not None
            return LoadedTensor(loaded.array.astype(self.dtype.numpy_type), self.dtype)
        return loaded


@dataclass(frozen=True, slots=True)
class PtdbgCall:
    """One call; see :class:`ait_llm.dumps.model.Operation`.

    Attributes:
        name: as recorded: ``Tensor_permute_1_forward``.
        parsed: the name in its parts.
        op_id: place in the file.
        step: which step.
        device: number of the rank, -1 where the folder names none.
        has_stack: True if its call stack was recorded.
        is_overflow: True if it was written because it overflowed.
    """

    name: str
    parsed: PtdbgName
    op_id: OpId
    step: int
    device: int
    has_stack: bool
    is_overflow: bool
    _place: PtdbgPlace = field(repr=False, compare=False)
    _root: Path = field(repr=False, compare=False)
    _lines: tuple[tuple[int, int], ...] = field(repr=False, compare=False)

    @property
    def type(self) -> str:
        """Name of the function: ``permute``."""
        return self.parsed.api

    @property
    def api_name(self) -> str:
        """``Tensor.permute``, as newer captures call it."""
        return f"{self.parsed.prefix}.{self.parsed.api}" if self.parsed.prefix else self.name

    @property
    def record_name(self) -> str:
        """The name that newer captures give to the same call: ``Tensor.permute.1.forward``."""
        parsed = self.parsed
        if not parsed.prefix:
            return self.name
        return f"{parsed.prefix}.{parsed.api}.{parsed.call}.{parsed.direction}"

    @property
    def call(self) -> int:
        """Which call of this function, from 0."""
        return self.parsed.call

    @property
    def direction(self) -> str:
        """``forward`` or ``backward``."""
        return self.parsed.direction

    @property
    def pid(self) -> int:
        """ptdbg does not record it: 0."""
        return 0

    @property
    def rank(self) -> int:
        """Number of the rank, -1 where the folder names none."""
        return self.device

    @property
    def is_graph(self) -> bool:
        """A function holds no others."""
        return False

    @property
    def path(self) -> Path:
        """The ``.pkl`` file."""
        return self._place.path

    @property
    def stack(self) -> tuple[str, ...] | None:
        """The frames that led to the call, innermost first; None if none were recorded."""
        return next((line.stack for line in self._read() if line.part == "stack_info"), None)

    @property
    def values(self) -> tuple[PtdbgValue, ...]:
        """All items, in the order of the file.

        Raises:
            FormatError: the file has changed since it was opened.
        """
        return tuple(self._value(line) for line in self._read() if line.part != "stack_info")

    @property
    def params(self) -> Mapping[str, Any]:
        """Values that are no tensors, by place: ``{"input.1": 3}``."""
        return {value.label: value.value for value in self.values if not value.is_tensor}

    @property
    def tensors(self) -> tuple[PtdbgTensor, ...]:
        """All tensors, inputs before outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def inputs(self) -> tuple[PtdbgTensor, ...]:
        """Positional arguments; the gradients that arrive in a backward call."""
        return self._tensors("in")

    @property
    def outputs(self) -> tuple[PtdbgTensor, ...]:
        """Results; the gradients that leave a backward call."""
        return self._tensors("out")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        found: tuple[tuple[str, Phase], ...] = (("in", "before"), ("out", "after"))
        roles = {value.role for value in self.values if value.is_tensor}
        return tuple(phase for role, phase in found if role in roles)

    @property
    def kernels(self) -> tuple[()]:
        """API captures know no kernels."""
        return ()

    def _tensors(self, role: str) -> tuple[PtdbgTensor, ...]:
        found = [value for value in self.values if value.is_tensor and value.role == role]
        return tuple(PtdbgTensor(each, index, self._root) for index, each in enumerate(found))

    def _value(self, line: PtdbgLine) -> PtdbgValue:
        name = f"{line.fields[0]}{_NPY}"
        if "/" in name or "\0" in name:
            raise FormatError(
                self.path,
                f"names the file {name[:80]!r}, which does not lie in {self._place.data_folder}",
                "Do not use this dump; its maker meant to reach other files",
            )
        section: Section = "input" if line.part == "input" else "output"
        recorded = line.recorded(name)
        file = f"{self._place.data_folder}/{name}" if "data_name" in recorded else None
        return PtdbgValue(self.name, section, line.keys, line.role, recorded, file)

    def _read(self) -> list[PtdbgLine]:
        with open_regular(self.path) as file:
            descriptor = file.fileno()
            raw = [os.pread(descriptor, length, offset) for offset, length in self._lines]
        return [parse_line(self.path, each) for each in raw]
