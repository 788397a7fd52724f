"""Results of the search for origins on record, and as a page of Markdown."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bugs import KINDS, Outcome, Trial

PAGE = Path(__file__).resolve().parents[2] / "docs" / "origins-results.md"
RECORD = Path(__file__).resolve().with_name("origins.json")
Row = Mapping[str, Any]
FIRST, CERTAIN, NAMED, ALONE = 0.95, 0.005, 0.90, 0.95
_SAID = 260  # characters of what was said about a miss
_HEAD = """# Results of the search for origins

Written by `scripts/bench/origins.py --write`; do not edit it. Bugs are drawn by chance, with their
kind, their program, its type and their place, and put into small models of `transformers` and
litgpt. Each is captured (`modules`, or `operators`, both with weights) and compared with a healthy
run, sometimes of another attention implementation or type, and what
[the search](origins.md) says is held against the truth. `tests/support/bugs` says what the bugs are
and how the truth is known without the tool: operators whose results occur nowhere in a healthy run,
although all that they compute from does.

*Near* bugs are so small that the first wrong value is just within the tolerance of a pair. *First*:
the first origin that is named is right, at the level of the capture. *Among*: it is one of several
candidates. *Unsure*: another is named, as not certain. *Certain*: an innocent is named as certain,
anywhere in the report. *Silent*: no origin is named; what `--deep` says then is looked up. *Named*:
for numbers, weights and inputs that are another, whether the report says which and how. *Alone*:
for wrong operators, whether `ait llm opcheck` finds them in the capture with the bug, without a
healthy run.

Wanted are 95 % first, at most 0.5 % certain, 90 % named and 95 % alone, and silence only where the
error is within what rounding permits: the bound of the wrong operator, or in captures of modules of
the wrong module, one rounding of the type of the first wrong values, or, in what the capture holds,
the error that the type itself leaves (the distance of the healthy program in that type from the
same program in float32, or in float64 where it is in float32, tensor by tensor). Where the error is
less than a usual kernel may make but more than a careful one does, nothing is said unless every
operator is computed again: of such bugs `--deep` has to name the right origin first.
"""


def row_of(trial: Trial) -> Row:
    """What is kept of one bug."""
    bug = trial.bug
    return {
        "number": bug.number,
        "kind": bug.kind.name,
        "nature": bug.kind.nature.value,
        "program": bug.pair.name,
        "dtype": bug.pair.mine.dtype,
        "level": "operators" if bug.pair.operators else "modules",
        "near": bug.near,
        "truth": sorted(bug.truth.names())[:4],
        "outcome": trial.outcome.value,
        "accused": trial.accused,
        "named": trial.named,
        "alone": trial.alone,
        "innocent": trial.innocent,
        "excess": _short(trial.excess),
        "distance": _short(bug.distance),
        "roundings": _short(bug.roundings),
        "visible": _short(trial.visible),
        "deep": None if trial.deep is None else trial.deep.value,
        "said": trial.said[:_SAID],
        "exit": trial.exit_code,
    }


def _short(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value if value is None else float(f"{value:.3g}")
    return "inf"


def publish(seed: int, found: Sequence[Row]) -> None:
    """Put results on record, in the place of those of other seeds, and write the page."""
    known = recorded()
    git = ["git", "-C", str(RECORD.parent), "log", "-1", "--format=%h"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    rows = {row["number"]: row for row in (known["rows"] if known["seed"] == seed else ())}
    rows |= {row["number"]: row for row in found}
    lines = ",\n".join(f"  {json.dumps(rows[number])}" for number in sorted(rows))
    RECORD.write_text(
        f'{{"seed": {seed}, "commit": "{commit}", "rows": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    PAGE.write_text(as_page(recorded()), encoding="utf-8")


def recorded() -> dict[str, Any]:
    """The seed, and the rows by number."""
    if not RECORD.exists():
        return {"seed": 0, "commit": "", "rows": []}
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def as_page(record: Mapping[str, Any]) -> str:
    """The whole page, of what is on record."""
    rows: list[Row] = record["rows"]
    kinds = {row["kind"] for row in rows}
    lines = [
        _HEAD,
        f"{len(rows)} bugs of {len(kinds)} kinds, seed {record['seed']}, on {record['commit']}:",
        "",
    ]
    lines += [f"- {line}" for line in totals(rows)]
    order = {name: place for place, name in enumerate(KINDS)}
    for title, key in (
        ("type", "dtype"),
        ("level", "level"),
        ("size", "near"),
        ("nature", "nature"),
    ):
        lines += ["", f"## By {title}", "", *_table(title, rows, lambda row, key=key: row[key])]
    lines += ["", "## By kind", ""]
    lines += _table("kind", sorted(rows, key=lambda row: order[row["kind"]]), lambda r: r["kind"])
    lines += ["", "## All that is not as wanted", ""]
    lines += [_miss(row) for row in rows if not _is_right(row)]
    return "\n".join(lines) + "\n"


def totals(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each target."""
    named = [row for row in rows if row["named"] is not None]
    alone = [row for row in rows if row["alone"] is not None]
    silent = [row for row in rows if row["outcome"] == Outcome.SILENT.value]
    found = _share([row for row in named if row["named"]], named)
    found_alone = _share([row for row in alone if row["alone"]], alone)
    innocent = sum(row["innocent"] for row in alone)
    hidden = [row for row in silent if is_within(row)]
    beyond = [row for row in rows if row not in hidden]
    yield f"origin right first time: {_share(_first(rows), rows)}, wanted 95 %"
    yield f"of those beyond what rounding permits: {_share(_first(rows), beyond)}"
    yield f"an innocent named as certain: {_share(_accused(rows), rows)}, wanted at most 0.5 %"
    yield f"number, weight or input named: {found}, wanted 90 %"
    yield f"wrong operators found without golden: {found_alone}, wanted 95 %"
    yield f"innocent operators that the check without golden accuses: {innocent}, wanted none"
    deep = [row for row in silent if not is_within(row) and _is_found_deeply(row)]
    within = f"{len(hidden)} of these within what rounding permits"
    within += f", {len(deep)} others found first with --deep"
    yield f"nothing said: {_share(silent, rows)}, {within}"


def is_met(rows: Sequence[Row]) -> bool:
    """True if all targets are met."""
    named = [row["named"] for row in rows if row["named"] is not None]
    alone = [row["alone"] for row in rows if row["alone"] is not None]
    return (
        len(_first(rows)) >= FIRST * len(rows)
        and len(_accused(rows)) <= CERTAIN * len(rows)
        and sum(named) >= NAMED * len(named)
        and sum(alone) >= ALONE * len(alone)
        and all(
            is_within(row) or _is_found_deeply(row)
            for row in rows
            if row["outcome"] == Outcome.SILENT.value
        )
    )


def is_within(row: Row) -> bool:
    """True if the error of a bug is within what rounding permits."""
    return _bound(row) is not None


def _is_found_deeply(row: Row) -> bool:
    """True if ``--deep`` says rightly what is wrong where a comparison without it is silent."""
    return bool(row.get("deep") == Outcome.FIRST.value)


def _bound(row: Row) -> str | None:
    """The bound that hides a bug, with its error in units of it; None where none does.

    That is the bound of the operator's or module's arithmetic where it was measured; else, in all
    that was captured, what the type itself leaves, or one rounding of the type of the first wrong
    values.
    """
    excess, visible = row["excess"], row["visible"]
    if excess is not None:
        if excess == "inf" or float(excess) > 1:
            return None
        return f"{excess} of what its own arithmetic permits, at most 1"
    if visible is not None and float(visible) <= 1:
        return f"{visible} of the error that {row['dtype']} leaves in the capture, at most 1"
    if row["roundings"] != "inf" and 0 < float(row["roundings"]) <= 1:
        return f"{row['roundings']} of one rounding of the first wrong values, at most 1"
    return None


def _first(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["outcome"] == Outcome.FIRST.value]


def _accused(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["accused"]]


def _is_right(row: Row) -> bool:
    return (
        row["outcome"] == Outcome.FIRST.value
        and not row["accused"]
        and row["named"] is not False
        and row["alone"] is not False
        and not row["innocent"]
    )


def _share(part: Sequence[Row], whole: Sequence[Row]) -> str:
    percent = 100 * len(part) / len(whole) if whole else 0.0
    return f"{len(part)} of {len(whole)} ({percent:.1f} %)"


def _table(title: str, rows: Sequence[Row], key: Callable[[Row], Any]) -> Iterator[str]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    yield f"| {title} | bugs | first | among | unsure | certain | silent | named | alone |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, each in groups.items():
        label = {True: "near", False: "large"}.get(name, name) if title == "size" else name
        outcomes = [row["outcome"] for row in each]
        cells = [
            len(each),
            outcomes.count(Outcome.FIRST.value),
            outcomes.count(Outcome.AMONG.value),
        ]
        cells += [outcomes.count(Outcome.UNSURE.value), len(_accused(each))]
        cells += [outcomes.count(Outcome.SILENT.value)]
        found = [*map(str, cells), _part(each, "named"), _part(each, "alone")]
        yield f"| {label} | {' | '.join(found)} |"


def _part(rows: Sequence[Row], key: str) -> str:
    known = [row[key] for row in rows if row[key] is not None]
    return f"{sum(known)} of {len(known)}" if known else ""


def _miss(row: Row) -> str:
    size = ", near" if row["near"] else ""
    where = f"{row['program']}, {row['dtype']}, {row['level']}{size}"
    faults = [row["outcome"]] * (row["outcome"] != Outcome.FIRST.value)
    faults += ["an innocent, certain"] * (
        row["accused"] and row["outcome"] != Outcome.ACCUSED.value
    )
    faults += ["not named"] * (row["named"] is False)
    faults += ["not found alone"] * (row["alone"] is False)
    faults += [f"{row['innocent']} innocent accused alone"] * bool(row["innocent"])
    sizes = f"{row['distance']} of the tolerance, {row['roundings']} roundings"
    if row["visible"] is not None:
        sizes += f", {row['visible']} of what the type leaves in the capture"
    if row["excess"] is not None:
        sizes += f", {row['excess']} of its own bound"
    if row["outcome"] == Outcome.SILENT.value:
        sizes += f". Hidden by: {_bound(row) or 'nothing, it is beyond what rounding permits'}"
        if row.get("deep"):
            sizes += f". With --deep: {row['deep']}"
    truth = ", ".join(f"`{each}`" for each in row["truth"])
    said = row["said"].replace("|", "/").replace("<", "(").replace("`", "'")
    return (
        f"- **{row['number']}, {row['kind']}** ({where}): {'; '.join(faults)}. Error: {sizes}. "
        f"Truth: {truth}. Said: {said}"
    )
