"""Dumps of API calls and modules in the format of msprobe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.dumps.api_json import UnfinishedError, read_members
from ait_llm.dumps.api_ledger import find_ledger
from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.api_place import ApiPlace
from ait_llm.dumps.api_records import ApiCall, ApiFile
from ait_llm.dumps.model import Dump, Loss, Operation, Process, Traits
from ait_llm.formats.opening import open_regular

_TAIL_BYTES = 4096
_DATA_NAME = re.compile(rb'"data_name"\s*:\s*"([^"\\]{1,4096})"')
_BLOCK = 1 << 22


class ApiDump(Dump):
    """A dump of API calls; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "api"
    traits = Traits(named=True, finished=True, own_code=True)

    def __init__(self, root: Path, places: list[ApiPlace]) -> None:
        self._root = root
        self._files = [ApiFile(place, root) for place in places]

    @property
    def root(self) -> Path:
        """The folder that was opened, or that of the file that was."""
        return self._root

    @property
    def files(self) -> tuple[ApiFile, ...]:
        """The JSON files, by rank, then step."""
        return tuple(self._files)

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By rank (as device), then process id.

        The ledger says what was lost and whether a process finished, where there is one. What a
        file names as saved and the folder does not have is lost; a file that breaks off belongs to
        a process that was killed.

        Raises:
            FormatError: a file cannot be read.
        """
        found: dict[tuple[int, int], list[ApiFile]] = {}
        for file in self._files:
            found.setdefault((file.place.rank, file.place.pid), []).append(file)
        return tuple(_process(rank, pid, files) for (rank, pid), files in found.items())

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of all ranks, ascending."""
        return tuple(sorted({file.place.step for file in self._files}))

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """See :meth:`calls`."""
        for call in self.calls(device=device, pid=pid, step=step):
            yield call.operation()

    def calls(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[ApiCall]:
        """Records in the order of the files: functions when called, modules when they finished.

        Sorted by ``op_id`` they stand in the order in which they began. Records behind which a file
        breaks off are all there is; ``processes`` tells of it.

        Raises:
            FormatError: a file is malformed; line and column are named.
        """
        for file in self._files:
            place = file.place
            wanted = (device, place.rank), (pid, place.pid), (step, place.step)
            if all(asked in (None, found) for asked, found in wanted):
                yield from _calls(file)

    def forget(self) -> None:
        """Let go of what was read; calls handed out stay usable."""
        self._files = [ApiFile(file.place, self._root) for file in self._files]


def _calls(file: ApiFile) -> Iterator[ApiCall]:
    place = file.place
    positions = file.positions if file.construct else None
    try:
        for number, member in enumerate(file.records()):
            yield ApiCall(
                name=member.key,
                parsed=parse_name(member.key),
                op_id=positions.of(member.key) if positions is not None else OpId((number,)),
                step=place.step,
                device=place.rank,
                pid=place.pid,
                is_graph=positions is not None and member.key in positions.parents,
                _file=file,
                _offset=member.offset,
                _length=member.length,
            )
    except UnfinishedError:
        return


def _process(rank: int, pid: int, files: list[ApiFile]) -> Process:
    accounts = [find_ledger(file.place) for file in files]
    losses: list[Loss] = []
    for file, account in zip(files, accounts, strict=True):
        if account is not None:
            losses += account.losses(file.place)
        told = {loss.op for loss in losses if loss.step == file.place.step}
        losses += (loss for loss in _missing(file) if told.isdisjoint(_beginnings(loss.op)))
    ledgers = [account.ledger for account in accounts if account is not None]
    unsealed = [ledger for ledger in ledgers if ledger.seal is None]
    return Process(
        device=rank,
        pid=pid,
        steps=tuple(sorted({file.place.step for file in files})),
        ledger=next(iter(unsealed or ledgers), None),
        losses=tuple(losses),
        remarks=tuple(remark for file in files for remark in _broken_off(file)),
    )


def _beginnings(item: str) -> Iterator[str]:
    """``Torch.relu.0.forward.input.0`` without its last parts: one of them is the record's name."""
    while item:
        yield item
        item = item.rpartition(".")[0]


def _missing(file: ApiFile) -> Iterator[Loss]:
    """Tensor files that are named and not there; names are searched, nothing is decoded."""
    if not file.header.get("dump_data_dir"):
        return
    folder = file.place.data_folder
    present = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    for name in _data_names(file.place.path):
        if name not in present:
            yield Loss(
                op=name.rpartition(".")[0],
                type="tensor",
                step=file.place.step,
                phase="",
                state="missing",
                tensors=1,
                reason=f"{folder.name} does not have the file that {file.place.path.name} names",
            )


def _data_names(path: Path) -> Iterator[str]:
    with open_regular(path) as source:
        rest = b""
        while block := source.read(_BLOCK):
            text = rest + block
            end = 0
            for match in _DATA_NAME.finditer(text):
                yield match[1].decode("utf-8", "replace")
                end = match.end()
            rest = text[max(end, len(text) - 2 * _TAIL_BYTES) :]


def _broken_off(file: ApiFile) -> Iterator[str]:
    """Whether a file ends before its outermost object does."""
    path = file.place.path
    with open_regular(path) as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        is_indented = source.read(_TAIL_BYTES).lstrip()[1:2] in (b"\n", b"\r")
        source.seek(max(0, size - _TAIL_BYTES))
        end = source.read().rstrip()
    # in an indented file only the outermost brace stands at the beginning of a line
    if not (end.endswith(b"\n}") if is_indented else end.endswith(b"}}") and _is_whole(path)):
        yield f"{path.name} of step {file.place.step} breaks off, calls at its end are missing"


def _is_whole(path: Path) -> bool:
    try:
        for _ in read_members(path, ("data",)):
            pass
    except UnfinishedError:
        return False
    return True
