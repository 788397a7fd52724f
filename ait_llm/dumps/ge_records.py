"""What one dump file of the graph engine holds, and the table of statistics beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ait_llm.dumps.ge_tables import Recorded, read_statistics
from ait_llm.dumps.ge_tensors import GeStored, original_op
from ait_llm.dumps.lazy import NOTHING
from ait_llm.dumps.operations import Facts
from ait_llm.dumps.tensors import Phase, Role, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats.ge_file import GeFile, read_ge
from ait_llm.formats.opening import contained_file


class GeRecord(Facts):
    """The files of one execution of one operator; the header is read once.

    Args:
        file: path of the dump file; None if there are only statistics.
        table: path of the table of statistics; None without one.
        root: folder that files must not leave.
    """

    __slots__ = ("_file", "_read", "_root", "_table")

    def __init__(self, file: str | None, table: str | None, root: Path) -> None:
        self._file = file
        self._table = table
        self._root = root
        self._read: GeFile | FormatError | None = None

    @property
    def full_name(self) -> str:
        """Name of the operator in the header; empty if the header has none."""
        header = self._header()
        return header.description.op_name if isinstance(header, GeFile) else ""

    def params(self) -> Mapping[str, str]:
        """Attributes in the header, as text; empty if the file cannot be read."""
        header = self._header()
        return header.description.attributes if isinstance(header, GeFile) else NOTHING

    def tensors(self) -> list[Tensor]:
        """Inputs, then outputs. A file that cannot be read has one output, which says why."""
        rows: tuple[Recorded, ...] = ()
        header = self._header()
        failure = header if isinstance(header, FormatError) else None
        if self._table is not None:
            try:
                rows = read_statistics(Path(contained_file(self._table, self._root)))
            except FormatError as error:
                failure = failure or (error if header is None else None)
        file = self._file or self._table or ""
        if isinstance(header, GeFile):
            by_place = {(row.role, row.index): row for row in rows}
            found = []
            for stored in header.tensors:
                place = stored.described.role, stored.described.index
                source = GeStored(header, stored, by_place.get(place))
                found.append(_tensor(*place, file, source, original_op(stored)))
            return found
        if failure is not None and not rows:
            return [_tensor("out", 0, file, GeStored(None, None, failure=failure))]
        table = self._table or file
        return [
            _tensor(row.role, row.index, table, GeStored(None, None, row, failure)) for row in rows
        ]

    def _header(self) -> GeFile | FormatError | None:
        """The header, or why it cannot be read; None if there is only a table."""
        if self._file is not None and self._read is None:
            try:
                self._read = read_ge(contained_file(self._file, self._root))
            except FormatError as error:
                self._read = error
        return self._read


def _tensor(
    role: Role, index: int, file: str, source: GeStored, made: tuple[str, int] | None = None
) -> Tensor:
    """A tensor; inputs are taken before the operator runs, outputs after it."""
    phase: Phase = "before" if role == "in" else "after"
    return Tensor(role, index, file, "", source, phase, original_op=made)
