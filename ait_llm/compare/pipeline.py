"""Two paths to a report: read, match, measure, judge."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ait_llm.compare.closeups import closeups_of
from ait_llm.compare.coverage import mark_not_comparable, other_results, uncompared_parts
from ait_llm.compare.origin_findings import Findings, apply_findings, nothing_differs
from ait_llm.compare.pair import Settings
from ait_llm.compare.parted_rows import unknown_rows, without_parted
from ait_llm.compare.parting import parting_problems
from ait_llm.compare.progress import ProgressCallback
from ait_llm.compare.remote import Request, open_both
from ait_llm.compare.requests import behind_prompts, different_prompts, different_requests
from ait_llm.compare.resources import MAX_JOBS, default_jobs, without_full_collections
from ait_llm.compare.resume import EarlierReport
from ait_llm.compare.sides import exchanged_sides, same_side
from ait_llm.compare.stated_notes import stated_notes
from ait_llm.compare.statistics import SCALED_ERROR, STATISTIC_METRICS
from ait_llm.compare.work import Elsewhere, Item, measure_all
from ait_llm.core.comparison import Comparison, Problem, Report, Side, Verdict
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.dumps import Dump
from ait_llm.engine import Engine
from ait_llm.errors import AitError, UsageError
from ait_llm.faults import told, trace_of
from ait_llm.judge import Tolerance, parse_tolerance
from ait_llm.judge.definition_pairs import DefinitionsOfPass
from ait_llm.match.checkpoint import (
    own_checkpoint,
    read_sides,
    with_checkpoints,
    with_parameters,
)
from ait_llm.match.choose import match_runs
from ait_llm.match.expert_weights import with_experts
from ait_llm.match.head_order import check_head_order
from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched
from ait_llm.match.pairing import Pairing, pair_runs, parse_steps
from ait_llm.match.programs.remembered import Memory, remembering
from ait_llm.match.scenario import Input, Scenario, find_scenario
from ait_llm.metrics import METRIC_NAMES, CustomMetric, load_custom
from ait_llm.metrics import metrics as known_metrics
from ait_llm.naming import shown
from ait_llm.program.dataflow import Flows
from ait_llm.program.one_pass import Pass
from ait_llm.storage import address, expect_values, local_path

FoundMatches = Sequence[tuple[Pass, Pass, Sequence[Match]]]


@without_full_collections()
def compare(
    golden_path: Path | str,
    my_path: Path | str,
    *,
    op_mapping_file: Path | str | None = None,
    mapping: Path | str | None = None,
    weights: bool = False,
    by_value: bool = False,
    weights_from: Sequence[str] = (),
    steps: Mapping[int, int] | str | None = None,
    metrics: Sequence[str] | None = None,
    custom: Sequence[str | CustomMetric] = (),
    tolerance: Tolerance | str | float | None = None,
    deep: bool = False,
    ledger: bool | None = False,
    dataflow: bool = True,
    jobs: int | None = None,
    engine: Engine | None = None,
    resume: Path | str | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[Report], None] | None = None,
    on_matches: Callable[[FoundMatches], None] | None = None,
    on_comparison: Callable[[int, Comparison], None] | None = None,
    on_progress: ProgressCallback | None = None,
) -> Report:
    """Compare two dumps, two files, or two sets of weights.

    Nothing is printed or written. A tensor that cannot be compared costs its own verdict only. The
    memory needed does not depend on the size of the tensors, and on their number only for the
    report itself.

    Args:
        golden_path: file, folder or dump of the trusted side, or its URL.
        my_path: the same of the side under suspicion.
        op_mapping_file: the user's table of operator types, a JSON file or a folder with
            ``op_mapping_file.json``; or a saved mapping.
        mapping: a file made by ``--save-mapping``, perhaps edited.
        weights: take both sides as weights, also those that a dump saved.
        by_value: match by fingerprints of values what nothing else matched.
        weights_from: checkpoints for sides that captured no weights, ``golden=PATH`` and
            ``mine=PATH``.
        steps: golden step to my step, ``{0: 1}`` or ``"0:1,1:2"``; found out when None.
        metrics: names of metrics, all when None.
        custom: the user's own metrics, ``path.py:function`` or loaded ones.
        tolerance: limits of the verdict: see ``metrics.parse_tolerance``.
        deep: compute every operation once more from its own inputs, also where nothing failed.
        ledger: keep the error ledger, see ``Report.ledger``; None leaves it to the data, see
            ``LedgerPlan.is_wanted``.
        dataflow: keep who reads what, see ``Report.flows``, for graphs of both programs.
        jobs: threads; one for each processor when None.
        engine: measures the pairs in other processes; see :func:`ait_llm.engine.open_engine`.
        resume: an earlier jsonl report of the same comparison, whose pairs are taken over where
            neither file has changed.
        stop: when set, the comparison ends early with a partial report. So does a
            KeyboardInterrupt.
        on_start: called once with a report that has no comparisons yet.
        on_matches: called once with each pair of passes and its matches, before they are measured.
        on_comparison: called with the place in the report of each comparison as it is finished,
            in any order; again for those that learn of their inherited error at the end.
        on_progress: called after each batch of pairs.

    Returns:
        All pairs and all tensors without a partner, in execution order of my side, golden tensors
        without a partner last.

    Raises:
        FormatError: a path is nothing that can be compared, or a mapping or report is damaged.
        UsageError: the two paths do not go together, or an option has an unusable value.
        UnknownNameError: no metric of that name.

    Example:
        >>> from ait_llm import compare
        >>> report = compare("golden/ait_dump", "mine/ait_dump")  # doctest: +SKIP
        >>> report.verdict, [origin.op for origin in report.origins]  # doctest: +SKIP
        (<Verdict.FAIL: 'FAIL'>, ['LinearOperation_2_3'])
    """
    started = _now()
    settings = settings_of(metrics, custom, tolerance, stop)
    step_map = parse_steps(steps) if isinstance(steps, str) else steps
    options = {
        "metrics": list(settings.metrics),
        "custom": [f"{each.source}:{each.name}" for each in settings.custom],
        "tolerance": _plain_tolerance(settings.tolerance),
        "op_mapping_file": None if op_mapping_file is None else shown(str(op_mapping_file)),
        "mapping": None if mapping is None else shown(str(mapping)),
        "weights": weights,
        "by_value": by_value,
        "steps": None if step_map is None else {str(k): v for k, v in step_map.items()},
        "deep": deep,
    }
    if weights_from:
        options["weights_from"] = [shown(text) for text in weights_from]
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"the number of jobs must be from 1 to {MAX_JOBS}, not {jobs}")
    earlier = EarlierReport(resume, options) if resume is not None else None
    if engine is not None:
        engine.look_for((address(golden_path), address(my_path)))
    scenario = find_scenario(golden_path, my_path, weights=weights)
    if engine is None or not engine.remote:
        expect_values(scenario.golden.path, scenario.mine.path)
    match_options = replace(
        _match_options(op_mapping_file, mapping, by_value),
        weights_from=_checkpoints(scenario) | read_sides(weights_from),
    )
    request = None
    if engine is not None and engine.remote:
        sides = address(golden_path), address(my_path)
        request = _request(sides, weights, step_map, match_options, settings)
        engine.prepare(partial(open_both, request), request.roots)
    pairing = pair_runs(scenario, step_map)
    if match_options.mapping is not None:
        from ait_llm.match.saved_mapping import check_mapping  # rarely wanted

        check_mapping(match_options.mapping, ((each.golden, each.mine) for each in pairing.pairs))
    for pair in pairing.pairs[:1]:  # a wrong path is told before anything is measured
        check_head_order(*with_checkpoints(pair.golden, pair.mine, match_options.weights_from))
    golden_side, my_side = _sides(scenario, pairing)
    report = Report(
        golden=golden_side,
        mine=my_side,
        scenario=scenario.name,
        comparisons=(),
        metrics=(*settings.metrics, *(each.name for each in settings.custom)),
        options=options,
        partial=True,
        started=started,
    )
    if on_start is not None:
        on_start(report)
    flows = Flows() if dataflow else None
    items, sources, problems, definitions = _match(pairing, match_options, on_matches, flows)
    total = len(items)
    unknown = unknown_rows(items, sources, pairing.pairs)
    every: dict[int, Match] = {}
    if ledger is not False:
        every = {place: item for place, item in enumerate(items) if isinstance(item, Match)}
    for side in (scenario.golden, scenario.mine):
        if side.dump is not None:
            side.dump.forget()  # memory for the results
    elsewhere = None
    if engine is not None and request is not None:
        elsewhere = Elsewhere(engine, request, sources)
    measured = measure_all(
        items,
        settings,
        jobs=default_jobs() if jobs is None else jobs,
        elsewhere=elsewhere,
        earlier=earlier,
        on_comparison=on_comparison,
        on_progress=on_progress,
    )
    places = [place for place, item in enumerate(measured.comparisons) if item is not None]
    found = [item for item in measured.comparisons if item is not None]
    comparisons = without_parted(found, unknown, places)
    matches = {
        index: measured.failed[place]
        for index, place in enumerate(places)
        if place in measured.failed and comparisons[index].verdict is Verdict.FAIL
    }
    findings = Findings()
    if len(places) == total:  # who interrupts a comparison does not want to wait for more
        runs = [pair.mine for pair in pairing.pairs]
        if (checkpoint := match_options.weights_from.get("mine")) is not None:
            runs = [with_parameters(run, checkpoint) for run in runs]
        findings = _origins(comparisons, runs, matches, settings, deep, problems, definitions)
    completed = apply_findings(comparisons, findings)
    rows: tuple[LedgerRow, ...] = ()
    runs = [pair.mine for pair in pairing.pairs]
    if len(places) == total and ledger is not False and any(run.traits.library for run in runs):
        # loaded here: it needs the golden operators, which other programs are compared without
        from ait_llm.compare.ledger import error_ledger, plan_ledger, with_shares

        plan = plan_ledger(runs, every)
        if plan.is_wanted(ledger):
            rows = error_ledger(plan, jobs=jobs or default_jobs(), stop=settings.stop)
            completed = with_shares(completed, [r for r in rows if r.index not in findings.shares])
        elif why := plan.too_large():
            problems.append(Problem("mine", why, decides=False))
    dumps = scenario.golden.dump, scenario.mine.dump
    one_library = all(dump is not None and dump.traits.library for dump in dumps)
    completed = mark_not_comparable(completed, one_library=one_library)
    if on_comparison is not None:
        for place, before, after in zip(places, found, completed, strict=True):
            if after is not before:
                on_comparison(place, after)
    parted = parting_problems(pairing.partings, completed)
    problems = [*same_side(scenario), *parted, *pairing.problems, *problems]
    problems += [Problem("mine", text) for text in findings.problems]
    problems += stated_notes(completed, definitions, findings.origins)
    problems += [Problem("mine", text, decides=False) for text in findings.notes]
    problems += exchanged_sides(completed)
    problems += different_requests(completed)
    prompts = different_prompts(completed, [(pair.golden, pair.mine) for pair in pairing.pairs])
    problems += prompts
    problems += [*uncompared_parts(completed), *other_results(completed)]
    if len(places) < total:
        problems.append(
            Problem("both", f"interrupted before {total - len(places)} of {total} were compared")
        )
    return replace(
        report,
        comparisons=tuple(completed),
        problems=tuple(problems),
        origins=behind_prompts(findings.origins, prompts),
        passes=tuple((pair.golden.step, pair.mine.step) for pair in pairing.pairs),
        metrics=_columns(report.metrics, completed),
        partial=len(places) < total,
        finished=_now(),
        ledger=rows,
        closeups=closeups_of(completed, findings.origins, matches, settings),
        flows=() if flows is None else flows.found,
    )


def settings_of(
    metrics: Sequence[str] | None,
    custom: Sequence[str | CustomMetric],
    tolerance: Tolerance | str | float | None,
    stop: threading.Event | None,
) -> Settings:
    """Settings from what a caller may give.

    Raises:
        UsageError: a tolerance or a metric of the user's own cannot be used.
        UnknownNameError: no metric of that name.
    """
    if isinstance(tolerance, float | int):
        tolerance = Tolerance(float(tolerance))
    elif isinstance(tolerance, str):
        tolerance = parse_tolerance(tolerance)
    names = tuple(METRIC_NAMES if metrics is None else metrics)
    for name in names:
        known_metrics.get(name)
    return Settings(
        metrics=names,
        custom=tuple(load_custom(each) if isinstance(each, str) else each for each in custom),
        tolerance=tolerance,
        stop=stop if stop is not None else threading.Event(),
    )


def _request(
    sides: tuple[str, str],
    weights: bool,
    steps: Mapping[int, int] | None,
    options: MatchOptions,
    settings: Settings,
) -> Request:
    """What other processes must know to measure pairs."""
    return Request(
        token=uuid.uuid4().hex,
        golden=sides[0],
        mine=sides[1],
        weights=weights,
        steps=steps,
        match=options,
        metrics=settings.metrics,
        custom=settings.custom,
        tolerance=settings.tolerance,
    )


def _sides(scenario: Scenario, pairing: Pairing) -> tuple[Side, Side]:
    """Both sides for the report; steps of compiled graphs are counted over all graphs."""
    golden = {pair.golden.step for pair in pairing.pairs}
    mine = {pair.mine.step for pair in pairing.pairs}
    return _side(scenario.golden, golden), _side(scenario.mine, mine)


def _side(of: Input, steps: set[int]) -> Side:
    if of.dump is None or not of.dump.traits.compiled:
        return of.side()
    return replace(of.side(), steps=tuple(sorted(steps)))


def _checkpoints(scenario: Scenario) -> dict[SideName, Path]:
    """The checkpoints of sides that say which one they were made of, and hold no weights."""
    sides: tuple[tuple[SideName, Dump | None], ...]
    sides = (("golden", scenario.golden.dump), ("mine", scenario.mine.dump))
    return {side: path for side, dump in sides if (path := own_checkpoint(dump)) is not None}


def _match_options(
    op_mapping_file: Path | str | None, mapping: Path | str | None, by_value: bool
) -> MatchOptions:
    if op_mapping_file is None and mapping is None:
        return MatchOptions(by_value=by_value)
    from ait_llm.match.saved_mapping import read_either, read_mapping  # rarely wanted

    table = saved = None
    if op_mapping_file is not None:
        table, saved = read_either(local_path(op_mapping_file))
    if mapping is not None:
        saved = read_mapping(local_path(mapping))
    return MatchOptions(op_mapping=table, mapping=saved, by_value=by_value)


def _match(
    pairing: Pairing,
    options: MatchOptions,
    on_matches: Callable[[FoundMatches], None] | None,
    flows: Flows | None,
) -> tuple[list[Item], list[tuple[int, int]], list[Problem], list[DefinitionsOfPass]]:
    """What answers what, in my execution order; golden tensors without a partner last.

    Of each also the number of its pass and its place among the matches of that; and the definitions
    of each pair of passes.

    Passes that cannot be matched, because of a damaged topology perhaps, become problems.
    """
    problems: list[Problem] = []
    ours: list[Item] = []
    golden_only: list[Item] = []
    our_sources: list[tuple[int, int]] = []
    golden_sources: list[tuple[int, int]] = []
    found: list[tuple[Pass, Pass, Sequence[Match]]] = []
    definitions: list[DefinitionsOfPass] = []
    memory = Memory()
    for number, pair in enumerate(pairing.pairs):
        matches: list[Match] = []
        try:
            with remembering(memory):
                items = match_runs(pair.golden, pair.mine, options, on_program=flows)
        except AitError as error:
            text = f"step {pair.mine.step} of process {pair.mine.pid} was not compared: {error}"
            problems.append(Problem("both", text))
            definitions.append(DefinitionsOfPass(pair.golden, pair.mine, ()))
            continue
        for place, item in enumerate(items):
            alone = isinstance(item, Unmatched) and item.side == "golden"
            (golden_only if alone else ours).append(item)
            (golden_sources if alone else our_sources).append((number, place))
            if isinstance(item, Match):
                matches.append(item)
        found.append((pair.golden, pair.mine, matches))
        golden = with_experts(pair.golden, options.weights_from.get("golden"))
        definitions.append(DefinitionsOfPass(golden, pair.mine, matches))
    if on_matches is not None:
        on_matches(found)
    sources = our_sources + golden_sources
    return ours + golden_only, sources, problems, definitions


def _origins(
    comparisons: Sequence[Comparison],
    runs: Sequence[Pass],
    matches: Mapping[int, Match],
    settings: Settings,
    deep: bool,
    problems: list[Problem],
    definitions: Sequence[DefinitionsOfPass],
) -> Findings:
    if not deep and nothing_differs(comparisons, definitions):
        return Findings()
    try:
        # loaded here: equal runs need none of them, and healthy ones a few
        from ait_llm.compare.origin_reasons import reasons_of

        reasons = list(reasons_of(comparisons, runs, definitions, deep=deep))
        if not any(each.failures or each.besides_failures for each in reasons):
            return Findings()
        from ait_llm.compare.origin import find_origins

        return find_origins(
            comparisons,
            runs,
            matches,
            deep=deep,
            definitions=definitions,
            settings=settings,
            reasons=reasons,
        )
    except Exception as error:  # noqa: BLE001  what was measured must not be lost with it
        text = f"the origin could not be looked for: {told(error)}"
        problems.append(Problem("mine", text, fault=trace_of(error)))
        return Findings()


def _columns(metrics: Sequence[str], comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Metrics of the report; those of statistics where some pair had nothing else."""
    if any(SCALED_ERROR in item.values or SCALED_ERROR in item.missing for item in comparisons):
        return (*metrics, *STATISTIC_METRICS, SCALED_ERROR)
    return tuple(metrics)


def _plain_tolerance(tolerance: Tolerance | None) -> dict[str, Any] | None:
    if tolerance is None:
        return None
    return {
        "relative_euclidean": tolerance.relative_euclidean,
        "max_element": tolerance.max_element,
        "by_dtype": {
            dtype.label: _plain_tolerance(each) for dtype, each in tolerance.by_dtype.items()
        },
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
