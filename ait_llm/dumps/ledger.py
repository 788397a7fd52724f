"""The ledger of one traced process: what was captured, what was lost, and whether it finished.

One JSON object per line: a header, one line per operation and phase, and a seal (docs/formats.md).
A process that was killed leaves no seal and perhaps half a line; both are normal here.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from ait_llm.core import OpId, whole_number
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.opening import open_regular

SCHEMA = 1
WEIGHTS = "weights"  # type of the entry about the parameters and buffers of a model
EntryState = Literal["saved", "described", "empty", "failed", "dropped"]
_MAX_LINE_BYTES = 1 << 20
_ENGINE = ("request", "schedule", "sampled")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One phase of one executed operation or kernel.

    Attributes:
        op: its id, or the dotted path of a torch module, or the name of an FX node.
        op_id: the id; None where there is a name.
        type: its type.
        path: its folder below ``tensors``.
        phase: ``before`` or ``after``.
        step: execution count.
        state: what became of its tensors.
        tensors: tensors written.
        bytes: bytes of data written.
        lost: tensors not written.
        reason: why, for ``failed`` and ``dropped``.
        cut: the process ended here, perhaps in the middle of it.
        line: the whole line, with what only one producer writes.
    """

    op: str
    op_id: OpId | None
    type: str
    path: str
    phase: str
    step: int
    state: EntryState
    tensors: int
    bytes: int
    lost: int
    reason: str
    cut: bool = False
    line: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Seal:
    """The last line of a ledger.

    Attributes:
        end: how the process ended: ``exit``, ``_exit``, ``exec`` or ``signal N``; or what it had
            just completed: ``stop``, ``step``.
        totals: all fields of the line.
    """

    end: str
    totals: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger, read through once; the entries themselves are streamed again when asked for.

    Attributes:
        path: the file.
        header: the (last) header line.
        seal: the seal, or None if the process, or any earlier part of it, has none.
        counts: number of entries by state.
        last: the last entry.
        losses: entries that failed or were dropped.
        incidents: what else went wrong, as clauses: other files that could not be written, lines
            of the ledger that were lost, an output directory that was removed.
        order: rank of each top-level execution ``(step, id)`` by its first entry.
        torn: True if the last line was cut off and left out.
        moves: new names of folders that were renamed, by the names that entries have.
        follow: lines that say how the run took the tokens of another one.
        engine: lines in which an engine says what its passes compute.
        weights: entries about parameters and buffers.
        assistants: names of models that only propose tokens to another one.
        choosing: settings by which tokens were chosen from logits, of each generation.
    """

    path: Path
    header: Mapping[str, Any]
    seal: Seal | None
    counts: Mapping[str, int]
    last: LedgerEntry | None
    losses: tuple[LedgerEntry, ...]
    incidents: tuple[str, ...]
    order: Mapping[tuple[int, int], int]
    torn: bool
    moves: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    follow: tuple[Mapping[str, Any], ...] = ()
    beams: tuple[Mapping[str, Any], ...] = ()
    engine: tuple[Mapping[str, Any], ...] = ()
    weights: tuple[LedgerEntry, ...] = ()
    assistants: tuple[str, ...] = ()
    choosing: tuple[Mapping[str, str], ...] = ()

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries in the order of execution.

        Raises:
            FormatError: a line other than the last is damaged.
        """
        for number, line in _lines(self.path):
            if line is not None and line.get("kind") == "op":
                yield _entry(self.path, number, line, _names_operations(self.header))


def killed_by(end: str | None) -> int | None:
    """The signal that cut a process off, of a seal's ``end``; None where none did.

    Whoever stops a program with SIGINT, SIGTERM or SIGHUP knows that it has not come to its end.
    """
    name, _, digits = (end or "").partition(" ")
    number = whole_number(digits) if name == "signal" else None
    return None if number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) else number


def read_ledger(path: Path) -> Ledger:
    """Read and check a ledger.

    Raises:
        FormatError: it is not a ledger, is of a newer schema, or a line other than the last is
            damaged.
    """
    header: Mapping[str, Any] | None = None
    seal: Seal | None = None
    unsealed_before = False
    counts: Counter[str] = Counter()
    last: LedgerEntry | None = None
    losses: list[LedgerEntry] = []
    incidents: list[str] = []
    order: dict[tuple[int, int], int] = {}
    torn = False
    moves: dict[str, str] = {}
    follow: list[Mapping[str, Any]] = []
    beams: list[Mapping[str, Any]] = []
    engine: list[Mapping[str, Any]] = []
    assistants: list[str] = []
    choosing: list[Mapping[str, str]] = []
    weights: list[LedgerEntry] = []
    for number, line in _lines(path):
        if line is None:
            torn = True
            break
        kind = line.get("kind")
        if kind == "header":
            # a program that replaced itself (exec) continues the ledger of its process
            unsealed_before = unsealed_before or (header is not None and seal is None)
            header, seal = _checked_header(path, number, line), None
        elif header is None:
            raise FormatError(path, "is not a ledger, its first line is not a header")
        elif kind == "op":
            last = _entry(path, number, line, _names_operations(header))
            counts[last.state] += 1
            if last.op_id is not None:
                order.setdefault((last.step, last.op_id.parts[0]), len(order))
            if last.state in ("failed", "dropped"):
                losses.append(last)
            if last.type == WEIGHTS:
                weights.append(last)
            seal = None
        elif kind == "seal":
            seal = Seal(_text(path, number, line, "end"), MappingProxyType(line))
            given_up = _count(path, number, line, "dropped", default=0) - counts["dropped"]
            if given_up > 0:
                incidents.append(f"the capture gave up {given_up} operations")
        elif kind == "moved":
            moves[_text(path, number, line, "from")] = _text(path, number, line, "to")
        elif kind == "follow":
            follow.append(MappingProxyType(line))
        elif kind == "beams":
            beams.append(MappingProxyType(line))
        elif kind == "generation":
            settings = line.get("settings")
            if isinstance(settings, dict):
                choosing.append(MappingProxyType({str(k): str(v) for k, v in settings.items()}))
        elif kind == "assistant":
            assistants.append(_text(path, number, line, "root"))
        elif kind in _ENGINE:
            engine.append(MappingProxyType(line))
            seal = None if kind == "schedule" else seal
        else:
            incidents += _incident(path, number, line)
    if header is None:
        if not torn:
            raise FormatError(path, "is an empty ledger")
        header = MappingProxyType({})
    return Ledger(
        path,
        header,
        None if unsealed_before or torn else seal,
        MappingProxyType(counts),
        last,
        tuple(losses),
        tuple(incidents),
        MappingProxyType(order),
        torn,
        MappingProxyType(moves),
        tuple(follow),
        tuple(beams),
        tuple(engine),
        tuple(weights),
        tuple(assistants),
        tuple(choosing),
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Line numbers and parsed lines; None for a last line that was cut off."""
    with open_regular(path) as file:
        number = 0
        while raw := file.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > _MAX_LINE_BYTES:
                raise FormatError(path, f"line {number} is longer than {_MAX_LINE_BYTES} bytes")
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                line = None
            if isinstance(line, dict) and raw.endswith(b"\n"):
                yield number, line
            elif file.read(1):
                raise FormatError(path, f"line {number} is damaged")
            else:
                yield number, None


def _checked_header(path: Path, number: int, line: dict[str, Any]) -> Mapping[str, Any]:
    schema = _count(path, number, line, "schema")
    if schema > SCHEMA:
        raise FormatError(
            path, f"has schema {schema}, this version reads {SCHEMA}", "Update ait-llm"
        )
    return MappingProxyType(line)


def _names_operations(header: Mapping[str, Any]) -> bool:
    """True if entries have the names of modules or nodes in place of ids."""
    return header.get("producer") in ("torch", "fx", "api", "ptdbg")


def _entry(path: Path, number: int, line: dict[str, Any], named: bool) -> LedgerEntry:
    state = _text(path, number, line, "state")
    if state not in get_args(EntryState):
        raise FormatError(path, f"line {number} has the unknown state {state!r}")
    op = _text(path, number, line, "op")
    try:
        op_id = None if named else OpId.parse(op)
    except UsageError as error:
        raise FormatError(path, f"line {number}: {error}") from None
    return LedgerEntry(
        op=op,
        op_id=op_id,
        type=_text(path, number, line, "type"),
        path=_text(path, number, line, "path"),
        phase=_text(path, number, line, "phase", default="after" if named else None),
        step=_count(path, number, line, "step"),
        state=state,  # type: ignore[arg-type]  # checked against the literal above
        tensors=_count(path, number, line, "tensors", default=0),
        bytes=_count(path, number, line, "bytes", default=0),
        lost=_count(path, number, line, "lost", default=0),
        reason=_text(path, number, line, "reason", default=""),
        cut=line.get("cut") is True,
        line=MappingProxyType(line),
    )


def _incident(path: Path, number: int, line: dict[str, Any]) -> list[str]:
    """What a line of another kind says went wrong; nothing for kinds of later versions."""
    match line.get("kind"):
        case "file":
            file = _text(path, number, line, "path")
            reason = _text(path, number, line, "reason", default="unknown reason")
            return [f"{file} could not be written: {reason}"]
        case "lost":
            return [f"{_count(path, number, line, 'lines')} lines of the ledger were lost"]
        case "removed":
            return ["the output directory was removed while capturing; what it held is lost"]
    return []


def _text(
    path: Path, number: int, line: dict[str, Any], key: str, default: str | None = None
) -> str:
    value = line.get(key, default)
    if not isinstance(value, str):
        raise FormatError(path, f"line {number} has no text {key!r}")
    return value


def _count(
    path: Path, number: int, line: dict[str, Any], key: str, default: int | None = None
) -> int:
    value = line.get(key, default)
    if type(value) is not int or value < 0:
        raise FormatError(path, f"line {number} has no count {key!r}")
    return value
