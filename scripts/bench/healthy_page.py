"""Results of healthy pairs on record, and as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from healthy_runs import Outcome
from matching_page import KINDS as LABELLED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "healthy-results.md"
RECORD = Path(__file__).resolve().with_name("healthy.json")
Row = Mapping[str, Any]
KINDS = LABELLED | {
    "i": "Data types and autocast, one pass, and attention in coarse types",
    "j": "Inductor against FX nodes, and both against eager",
    "k": "The graph engine against FX nodes and against itself",
    "l": "API-level captures, of msprobe and ours",
    "m": "Published weights: all-MiniLM-L6-v2",
    "n": "Models of pictures: a U-Net and a DiT of diffusers",
    "o": "Modules, operators, or both captured of one program",
    "p": "Families that nothing here was made for",
    "q": "Decoders of a design drawn by chance, written in two ways",
    "r": "API-level captures of one prompt in other calls and types, and of adapters",
}
_HEAD = """# Healthy runs

Written by `scripts/bench/healthy.py --write`; do not edit it. Both programs of each pair are
healthy: one model, one set of weights, computed by other libraries, in other types, in other
batches or by a compiler. So each alarm here is a false one, and each exit code should be 0.
`tests/support/healthy_runs` has the programs; weights are random where nothing else is said.

*Missing* are tensors that should have been compared and were not, *not comparable* those that only
one program makes. *Alone* are the outputs of operators of both sides that `ait llm opcheck` judged
from their own inputs and weights, and how many of them it failed. `module` captures have what
modules take and return, `op` captures every aten operator too.
"""


def publish(found: Mapping[str, Outcome]) -> None:
    """Put results on record, in the place of older ones of the same pairs, and write the page."""
    record = recorded()
    record |= {name: as_row(each) for name, each in found.items()}
    # also of pairs that need what is not installed here
    lines = [f"  {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    PAGE.write_text(as_page(recorded()), encoding="utf-8")


def recorded() -> dict[str, Row]:
    """Results by the name of the pair, pairs of one kind together."""
    if not RECORD.exists():
        return {}
    found: dict[str, Row] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def as_row(each: Outcome) -> Row:
    """What is kept of a result."""
    return {
        "code": each.code,
        "alarm": each.is_alarm,
        "passed": each.passed,
        "failed": each.failed,
        "missing": each.missing,
        "not_comparable": each.not_comparable,
        "accused": list(each.accused[:1]),
        "checked": sum(side.checked for side in each.alone),
        "alone_failed": sum(side.failed for side in each.alone),
    }


def totals(found: Mapping[str, Outcome]) -> str:
    """One line on all pairs."""
    return _total([as_row(each) for each in found.values()])


def _total(rows: list[Row]) -> str:
    alarms = sum(bool(row["alarm"]) for row in rows)
    codes = sum(row["code"] != 0 for row in rows)
    return f"{len(rows)} pairs, {alarms} false alarms, {codes} with an exit code other than 0"


def as_page(record: Mapping[str, Row]) -> str:
    """The whole page, of what is on record."""
    lines = [_HEAD, f"{_total(list(record.values()))}."]
    for kind, names in groupby(record, key=lambda name: name.partition("/")[0]):
        lines += ["", f"## {KINDS[kind]}", ""]
        lines.append("| pair | exit | PASS | FAIL | missing | not comparable | alone | accused |")
        lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
        lines += [_line(name, record[name]) for name in names]
    return "\n".join(lines) + "\n"


def _line(name: str, row: Row) -> str:
    alone = f"{row['alone_failed']} of {row['checked']}" if row["checked"] else ""
    code = f"**{row['code']}**" if row["code"] or row["alarm"] else "0"
    cells = [name.partition("/")[2], code, *(row[key] for key in _COUNTS), alone]
    cells.append(", ".join(f"`{each}`" for each in row["accused"]))
    return f"| {' | '.join(map(str, cells))} |"


_COUNTS = ("passed", "failed", "missing", "not_comparable")
