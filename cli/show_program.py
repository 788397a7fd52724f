"""``ait llm show --program``: the passes of a dump as the matcher sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ait_llm.cli.machine import json_line
from ait_llm.dumps import Dump, Process
from ait_llm.errors import UsageError
from ait_llm.program.adapters import program_of
from ait_llm.program.compiled import CompiledProcess
from ait_llm.program.ge.graph import Unfused
from ait_llm.program.listing import Listing, OperationRow, PassRow, ValueRow
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.program.program import Program

_NAME, _TEXT, _READERS, _DIMS = 46, 88, 3, 8
_SHORT = {"float": "fp32", "float16": "fp16", "bfloat16": "bf16", "double": "fp64"}


def program_lines(dump: Dump, *, step: int | None, every: bool, as_json: bool) -> Iterator[str]:
    """The text of the command.

    Args:
        dump: what is shown.
        step: only this pass of each process.
        every: show layers that are like another one, too.
        as_json: a JSON object per line, a pass before its operations; with every layer.

    Raises:
        UsageError: there is no such pass.
        FormatError: a ledger or folder cannot be read.
    """
    steps: set[int] = set()
    if not as_json:
        yield f"{dump.root}: dump of kind {dump.kind}"
    for process in dump.processes:
        for run in _passes(dump, process):
            steps.add(run.step)
            if step is not None and run.step != step:
                continue
            listing = Listing(program_of(run) or Program(run))
            head, rows = listing.head(), list(listing.operations())
            if as_json:
                yield from _json_lines(head, rows)
            else:
                yield from _head(head)
                yield from _operations(rows, {} if every else listing.alike(rows), listing)
    if step is not None and step not in steps:
        known = ", ".join(map(str, sorted(steps))) or "none"
        raise UsageError(f"{dump.root} has no forward pass {step}; it has {known}")


def _passes(dump: Dump, process: Process) -> list[Pass]:
    if dump.traits.compiled:
        return CompiledProcess(dump, process, Unfused.of(dump)).passes
    return passes_of(dump, process)


def _json_lines(head: PassRow, rows: Sequence[OperationRow]) -> Iterator[str]:
    yield json_line("show-pass", {"pass": head.step, **asdict(head)})
    for row in rows:
        yield json_line(
            "show-operation", {"pass": head.step, "process": head.process, **asdict(row)}
        )


def _head(head: PassRow) -> Iterator[str]:
    model = f" of {head.model}" if head.model else ""
    yield ""
    yield (
        f"pass {head.step}{model} of process {head.process}: {head.operations} operations, "
        f"{head.values} values"
    )
    if head.batch:
        padding = f", {len(head.padding)} of them padding" if head.padding else ""
        yield f"  rows      {head.batch} requests x {head.seq} positions{padding}"
    elif head.seq:
        spans = ", ".join(f"{a}-{b}" for a, b in head.requests[:_DIMS])
        more = ", ..." if len(head.requests) > _DIMS else ""
        known = f"; requests in rows {spans}{more}" if spans else ""
        yield f"  rows      {head.seq}, packed{known}"
    for stack in head.layers:
        yield f"  layers    {len(stack)}"


def _operations(
    rows: Sequence[OperationRow], alike: Mapping[int, Sequence[int]], listing: Listing
) -> Iterator[str]:
    hidden: set[int] = set()
    for layers in alike.values():
        for layer in layers[1:]:
            hidden |= listing.within(layer)
    yield f"  {'operation':<{_NAME}}  {'role':<20}  definition"
    for row in rows:
        if row.number in hidden:
            continue
        times = len(alike.get(row.number, ()))
        yield from _operation(row, rows, times)


def _operation(row: OperationRow, rows: Sequence[OperationRow], times: int) -> Iterator[str]:
    name = "  " * row.depth + _relative(row, rows)
    if times > 1:
        name += f"  x{times}"
    text = _cut(_definition(row.definition), _TEXT)
    yield f"  {name:<{_NAME}}  {row.role:<20}  {text}".rstrip()
    indent = "  " * (row.depth + 2)
    for word, values in (("in ", row.inputs), ("out", row.outputs)):
        for value in values:
            yield f"{indent}{word} {_value(value, word, rows)}".rstrip()


def _value(value: ValueRow, word: str, rows: Sequence[OperationRow]) -> str:
    number = f"v{value.value}" if value.value >= 0 else "-"
    shape = "?" if value.shape is None else ",".join(map(str, value.shape))
    where = f" {value.rows}" if value.rows else ""
    text = f"{number:<6}{value.tensor}  {_SHORT.get(value.dtype, value.dtype)}[{shape}]{where}"
    if word == "in ":
        if value.writer is not None:
            text += f"  of {_short(rows[value.writer].name)}"
        return text
    names = [_short(rows[each].name) for each in value.readers[:_READERS]]
    more = len(value.readers) - len(names)
    if names:
        text += f"  for {', '.join(names)}" + (f" and {more} more" if more else "")
    return text


def _relative(row: OperationRow, rows: Sequence[OperationRow]) -> str:
    """The name without that of the module around it."""
    around = rows[row.parent].name if row.parent is not None else ""
    name = (
        row.name.removeprefix(around) if around and row.name.startswith(f"{around}.") else row.name
    )
    return f"{name}@{row.call}" if row.call else name


def _short(name: str) -> str:
    """A name without ``root.``."""
    return name.removeprefix("root.")


def _definition(definition: Mapping[str, Any]) -> str:
    """Numbers, flags and names; those that are zero or off come last."""
    known = [(key, value) for key, value in _flat(definition) if value is not None and value != ""]
    known.sort(key=lambda each: not each[1])
    return " ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in known
    )


def _flat(definition: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in definition.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
