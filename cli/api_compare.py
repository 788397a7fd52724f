"""``ait llm compare`` on API-level dumps: the manual's tables and advice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ait_llm.cli.api_options import ApiRequest
from ait_llm.cli.compare_result import Handover
from ait_llm.cli.console import WORDS, tell
from ait_llm.cli.engine_options import EngineChoice
from ait_llm.cli.machine import emit
from ait_llm.cli.progress import ProgressLine
from ait_llm.cli.stamps import free_table_stamp
from ait_llm.compare.api.difference_report import analyze_differences
from ait_llm.compare.api.outcome import Outcome, PairOutcome
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions, read_compare_file, read_data_mapping
from ait_llm.compare.api.sides import share_no_ranks
from ait_llm.compare.resources import default_jobs
from ait_llm.core.comparison import Report, Verdict
from ait_llm.errors import UsageError
from ait_llm.judge import parse_tolerance
from ait_llm.metrics import load_custom
from ait_llm.report.wording import printable

logger = logging.getLogger(__name__)
_REASONS = 5  # told per table


def compare_api(
    request: ApiRequest,
    golden: Path,
    mine: Path,
    output: Path,
    formats: Sequence[str],
    *,
    jobs: int | None,
    engine: EngineChoice,
    custom: Sequence[str] = (),
    tolerance: str | None = None,
    as_json: bool,
    allow_skip: bool,
    strict: bool = False,
    report: Report | None = None,
    handover: Handover | None = None,
) -> int:
    """Compare, print what came of it, and return the exit code.

    Args:
        report: the same two dumps compared as programs, for formats that are no tables.
        handover: writes these formats, and holds them against a baseline.
    """
    if request.fuzzy and request.data_mapping is not None:
        raise UsageError("-dm says which rows belong together; leave out -f")
    shards = request.layout is not None or share_no_ranks(mine, golden)
    if engine.name != "local" and (shards or request.diff_analyze):
        what = "-da" if request.diff_analyze else "a comparison of different numbers of ranks"
        raise UsageError(f"{what} looks at all ranks together; leave out --engine {engine.name}")
    if report is not None and handover is not None and (shards or request.diff_analyze):
        handover.write(report)  # there are no rows of one rank against one
    if shards:
        from ait_llm.cli.shards_compare import compare_shards  # much that others do without

        return compare_shards(request, golden, mine, output, formats, as_json, allow_skip)
    options = _options(request, default_jobs() if jobs is None else jobs, custom, tolerance)
    if request.diff_analyze:
        return _first_difference(golden, mine, output, options, as_json, allow_skip)
    with engine.open(jobs) as workers, ProgressLine() as progress:
        done = 0

        def count(row: Row) -> None:
            nonlocal done
            done += 1
            if options.log:
                logger.info("%s: %s", row.item.name, row.result or "ok")
            elif not done % 1000:
                progress.count("compared", done, "rows")

        outcome = compare_api_dumps(
            mine,
            golden,
            output,
            free_table_stamp(output),
            options,
            formats=formats,
            on_row=count if workers is None or options.log else None,  # rows stay where they are
            engine=workers,
            report=report,
        )
    code = outcome.exit_code(allow_skip=allow_skip, strict=strict)
    lines: list[str] = []
    result: dict[str, Any] = {}
    if outcome.report is not None and handover is not None:
        outcome.files += handover.write(outcome.report)
        code = handover.code(outcome.report, code)
        result = handover.as_dict()
        if handover.against is not None:
            lines = [printable(f"  {name:<8} {text}") for name, text in handover.against.lines()]
    if as_json:
        emit("compare-api", _as_dict(outcome, code) | result)
    tell("\n".join([*_lines(outcome, code), *lines]), code, as_json=as_json)
    return code


def refuse_baseline(request: ApiRequest, golden: Path, mine: Path) -> None:
    """A baseline is of pairs of tensors.

    Raises:
        UsageError: there are none.
    """
    if request.diff_analyze:
        raise UsageError("-da compares no tensors one by one; leave out --baseline")
    if request.layout is not None or share_no_ranks(mine, golden):
        raise UsageError("the runs have different numbers of ranks; leave out --baseline")


def _first_difference(
    golden: Path, mine: Path, output: Path, options: ApiOptions, as_json: bool, allow_skip: bool
) -> int:
    found = analyze_differences(mine, golden, output, free_table_stamp(output), options)
    step = "" if found.step is None else f"step {found.step}, "
    lines = [
        f"  {step}rank {each.rank}: the first difference is in {each.name}: {each.why}"
        for each in found.first
    ]
    ranks = "1 rank" if found.looked_at == 1 else f"{found.looked_at} ranks"
    code = found.outcome.exit_code(allow_skip=allow_skip)
    what = f"calls differ on {len(found.first)} of {ranks}" if found.first else "no call differs"
    lines.insert(
        0, f"ait llm compare: {WORDS[code]}: {what}" + ("" if found.first else f" ({ranks})")
    )
    lines += [f"  missing: {problem}" for problem in found.outcome.problems]
    for pair in found.outcome.pairs:
        lines += [line for line in _pair_lines(pair) if "not compared" in line]
        lines += [f"  {path}" for path in pair.files]
    lines += [f"  {path}" for path in found.outcome.files]
    if as_json:
        where = {} if found.step is None else {"step": found.step}
        first = [
            {**where, "rank": each.rank, "op": each.name, "why": each.why} for each in found.first
        ]
        emit("compare-api", {**_as_dict(found.outcome, code), "first": first})
    tell("\n".join(lines), code, as_json=as_json)
    return code


def _options(
    request: ApiRequest, jobs: int, custom: Sequence[str], tolerance: str | None
) -> ApiOptions:
    given = read_compare_file(request.input_file) if request.input_file is not None else None
    table = read_data_mapping(request.data_mapping) if request.data_mapping is not None else {}
    stack_path = given.stack if given is not None else None
    return ApiOptions(
        style=request.table_style,
        fuzzy=request.fuzzy,
        table=table,
        stack=request.stack if stack_path is not None else True if request.stack else None,
        stack_path=stack_path,
        highlight=request.highlight,
        advise=not request.compare_only,
        log=given.log if given is not None else False,
        custom=tuple(map(load_custom, custom)),
        tolerance=None if tolerance is None else parse_tolerance(tolerance),
        jobs=jobs,
    )


def _lines(outcome: Outcome, code: int) -> list[str]:
    total = outcome.counts
    shown = ", ".join(f"{total[verdict]} {verdict.value}" for verdict in Verdict if total[verdict])
    lines = [f"ait llm compare: {WORDS[code]}: {shown or 'no row was compared'}"]
    for pair in outcome.pairs:
        lines += _pair_lines(pair)
    lines += [f"  missing: {problem}" for problem in outcome.problems]
    lines += [f"  note: {note}" for note in outcome.notes]
    lines += [f"  {path}" for pair in outcome.pairs for path in pair.files]
    lines += [f"  {path}" for path in outcome.files]
    html = any(path.suffix == ".html" for path in outcome.files)
    if code == 1 and not html and any(pair.mode == "tensor" for pair in outcome.pairs):
        lines.append("  next: --format html shows where the error starts and what each call adds")
    return lines


def _pair_lines(pair: PairOutcome) -> list[str]:
    name = pair.suffix.removeprefix("_").replace("_", ", ") or pair.mode
    lines = []
    if pair.blamed is not None:
        lines.append(f"  {name}: the first row that fails is {pair.blamed.item.name}")
        lines.append(f"    {printable(pair.evidence)}")
        lines += [f"    {line}" for line in pair.advice.text.splitlines()]
    reasons = pair.reasons
    for reason, count in reasons.most_common(_REASONS):
        lines.append(f"  {name}: {count} not compared: {reason}")
    left = len(reasons) - _REASONS
    if left > 0:
        lines.append(f"  {name}: and {left} other reasons")
    if pair.incomparable:
        lines.append(f"  {name}: {pair.incomparable} not comparable, which decides nothing")
    lines += [f"  {name}: {problem}" for problem in pair.problems]
    return lines


def _as_dict(outcome: Outcome, code: int) -> dict[str, Any]:
    return {
        "exit_code": code,
        "problems": outcome.problems,
        "notes": outcome.notes,
        "files": [str(path) for path in outcome.files],
        "tables": [
            {
                "rank": pair.suffix.removeprefix("_"),
                "mode": pair.mode,
                "counts": {verdict.value: count for verdict, count in pair.counts.items()},
                "not_compared": dict(pair.reasons),
                "not_comparable": pair.incomparable,
                "problems": pair.problems,
                "suspect": pair.advice.suspect,
                "evidence": pair.evidence,
                "files": [str(path) for path in pair.files],
            }
            for pair in outcome.pairs
        ],
    }
