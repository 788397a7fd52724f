"""Calls of an API dump, and the file that their records are read from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ait_llm.core import OpId
from ait_llm.dumps.api_json import Member, UnfinishedError, read_members, read_value
from ait_llm.dumps.api_ledger import ApiLedger, find_ledger
from ait_llm.dumps.api_names import ApiName
from ait_llm.dumps.api_order import ApiPositions, read_construct, read_stacks
from ait_llm.dumps.api_place import ApiPlace
from ait_llm.dumps.api_stream import read_records
from ait_llm.dumps.api_values import ApiValue, tensor_of
from ait_llm.dumps.api_walk import values_of
from ait_llm.dumps.lazy import Lazy, LazyMapping
from ait_llm.dumps.operations import Facts, Operation
from ait_llm.dumps.tensors import Identity, Tensor
from ait_llm.dumps.torch_tables import read_identities, read_rounding

# JSON text whose decoded form is kept for calls that are looked at again soon. Decoded it takes
# about ten times as much.
_MODULE = "Module."
_KEPT_BYTES = 4 << 20


@dataclass(slots=True)
class _Record:
    """A decoded record, and its leaves and tensors once they were asked for."""

    length: int
    decoded: Any
    values: tuple[ApiValue, ...] | None = None
    tensors: tuple[Tensor, ...] | None = None


class ApiFile:
    """One ``dump.json`` or ``debug.json`` with what lies beside it."""

    def __init__(self, place: ApiPlace, root: Path) -> None:
        self.place = place
        self.root = root
        self._kept: OrderedDict[int, _Record] = OrderedDict()
        self._kept_bytes = 0

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """What the file says about the capture: task, level, framework, dump_data_dir.

        Raises:
            FormatError: the file is not a dump.
        """
        found: dict[str, Any] = {}
        try:
            for member in read_members(self.place.path, ("data",)):
                if member.parent or member.key == "data":
                    break
                found[member.key] = member.value
        except UnfinishedError:
            pass  # what was read is what there is; the process says that it is not finished
        return found

    @cached_property
    def stacks(self) -> Mapping[str, tuple[str, ...]]:
        """Call stacks by name."""
        return read_stacks(self.place.folder / "stack.json")

    @cached_property
    def positions(self) -> ApiPositions:
        """Places of the calls in the tree of modules."""
        return ApiPositions(self.construct)

    @cached_property
    def construct(self) -> Mapping[str, str | None]:
        """The call in which each call was made."""
        return read_construct(self.place.folder / "construct.json")

    def records(self) -> Iterator[Member]:
        """Records in the order of the file, see :func:`read_records`; the last ones are kept.

        Raises:
            FormatError: the file is malformed; line and column are named.
            UnfinishedError: it breaks off, after the records that are whole.
        """
        for member in read_records(self.place.path):
            self._keep(member.offset, _Record(member.length, member.value))
            yield member

    def values(self, name: str, offset: int, length: int) -> tuple[ApiValue, ...]:
        """The leaves of a record; it is read again if that of the last calls is not kept."""
        record = self._kept.get(offset)
        if record is None:
            record = _Record(length, read_value(self.place.path, offset, length))
            self._keep(offset, record)
        if record.values is None:
            place = self.place
            record.values = tuple(values_of(name, record.decoded, place.data_folder, place.path))
        return record.values

    def tensors(self, name: str, offset: int, length: int) -> tuple[Tensor, ...]:
        """The inputs, then the outputs of a record that are tensors."""
        values = self.values(name, offset, length)
        record = self._kept[offset]
        if record.tensors is None:
            record.tensors = tensors_of(values, self.root, partial(_tensor, self._identities(name)))
        return record.tensors

    def rounding(self, name: str) -> float:
        """What keeping weights of a module in few bits has cost them; from our own captures."""
        entry = None if self._account is None else self._account.entry(self.place, name)
        return 0.0 if entry is None else read_rounding(entry.line)

    def _identities(self, name: str) -> Mapping[str, Identity]:
        """Which values the tensors of a record are, by their labels; from our own captures."""
        entry = None if self._account is None else self._account.entry(self.place, name)
        return {} if entry is None else read_identities(entry.line)

    @cached_property
    def _account(self) -> ApiLedger | None:
        return find_ledger(self.place)

    def _keep(self, offset: int, record: _Record) -> None:
        replaced = self._kept.pop(offset, None)
        self._kept[offset] = record
        self._kept_bytes += record.length - (replaced.length if replaced is not None else 0)
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].length


def _tensor(identities: Mapping[str, Identity], value: ApiValue, index: int, root: Path) -> Tensor:
    return tensor_of(value, index, root, identity=identities.get(value.label))


def tensors_of(
    values: Sequence[ApiValue], root: Path, make: Callable[..., Tensor] = tensor_of
) -> tuple[Tensor, ...]:
    """The tensors among the leaves of a record: inputs, then outputs.

    Args:
        values: in the order of the record.
        root: folder of the dump.
        make: makes a tensor of a value, its position and the folder.
    """
    found = [value for value in values if value.is_tensor]
    inputs = [value for value in found if value.role == "in"]
    outputs = [value for value in found if value.role == "out"]
    return tuple(make(each, at, root) for side in (inputs, outputs) for at, each in enumerate(side))


@dataclass(frozen=True, slots=True)
class ApiCall(Facts):
    """One record of an API dump, with what only API captures know of a call.

    Attributes:
        name: as recorded: ``Functional.linear.0.forward``.
        parsed: the name in its parts.
        op_id: place in the tree of modules where the capture knows it, else place in the file.
        step: which step.
        device: number of the rank, -1 where the folder names a process instead.
        pid: process id, 0 where the folder names a rank.
        is_graph: True for a module in which other calls were made.
    """

    name: str
    parsed: ApiName
    op_id: OpId
    step: int
    device: int
    pid: int
    is_graph: bool
    _file: ApiFile = field(repr=False, compare=False)
    _offset: int = field(repr=False, compare=False)
    _length: int = field(repr=False, compare=False)

    @property
    def type(self) -> str:
        """Name of the function or class: ``linear``, ``RMSNorm``."""
        return self.parsed.type

    @property
    def api_name(self) -> str:
        """Name without number and direction: ``Functional.linear``, ``Module.norm.RMSNorm``."""
        return self.parsed.api

    @property
    def call(self) -> int:
        """Which call of this function or module within the step, from 0."""
        return self.parsed.call

    @property
    def direction(self) -> str:
        """``forward``, ``backward``, ``parameters_grad`` or ``debug``."""
        return self.parsed.direction

    @property
    def level(self) -> str:
        """Level of the capture: ``L0``, ``L1``, ``mix``, ``debug``; "" if it does not say."""
        return str(self._file.header.get("level") or "")

    @property
    def rank(self) -> int:
        """Number of the rank, -1 where the folder names a process instead."""
        return self._file.place.rank

    @property
    def stack(self) -> tuple[str, ...] | None:
        """The frames that led to the call, innermost first; None if none were recorded.

        Raises:
            FormatError: ``stack.json`` is damaged.
        """
        return self._file.stacks.get(self.name)

    @property
    def parent(self) -> str | None:
        """Name of the module call in which it was made; None at the top or where unknown.

        Raises:
            FormatError: ``construct.json`` is damaged.
        """
        return self._file.construct.get(self.name)

    @property
    def scope(self) -> tuple[str, ...]:
        """Names of the module calls around it, the outermost first."""
        return self._file.positions.scope(self.name)

    @property
    def path(self) -> Path:
        """The file that holds the record."""
        return self._file.place.path

    @property
    def values(self) -> tuple[ApiValue, ...]:
        """All leaves in the order of the tables: inputs, keyword arguments, parameters, outputs.

        Raises:
            FormatError: the record is damaged, or the file has changed since it was opened.
        """
        return self._file.values(self.name, self._offset, self._length)

    def operation(self) -> Operation:
        """The call as an operation; its tensors are read when they are looked at."""
        place = self._offset, self._length
        return Operation(
            self.name,
            self.op_id,
            self.type,
            self.step,
            self.call,
            self.device,
            self.pid,
            self.rank,
            is_graph=self.is_graph,
            location=str(self.path),
            tensors=Lazy(partial(self._file.tensors, self.name, *place), keep=False),
            params=LazyMapping(self._params),
            rounding=self._file.rounding(self.name) if self.name.startswith(_MODULE) else 0.0,
            api_name=self.api_name,
            facts=self,
        )

    def _params(self) -> Mapping[str, Any]:
        """Values that are no tensors, by place: ``{"input.1": 3, "input.dtype": "torch.half"}``."""
        return {
            value.label: value.value
            for value in self.values
            if value.type is not None and not value.is_tensor
        }
