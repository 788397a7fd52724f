"""Dumps of API calls by ptdbg: ``.pkl`` files of text and folders of ``.npy`` files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.api_json import UnfinishedError
from ait_llm.dumps.api_values import ApiTensor, ApiValue, Section
from ait_llm.dumps.kinds import file_kinds, kinds
from ait_llm.dumps.model import Phase, Process, TopologyFile
from ait_llm.dumps.ptdbg_lines import PtdbgLine, PtdbgName, parse_call, parse_line, read_lines
from ait_llm.dumps.ptdbg_place import PtdbgPlace, find_ptdbg_places
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor
from ait_llm.formats.elements import Array
from ait_llm.formats.opening import open_regular
from ait_llm.formats.payload import Payload

_NPY = ".npy"


class PtdbgDump:
    """A dump of ptdbg; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "ptdbg"

    def __init__(self, root: Path, places: list[PtdbgPlace]) -> None:
        self._root = root
        self._places = places

    @property
    def root(self) -> Path:
        """The folder that was opened, or that of the file that was."""
        return self._root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By rank, as device; a file whose last line breaks off is told of.

        Raises:
            FormatError: a file is damaged.
        """
        steps: dict[int, set[int]] = {}
        remarks: dict[int, list[str]] = {}
        for place in self._places:
            steps.setdefault(place.rank, set()).add(place.step)
            remarks.setdefault(place.rank, []).extend(_broken_off(place))
        return tuple(
            Process(rank, 0, tuple(sorted(found)), None, (), tuple(remarks[rank]))
            for rank, found in steps.items()
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of all ranks, ascending."""
        return tuple(sorted({place.step for place in self._places}))

    @property
    def layers(self) -> tuple[TopologyFile, ...]:
        """API captures report no operation graphs."""
        return ()

    @property
    def models(self) -> tuple[TopologyFile, ...]:
        """API captures report no operation graphs."""
        return ()

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[PtdbgCall]:
        """Calls in the order of the files.

        Raises:
            FormatError: a line is damaged; its number is named.
        """
        for place in self._places:
            if device in (None, place.rank) and pid in (None, 0) and step in (None, place.step):
                yield from _calls(place, self._root)

    def forget(self) -> None:
        """Nothing is remembered but the files' places."""


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


@dataclass(slots=True)
class _Group:
    """Lines of one call; those of another one may lie between them."""

    lines: list[tuple[int, int]] = field(default_factory=list)
    items: set[tuple[str, tuple[int | str, ...]]] = field(default_factory=set)
    is_overflow: bool = False


def _calls(place: PtdbgPlace, root: Path) -> Iterator[PtdbgCall]:
    groups: list[tuple[str, _Group]] = []
    latest: dict[str, _Group] = {}
    try:
        for line in read_lines(place.path):
            group = latest.get(line.call)
            item = (line.part, line.keys)
            if group is None or item in group.items:  # the same call again: a file of two runs
                group = latest[line.call] = _Group()
                groups.append((line.call, group))
            group.lines.append((line.offset, line.length))
            group.items.add(item)
            group.is_overflow |= line.is_overflow
    except UnfinishedError:
        pass  # the process's remark tells of it
    for number, (name, group) in enumerate(groups):
        yield PtdbgCall(
            name=name,
            parsed=parse_call(name),
            op_id=OpId((number,)),
            step=place.step,
            device=place.rank,
            has_stack=any(part == "stack_info" for part, _ in group.items),
            is_overflow=group.is_overflow,
            _place=place,
            _root=root,
            _lines=tuple(group.lines),
        )


def _broken_off(place: PtdbgPlace) -> Iterator[str]:
    """Whether the last line is only a part of one."""
    with open_regular(place.path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_whole = size == 0 or file.read(1) == b"\n"
    if not is_whole:
        try:
            for _ in read_lines(place.path):
                pass
        except UnfinishedError:
            yield f"{place.path.name} breaks off, calls at its end are missing"


@kinds.register("ptdbg")
@file_kinds.register("ptdbg")
def _open(path: Path) -> PtdbgDump | None:
    places = find_ptdbg_places(path)
    root = path.absolute()
    if not root.is_dir():
        root = root.parent
    return PtdbgDump(root, places) if places else None
