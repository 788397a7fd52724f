"""``ait llm compare`` on API-level dumps of different numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.cli.console import WORDS, tell
from ait_llm.cli.machine import emit
from ait_llm.cli.progress import ProgressLine
from ait_llm.cli.stamps import free_table_stamp
from ait_llm.compare.api.shards.row import ShardRow
from ait_llm.compare.api.shards.run import ShardOutcome, compare_ranks
from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError

if TYPE_CHECKING:
    from ait_llm.cli.api_options import ApiRequest

_REASONS = 5  # told per step


def compare_shards(
    request: ApiRequest,
    golden: Path,
    mine: Path,
    output: Path,
    formats: Sequence[str],
    as_json: bool,
    allow_skip: bool,
) -> int:
    """Compare, print what came of it, and return the exit code."""
    if request.fuzzy or request.data_mapping is not None:
        raise UsageError(
            "the runs have different numbers of ranks: leave out -f and -dm, or give one rank of "
            "each with the path of its folder"
        )
    with ProgressLine() as progress:
        done = 0

        def count(_row: ShardRow) -> None:
            nonlocal done
            done += 1
            if not done % 100:
                progress.count("compared", done, "rows")

        found = compare_ranks(
            mine,
            golden,
            output,
            free_table_stamp(output),
            layout_file=request.layout,
            formats=formats,
            on_row=count,
        )
    codes = [outcome.exit_code(allow_skip=allow_skip) for outcome in found]
    code = 1 if 1 in codes else max(codes)
    if as_json:
        steps = [_as_dict(outcome, code) for outcome, code in zip(found, codes, strict=True)]
        emit("compare-ranks", {"exit_code": code, "steps": steps})
    lines = [
        line
        for outcome, code in zip(found, codes, strict=True)
        for line in _lines(outcome, code, several=len(found) > 1, where=request.diff_analyze)
    ]
    tell("\n".join(lines), code, as_json=as_json)
    return code


def _lines(outcome: ShardOutcome, code: int, *, several: bool, where: bool) -> list[str]:
    counts = outcome.counts
    shown = ", ".join(
        f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]
    )
    step = f"step {outcome.step}: " if several else ""
    golden, mine = outcome.ranks
    lines = [
        f"ait llm compare: {step}{WORDS[code]}: {shown or 'nothing was compared'}",
        f"  {_ranks(mine)} of mine, {_ranks(golden)} of golden",
    ]
    found = [f"{count} {layout}" for layout, count in outcome.layouts.most_common()]
    lines.append(f"  layout: {', '.join(found) or 'none'}")
    if outcome.first is not None:
        lines.append(f"  the first row that fails is {outcome.first.item.name}{_off(outcome)}")
        lines.append(f"    {outcome.first.reason}")
    if where:
        lines += [
            f"  rank {each.rank}: the first difference is in {each.name}: {each.why}"
            for each in outcome.first_differences
        ]
    lines += [
        f"  {count} not compared: {reason}"
        for reason, count in outcome.reasons.most_common(_REASONS)
    ]
    many = "mine" if mine >= golden else "golden"
    few = "golden" if mine >= golden else "mine"
    if outcome.missing:
        lines.append(f"  {_calls(outcome.missing)} of {few} alone, not compared")
    if outcome.communication:
        lines.append(f"  {_calls(outcome.communication)} between ranks, of {many} alone")
    if outcome.extra:
        lines.append(f"  {_calls(outcome.extra)} more of {many} alone, listed only")
    lines += [f"  missing: {problem}" for problem in outcome.problems]
    return lines + [f"  {path}" for path in outcome.files]


def _off(outcome: ShardOutcome) -> str:
    first = outcome.first
    if first is None or not first.off:
        return ""
    mine = outcome.ranks[1] >= outcome.ranks[0]
    side = "" if mine else "beside golden's "
    name = "rank" if len(first.off) == 1 else "ranks"
    return f", {side}{name} {', '.join(map(str, first.off))}"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _as_dict(outcome: ShardOutcome, code: int) -> dict[str, Any]:
    first = outcome.first
    return {
        "step": outcome.step,
        "exit_code": code,
        "mode": outcome.mode,
        "ranks": {"golden": outcome.ranks[0], "mine": outcome.ranks[1]},
        "counts": {verdict.value: count for verdict, count in outcome.counts.items()},
        "layouts": dict(outcome.layouts),
        "not_compared": dict(outcome.reasons),
        "communication": outcome.communication,
        "extra": outcome.extra,
        "missing": outcome.missing,
        "suspect": None
        if first is None
        else {"name": first.item.name, "ranks": list(first.off), "reason": first.reason},
        "first": [
            {"rank": each.rank, "op": each.name, "why": each.why}
            for each in outcome.first_differences
        ],
        "problems": outcome.problems,
        "files": [str(path) for path in outcome.files],
    }
