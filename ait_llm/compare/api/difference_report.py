"""Files of the search for the first difference, as msprobe's compare writes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ait_llm.compare.api.cells import cells_of
from ait_llm.compare.api.columns import CONSISTENT, MESSAGE, RESULT, STATISTICS, columns_of
from ait_llm.compare.api.first_difference import (
    FirstDifference,
    call_of,
    first_differences,
    record_differs,
)
from ait_llm.compare.api.item import NOT_AVAILABLE, Item
from ait_llm.compare.api.measuring import rows_of
from ait_llm.compare.api.outcome import Outcome, PairOutcome
from ait_llm.compare.api.rank_order import Call
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.settling import settle
from ait_llm.compare.api.sides import ApiPair, pair_sides, problems_of
from ait_llm.compare.api.statistics_rules import difference_cells
from ait_llm.core import Verdict, whole_number
from ait_llm.dumps.api_order import read_stacks
from ait_llm.report.files import make_folder, replacing


@dataclass(slots=True)
class Analysis:
    """What the search found.

    Attributes:
        outcome: counts and files of all ranks.
        first: where each rank first differs, the earliest over all ranks only; of the first step
            that differs.
        step: the number of that step, where several were compared.
        looked_at: ranks that were compared.
    """

    outcome: Outcome
    first: list[FirstDifference] = field(default_factory=list)
    step: int | None = None
    looked_at: int = 0


def analyze_differences(
    mine: Path, golden: Path, output: Path, stamp: str, options: ApiOptions
) -> Analysis:
    """Compare statistics or checksums of all ranks and find the first difference.

    Writes ``compare_result[_step{N}]_rank{N}_{stamp}.json`` for each rank, and
    ``diff_analyze_{time in ns}.json`` if anything differs.

    Raises:
        FormatError: a file is malformed.
        UsageError: the two sides cannot be compared with each other.
    """
    make_folder(output)
    found = pair_sides(mine, golden)
    outcome = Outcome(problems=list(found.problems))
    steps: dict[int, _Step] = {}
    for pair in found.pairs:
        step = steps.setdefault(pair.mine.place.step, _Step())
        rank = pair.mine.place.rank if pair.mine.place.rank >= 0 else len(step.calls)
        shown = replace(pair, mode="statistics") if pair.mode == "tensor" else pair
        path = output / f"compare_result{pair.suffix or f'_rank{rank}'}_{stamp}.json"
        result = PairOutcome(pair.suffix, shown.mode, problems=problems_of(pair), files=[path])
        step.calls[rank] = list(_write_rank(pair, shown, path, result, options))
        step.reports[rank] = (path, shown)
        outcome.pairs.append(result)
    settle(outcome, found.pairs, mine, golden, options)
    analysis = Analysis(outcome, looked_at=max(len(step.calls) for step in steps.values()))
    if not outcome.counts[Verdict.FAIL]:
        return analysis
    for number, step in sorted(steps.items()):
        if first := first_differences(step.calls):
            analysis.first = first
            analysis.step = number if len(steps) > 1 else None
            path = output / f"diff_analyze_{time.time_ns()}.json"
            with replacing(path) as file:
                json.dump(_analysis(first, step.reports), file, indent=2, ensure_ascii=False)
            outcome.files.append(path)
            break
    return analysis


@dataclass
class _Step:
    """Calls of a step, and the files that tell them, by rank."""

    calls: dict[int, list[Call]] = field(default_factory=dict)
    reports: dict[int, tuple[Path, ApiPair]] = field(default_factory=dict)


def _write_rank(
    pair: ApiPair, shown: ApiPair, path: Path, result: PairOutcome, options: ApiOptions
) -> Iterator[Call]:
    """Write the file of a rank record by record: statistics, whatever the rows are judged by."""
    stacks = read_stacks(pair.mine.place.folder / "stack.json")
    line = 0
    with (
        replacing(path) as file,
        rows_of(pair, options, result.problems.append) as groups,
    ):
        separator = "{\n"
        for rows in groups:
            for row in rows:
                if shown is not pair:
                    row.cells = difference_cells(row.mine, row.golden)
                result.take(line, row)
                line += 1
            mine = [row for row in rows if row.mine is not None]
            if not mine:
                continue
            record = mine[0].item.record
            entry = {
                "is_same": not record_differs(rows, shown.mode),
                "op_items": list(_items(record, mine, shown, stacks)),
            }
            file.write(f"{separator}{json.dumps(record)}: {json.dumps(entry, indent=1)}")
            separator = ",\n"
            yield call_of(record, rows)
        file.write("{}" if separator.startswith("{") else "\n}\n")


def _items(
    record: str, rows: Sequence[Row], pair: ApiPair, stacks: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    columns = columns_of(pair.mode, "release", stack=False)
    for place, row in enumerate(rows):
        cells = dict(zip(columns, cells_of(row, pair.mode, "release", None), strict=True))
        scalar = "class" in row.item.dtype
        entry: dict[str, Any] = {
            name: _plain(name, cell, scalar=scalar) for name, cell in cells.items()
        }
        entry[RESULT], entry[MESSAGE] = _told(row, pair)
        if stacks:
            known = not place and record in stacks
            entry["NPU_Stack_Info"] = list(stacks[record]) if known else NOT_AVAILABLE
        entry["state"] = row.item.state
        entry["api_origin_name"] = record
        entry |= _peers(row)
        yield entry


def _told(row: Row, pair: ApiPair) -> tuple[str, str]:
    if not row.matched:
        return "N/A", "No bench data matched."
    assert row.mine is not None
    assert row.golden is not None
    if pair.mode == "md5":
        return ("pass" if row.mine.md5 == row.golden.md5 else "Different"), ""
    return "", ""


def _plain(name: str, cell: Any, *, scalar: bool) -> Any:
    """Statistics as numbers, truth of agreement as it is, everything else as text."""
    if isinstance(cell, bool):
        return cell if name == CONSISTENT or (scalar and name in STATISTICS) else str(cell)
    number = isinstance(cell, int | float) and name.startswith(("NPU ", "Bench "))
    return cell if number else str(cell)


def _peers(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, what in enumerate(("op", "peer")):
        for side, item in (("NPU", row.mine), ("Bench", row.golden)):
            found[f"{side} P2POp {what}"] = _peer(item, place)
    return found


def _peer(item: Item | None, place: int) -> Any:
    text = item.p2p[place] if item is not None else ""
    number = whole_number(text.removeprefix("-"))
    if number is None:
        return text or "None"
    return -number if text.startswith("-") else number


def _analysis(
    first: Sequence[FirstDifference], reports: Mapping[int, tuple[Path, ApiPair]]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in first:
        path, pair = reports[each.rank]
        with path.open(encoding="utf-8") as file:
            items = json.load(file)[each.name]["op_items"]
        data: dict[str, dict[str, Any]] = {"input": {}, "output": {}}
        for item in items:
            side = "output" if item["state"] == "output" else "input"
            data[side][item["NPU Name"]] = {
                name: value
                for name, value in item.items()
                if name in ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "NPU MD5")
                or name == "NPU P2POp peer"
            }
        stacks = read_stacks(pair.mine.place.folder / "stack.json")
        found.setdefault(f"rank_{each.rank}", []).append(
            {
                "op_name": each.name,
                "why": each.why,
                "data_info": data,
                "stack_info": list(stacks.get(each.name, ())),
            }
        )
    return found
