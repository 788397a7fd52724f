"""A comparison of two API-level dumps as programs, in the words of the judge of their rows.

Pages and records are made of it. What they say of a tensor, where they say that the error starts,
and with which verdict, is what the tables and the command say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ait_llm.compare.api.item import Item
from ait_llm.compare.api.outcome import Doubt, Outcome
from ait_llm.compare.api.sides import ApiPair, ApiSide
from ait_llm.core.comparison import Comparison, Origin, Problem, Report, TensorRecord, Verdict

Key = tuple[int, int, int, str]  # step, rank, process, name


def as_judged(report: Report, pairs: Sequence[ApiPair], outcome: Outcome) -> Report:
    """The report with the verdicts of the rows.

    Args:
        report: both dumps as programs.
        pairs: the files.
        outcome: what became of each of them.
    """
    sides = list(zip(pairs, outcome.pairs, strict=True))
    doubts = {
        _key(pair, doubt): doubt for pair, result in sides for doubt in result.doubts
    }  # of mine, or of golden's where mine has none
    ranks = {_rank(pair.mine) for pair in pairs}
    comparisons = [_judged(each, doubts, ranks) for each in report.comparisons]
    told = {_named(each) for each in comparisons if each.verdict is Verdict.FAIL}
    comparisons += [
        _untold(pair, doubt)
        for pair, result in sides
        for doubt in result.doubts
        if doubt.fails and _key(pair, doubt) not in told
    ]
    origins = [
        _origin(report, pair, result.blamed, result.evidence, comparisons)
        for pair, result in sides
        if result.blamed is not None
    ]
    problems = [each for each in report.problems if not each.decides]
    problems += [Problem("both", text) for text in outcome.problems]
    return replace(report, comparisons=comparisons, origins=origins, problems=problems)


def _rank(side: ApiSide) -> tuple[int, int, int]:
    return side.place.step, side.place.rank, side.place.pid


def _key(pair: ApiPair, doubt: Doubt) -> Key:
    return (*_rank(pair.mine if doubt.mine is not None else pair.golden), doubt.item.name)


def _named(item: Comparison) -> Key:
    record = item.record
    return record.step, record.device, max(record.pid, 0), name_of(record)


def name_of(record: TensorRecord) -> str:
    """The name that the row of a tensor has."""
    return f"{record.op}.{record.label}" if record.label else record.op


def _judged(
    item: Comparison, doubts: Mapping[Key, Doubt], ranks: set[tuple[int, int, int]]
) -> Comparison:
    """A comparison with the verdict of the row of its tensor."""
    key = _named(item)
    if key[:3] not in ranks:
        return item
    doubt = doubts.get(key)
    if item.mine is None or item.golden is None:
        if doubt is None and item.verdict is Verdict.SKIPPED:
            return replace(item, comparable=False)  # its row has a counterpart, by its name
        return item
    if doubt is not None:
        verdict, reason, comparable = doubt.judged
    else:
        verdict, reason, comparable = Verdict.PASS, "", True
    if verdict is item.verdict:
        return item
    return replace(item, verdict=verdict, reason=reason, comparable=comparable)


def _untold(pair: ApiPair, doubt: Doubt) -> Comparison:
    """A row that fails and is no pair of tensors: an argument, or a tensor without values."""
    golden, mine = _record(pair.golden, doubt.golden), _record(pair.mine, doubt.mine)
    return Comparison(golden, mine, Verdict.FAIL, doubt.judged.reason, rule="names")


def _record(side: ApiSide, item: Item | None) -> TensorRecord | None:
    if item is None:
        return None
    place = side.place
    return TensorRecord(
        op=item.record,
        op_id=item.record,
        op_type=item.record,
        name=item.name.removeprefix(f"{item.record}."),
        role="out" if item.state == "output" else "in",
        index=0,
        path=str(place.path),
        label=item.name.removeprefix(f"{item.record}."),
        step=place.step,
        device=place.rank,
        pid=place.pid,
    )


def _origin(
    report: Report,
    pair: ApiPair,
    blamed: Doubt,
    evidence: str,
    comparisons: Sequence[Comparison],
) -> Origin:
    """Where the error of a rank starts, by the row that is named."""
    step, rank, pid = _rank(pair.mine)
    record = blamed.item.record
    for origin in report.origins:
        place = origin.step, origin.device, max(origin.pid, 0)
        if (*place, origin.op, origin.evidence) == (step, rank, pid, record, evidence):
            return origin
    index = next(_places(_key(pair, blamed), comparisons), None)
    golden = "" if blamed.golden is None else blamed.golden.record
    return Origin(record, record, record, step, rank, pid, golden, index, evidence, certain=False)


def _places(key: Key, comparisons: Sequence[Comparison]) -> Iterator[int]:
    return (place for place, each in enumerate(comparisons) if _named(each) == key)
