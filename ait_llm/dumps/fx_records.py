"""Values and nodes of an FX dump."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.core import FORMAT_ND, DType, OpId
from ait_llm.dumps.fx_kernels import KernelLaunch
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, load, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.npy import npy_payload, read_npy_header
from ait_llm.formats.opening import contained_file
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FxTensor:
    """An argument or a result of a node; see :class:`ait_llm.dumps.model.Tensor`.

    Plain numbers and lists of numbers among the arguments are arrays of rank 0 and 1.

    Attributes:
        role: argument or result.
        argument: position among the positional arguments, or among the results.
        element: position within the argument where that is a list of tensors, else None.
        index: as ``argument``, later ones moved up by the elements of lists before them.
        file: the ``.npy`` file.
        root: folder that the file must not leave.
        logical: element type in the program where the file holds a wider one: ``.npy`` files have
            no bf16, so such values lie in them as float32. None: as the file says.
    """

    role: Role
    argument: int
    element: int | None
    index: int
    file: str
    root: Path = field(repr=False, compare=False)
    logical: DType | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``; ``intensor0.2`` for an element of a list."""
        return f"{self.role}tensor{self._place}"

    @property
    def stem(self) -> str:
        """``INPUT.0``, ``INPUT.0.2``, ``OUTPUT.1``: the argument as the file name has it."""
        word = "INPUT" if self.role == "in" else "OUTPUT"
        return f"{word}.{self._place}"

    @property
    def _place(self) -> str:
        return str(self.argument) if self.element is None else f"{self.argument}.{self.element}"

    @property
    def ir_name(self) -> None:
        """Arguments have positions, no names."""
        return

    @property
    def phase(self) -> Phase:
        """Arguments are saved before the node runs, results after it."""
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
        return self._header[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value.

        Raises:
            FormatError: the file is damaged.
        """
        return self._header[1]

    @property
    def format(self) -> int:
        """Always row-major."""
        return FORMAT_ND

    @property
    def has_data(self) -> bool:
        """Values are always saved."""
        return True

    @property
    def statistics(self) -> Statistics | None:
        """Computed from the values; None for complex values.

        Raises:
            FormatError: the file is damaged.
        """
        array = self.numpy()
        return None if array.dtype.kind == "c" else measure(array)

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values, in the logical element type.

        Raises:
            FormatError: the file is damaged.
        """
        return self._load().array

    def payload(self) -> Payload | None:
        """Where the values lie; None if only :meth:`numpy` can read them.

        Raises:
            FormatError: the file cannot be opened, or is a link that leaves the dump.
        """
        if self._is_widened:
            return None
        return npy_payload(Path(contained_file(self.file, self.root)))

    def nd(self) -> Array:
        """The values, which are row-major already."""
        return self.numpy()

    def torch(self) -> torch.Tensor:
        """The values as a CPU tensor of the logical element type."""
        return self._load().torch()

    @cached_property
    def _header(self) -> tuple[DType, tuple[int, ...]]:
        found = read_npy_header(Path(contained_file(self.file, self.root)))
        return _narrowed(found.dtype, self.logical), found.shape

    @property
    def _is_widened(self) -> bool:
        return self.logical is not None and self.dtype is self.logical

    def _load(self) -> LoadedTensor:
        loaded = load(Path(contained_file(self.file, self.root)))
        dtype = _narrowed(loaded.dtype, self.logical)
        if dtype is loaded.dtype or dtype.numpy_type is None:
            return loaded
        return LoadedTensor(loaded.array.astype(dtype.numpy_type), dtype)


def _narrowed(stored: DType, logical: DType | None) -> DType:
    """The logical type where the file holds float32 in its place."""
    return logical if logical is not None and stored is DType.FLOAT32 else stored


@dataclass(frozen=True)
class FxOperation:
    """One execution of one node; see :class:`ait_llm.dumps.model.Operation`.

    Attributes:
        name: of the node in its graph: ``mul_5``.
        op_id: number of the graph, and place of the node among those that this execution saved.
        type: its target: ``aten.mul.Tensor``.
        step: which execution of its graph, from 0.
        step_directory: the number of the folder; old versions of torchair count from 1.
        graph: number of the graph, None where the dump does not say.
        rank, device: of the process.
        pid: of the process, 0 where the dump does not say.
        timestamp: 20 digits, ``YYYYmmddHHMMSSffffff``; the order of execution.
        call: which execution within the step, 0 unless the node ran again.
        folder: where the files lie.
        values: all files, arguments first, in order of position.
        launch: what the compiler made it of, where it is a kernel and not a node.
    """

    name: str
    op_id: OpId
    type: str
    step: int
    step_directory: int
    graph: int | None
    rank: int
    pid: int
    timestamp: str
    call: int
    folder: Path
    values: tuple[FxTensor, ...] = field(repr=False)
    launch: KernelLaunch | None = field(default=None, repr=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """Nodes of the graph before compilation that a kernel fused; empty for a node."""
        return self.launch.source if self.launch is not None else ()

    @property
    def device(self) -> int:
        """The rank: FX dumps do not name devices."""
        return self.rank

    @property
    def path(self) -> Path:
        """The folder, which it shares with the other nodes of this execution."""
        return self.folder

    @property
    def is_graph(self) -> bool:
        """Nodes have no members."""
        return False

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Which of before and after were captured."""
        found = {value.phase for value in self.values}
        phases: tuple[Phase, ...] = ("before", "after")
        return tuple(phase for phase in phases if phase in found)

    @property
    def kernels(self) -> tuple[()]:
        """FX dumps know no kernels."""
        return ()

    @property
    def params(self) -> Mapping[str, Any]:
        """Keyword arguments are not in an FX dump."""
        return {}

    @cached_property
    def tensors(self) -> tuple[FxTensor, ...]:
        """Arguments and results that hold numbers; a damaged file counts as one."""
        others = {each["name"] for each in self.not_captured}
        return tuple(value for value in self.values if value.stem not in others)

    @property
    def inputs(self) -> tuple[FxTensor, ...]:
        """Arguments, as they were when the node was called."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "in")

    @property
    def outputs(self) -> tuple[FxTensor, ...]:
        """Results."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "out")

    @cached_property
    def not_captured(self) -> tuple[Mapping[str, str], ...]:
        """Names and reasons of values that hold no numbers: None, a dtype, text, empty tensors."""
        found = []
        for value in self.values:
            try:
                reason = ""
                if value.dtype is DType.UNDEFINED:
                    reason = "is no tensor but another object"
                elif 0 in value.shape:
                    reason = f"has no elements: [{','.join(map(str, value.shape))}]"
                if reason:
                    found.append({"name": value.stem, "reason": reason})
            except FormatError:
                continue  # reading its values says what is wrong with it
        return tuple(found)
