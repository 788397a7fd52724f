"""Calls and tensors of a ptdbg dump."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.api_records import tensors_of
from ait_llm.dumps.api_values import ApiSource, ApiValue, Section, tensor_of
from ait_llm.dumps.lazy import Lazy, LazyMapping
from ait_llm.dumps.operations import Facts, Operation
from ait_llm.dumps.ptdbg_lines import PtdbgLine, PtdbgName, parse_line
from ait_llm.dumps.ptdbg_place import PtdbgPlace
from ait_llm.dumps.tensors import Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor
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


class PtdbgSource(ApiSource):
    """Reads one tensor of a ptdbg dump. Its type is that of the ``.pkl`` file.

    Values of 16 bits may lie in the ``.npy`` file as float32, from which they are rounded back.
    """

    __slots__ = ()

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie, None if they must be converted."""
        found = super().payload(tensor)
        return found if found is not None and found.dtype is tensor.dtype else None

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values in the recorded type."""
        loaded, dtype = super().loaded(tensor), tensor.dtype
        if loaded.dtype is DType.FLOAT32 and dtype in (DType.FLOAT16, DType.BFLOAT16):
            assert dtype.numpy_type is not None
            return LoadedTensor(loaded.array.astype(dtype.numpy_type), dtype)
        return loaded


def ptdbg_tensor(value: ApiValue, index: int, root: Path) -> Tensor:
    """The tensor that a value is; see :func:`tensor_of`."""
    return tensor_of(value, index, root, PtdbgSource(value, root))


@dataclass(frozen=True, slots=True)
class PtdbgCall(Facts):
    """One call, with what only ptdbg knows of it.

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

    def operation(self) -> Operation:
        """The call as an operation; its tensors are read when they are looked at."""
        return Operation(
            self.name,
            self.op_id,
            self.type,
            self.step,
            self.call,
            self.device,
            self.pid,
            self.rank,
            location=str(self.path),
            tensors=Lazy(self._tensors, keep=False),
            params=LazyMapping(self._params),
            api_name=self.api_name,
            record_name=self.record_name,
            facts=self,
        )

    def _params(self) -> Mapping[str, Any]:
        """Values that are no tensors, by place: ``{"input.1": 3}``."""
        return {value.label: value.value for value in self.values if not value.is_tensor}

    def _tensors(self) -> tuple[Tensor, ...]:
        return tensors_of(self.values, self._root, ptdbg_tensor)

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
