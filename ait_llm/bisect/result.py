"""What a bisection found, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ait_llm.bisect.repeating import Unrepeated
from ait_llm.core.comparison import Origin
from ait_llm.errors import PROGRAM_FAILED, IncompleteError
from ait_llm.match.model import SideName
from ait_llm.schemas import identity

Status = Literal["equal", "found", "undecided", "unrepeatable", "failed", "interrupted"]
_CODES: Mapping[Status, int] = {
    "equal": 0,
    "found": 1,
    "undecided": IncompleteError.exit_code,
    "unrepeatable": 5,
    "failed": PROGRAM_FAILED,
    "interrupted": 130,
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a program.

    Attributes:
        number: counted from 1.
        side: which program.
        what: what it captures, in a few words.
        options: the same as options of ``ait llm dump``.
        planned: bytes that it was expected to write; None for the first of its kind.
        written: bytes that it wrote; None before it ran.
        exit_code: how it ended; None before it ran.
    """

    number: int
    side: SideName
    what: str
    options: str
    planned: int | None
    written: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The end of a bisection.

    Attributes:
        status: ``equal`` (no difference beyond rounding), ``found``, ``undecided``,
            ``unrepeatable`` (a program differs from itself), ``failed`` (a program failed) or
            ``interrupted``.
        folder: where the dumps are.
        runs: of the programs, in order.
        origin: the operation that is blamed, also where that is not certain.
        unrepeated: what differs between two runs of one program.
        side: the program that failed or does not repeat itself; empty for neither.
        program_code: exit code of the program that failed.
        limit: bytes that all runs together were allowed; None if no run could be planned.
        full: bytes that full dumps of both programs would take; None if not known.
        module: in whose code the origin is, where operators were looked at.
        operators: folders of golden's operators and mine, where both were captured.
        compared: how many pairs of tensors the last comparison compared.
        notes: sentences about what is missing or not certain.
    """

    status: Status
    folder: Path
    runs: Sequence[RunRecord]
    origin: Origin | None = None
    unrepeated: Unrepeated | None = None
    side: str = ""
    program_code: int = 0
    limit: int | None = None
    full: int | None = None
    module: str = ""
    operators: tuple[Path, Path] | None = None
    compared: int = 0
    notes: Sequence[str] = ()

    @property
    def written(self) -> int:
        """Bytes that all runs wrote."""
        return sum(run.written or 0 for run in self.runs)

    @property
    def share(self) -> float | None:
        """``written`` in proportion to full dumps of both programs; None if not known."""
        return self.written / self.full if self.full else None

    @property
    def exit_code(self) -> int:
        """0 equal, 1 an operation is named, 3 undecided, 5 unrepeatable, 6 a program failed.

        No two outcomes share a code: a program may itself end with any. Ctrl-C reaches the program
        that runs, and ends the search like any command.
        """
        if self.status == "failed" and self.program_code == _CODES["interrupted"]:
            return _CODES["interrupted"]
        return _CODES[self.status]

    def as_dict(self) -> dict[str, Any]:
        """The result in JSON types."""
        return {
            **identity("bisect"),
            "status": self.status,
            "exit_code": self.exit_code,
            "folder": str(self.folder),
            "origin": None if self.origin is None else asdict(self.origin),
            "module": self.module,
            "unrepeated": None if self.unrepeated is None else asdict(self.unrepeated),
            "side": self.side,
            "program_code": self.program_code,
            "runs": [asdict(run) for run in self.runs],
            "bytes": {
                "written": self.written,
                "limit": self.limit,
                "full_dumps": self.full,
                "share": self.share,
            },
            "compared": self.compared,
            "notes": list(self.notes),
        }
