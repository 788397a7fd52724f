"""What ``ait llm bisect`` says, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ait_llm.bisect import BisectResult, RunRecord
from ait_llm.cli.numbers import counted, human_bytes
from ait_llm.compare.origin_finding import OTHER_DEFINITION, OTHER_INPUT, OTHER_WEIGHT, OWN_CODE

_WIDTH = 100
_OPERATOR = "the operator where they part is found"
_FOUND = {
    OTHER_WEIGHT: "the weight in which they differ is found",
    OTHER_DEFINITION: "the definition in which they differ is found",
    OTHER_INPUT: "the input in which they differ is found",
    OWN_CODE: "the code where they part is found",
}


def run_line(record: RunRecord) -> str:
    """A line of the plan before a run, and of its cost after it."""
    if record.written is None:
        size = "size not known yet" if record.planned is None else _about(record.planned)
        return (
            f"run {record.number}  {record.side}: {record.what} ({size})\n"
            f"       {_shortened(record.options)}"
        )
    end = "" if not record.exit_code else f"; the program ended with exit code {record.exit_code}"
    return f"       wrote {human_bytes(record.written)}{end}"


def result_lines(result: BisectResult, *, cleaned: bool) -> Iterator[str]:
    """The verdict, how it was found, and what it cost."""
    yield f"ait llm bisect: {_verdict(result)}"
    origin = result.origin
    if origin is not None:
        where = f"{origin.op} (step {origin.step})"
        if origin.op_id and origin.op_type and not origin.op.startswith("root"):
            where = f"{origin.op} (id {origin.op_id}, token {origin.step})"
        elif origin.op_type:
            where = f"{origin.op} ({origin.op_type}, token {origin.step})"
        label = "operator" if result.status == "found" else "suspect"
        yield f"  {label:10}{where}"
        if result.module and result.module != origin.op:
            yield f"  {'module':10}{result.module}"
        if origin.evidence:
            yield from _wrapped("evidence", origin.evidence)
        if origin.golden_op:
            yield f"  golden    {origin.golden_op}"
        if not origin.certain and origin.candidates:
            others = ", ".join(origin.candidates[:5])
            more = len(origin.candidates) - 5
            yield f"  or at     {others}" + (f" and {more} more" if more > 0 else "")
    if result.unrepeated is not None:
        yield from _wrapped("where", result.unrepeated.sentence())
    runs = counted(len(result.runs), "run")
    share = "" if result.share is None else f", {_percent(result.share)} % of "
    full = "" if result.full is None else f"{human_bytes(result.full)} that full dumps would take"
    yield f"  wrote     {human_bytes(result.written)} in {runs}{share}{full}"
    if result.limit is not None:
        yield f"  budget    {human_bytes(result.limit)}"
    for note in result.notes:
        yield from _wrapped("note", note)
    if cleaned:
        yield "  dumps     removed"
    else:
        yield f"  dumps     {result.folder}"
        if following := next_step(result):
            yield f"  next      {following}"


def next_step(result: BisectResult) -> str | None:
    """The command that compares the captures of the last runs; None where there are none."""
    if result.status not in ("found", "undecided", "equal") or not result.compared:
        return None
    golden, mine = result.operators or (result.folder / "golden", result.folder / "mine")
    return f"ait llm compare -gp {golden} -mp {mine}"


def _verdict(result: BisectResult) -> str:
    side = "golden" if result.side == "golden" else "suspicious"
    return {
        "equal": f"no difference beyond rounding in {counted(result.compared, 'pair')} of tensors",
        "found": _FOUND.get(result.origin.kind if result.origin else "", _OPERATOR),
        "undecided": "the operator could not be told",
        "unrepeatable": f"the {side} program does not repeat itself",
        "failed": f"the {side} program failed with exit code {result.program_code}",
        "interrupted": "interrupted",
    }[result.status]


def _wrapped(label: str, text: str) -> list[str]:
    """A labelled text, continued below its start."""
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {label:10}", subsequent_indent=" " * 12)


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2g}" if percent < 100 else f"{percent:.0f}"


def _about(count: int) -> str:
    return f"about {human_bytes(count)}"


def _shortened(text: str, width: int = 160) -> str:
    return text if len(text) <= width else f"{text[: width - 4]} ..."
