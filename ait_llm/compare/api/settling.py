"""Rows that did not pass, looked at once more with both dumps as programs.

Names say too little of some rows: what one side computes in another order or under other names has
its counterpart elsewhere, values may carry the rounding of a coarser type that they went through,
and memory that nobody has written is no error. That takes longer than the tables, so it is done
where a row did not pass, of dumps that are not too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.api.item import Item
from ait_llm.compare.api.outcome import Doubt, Outcome, PairOutcome
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.sides import ApiPair, ApiSide
from ait_llm.compare.api.verdicts import PASSED, Judged
from ait_llm.core.comparison import Comparison, Origin, Report, TensorRecord, Verdict
from ait_llm.errors import AitError

MOST_BYTES = 16 << 20  # of the JSON files of one side
_Key = tuple[int, int, int, str]  # step, rank, process, name


def settle(
    outcome: Outcome,
    pairs: Sequence[ApiPair],
    mine: Path,
    golden: Path,
    options: ApiOptions,
    report: Report | None = None,
) -> None:
    """Judge rows anew that did not pass, and say of each rank which row is to be looked at first.

    Args:
        outcome: what the tables found; it is changed.
        pairs: the files, in the order of ``outcome.pairs``.
        mine, golden: as given.
        options: settings of the user.
        report: both compared as programs, if that was done already.
    """
    if not any(result.doubts for result in outcome.pairs):
        return
    if report is None:
        report = _compared(pairs, mine, golden, options)
    if report is None or report.partial:
        return
    found = _Found(report.comparisons)
    alone = sum(result.incomparable for result in outcome.pairs)
    for pair, result in zip(pairs, outcome.pairs, strict=True):
        if pair.mode != "md5":  # which asks for the same bits
            result.settle(found.judge(pair, doubt) for doubt in result.doubts)
        _blame(pair, result, report.origins)
    if sum(result.incomparable for result in outcome.pairs) > alone:
        # what only one of them makes decides nothing, unless it is what all comes to
        outcome.problems += [each.text for each in report.problems if each.decides]


def _compared(
    pairs: Sequence[ApiPair], mine: Path, golden: Path, options: ApiOptions
) -> Report | None:
    """Both dumps as programs; None where that would take long, or cannot be."""
    for sides in ([pair.mine for pair in pairs], [pair.golden for pair in pairs]):
        if sum(side.place.path.stat().st_size for side in sides) > MOST_BYTES:
            return None
    from ait_llm.compare import compare  # takes long

    try:
        return compare(
            golden.parent if golden.is_file() else golden,
            mine.parent if mine.is_file() else mine,
            tolerance=options.tolerance,
            jobs=options.jobs,
        )
    except AitError:
        return None


@dataclass
class _Found:
    """What a comparison of programs says of tensors, by their names."""

    comparisons: Iterable[Comparison]
    verdicts: dict[tuple[_Key, _Key], Comparison] = field(default_factory=dict)
    single: dict[tuple[str, _Key], Comparison] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in self.comparisons:
            keys = [_key_of(record) for record in (item.mine, item.golden) if record is not None]
            if item.mine is not None and item.golden is not None:
                self.verdicts[keys[0], keys[1]] = item
            if item.mine is not None:
                self.single["mine", keys[0]] = item
            if item.golden is not None:
                self.single["golden", keys[-1]] = item

    def judge(self, pair: ApiPair, doubt: Doubt) -> Doubt:
        """A row with what is known of its tensors."""
        if not doubt.item.is_tensor:
            return doubt
        keys = {}
        if doubt.mine is not None:
            keys["mine"] = _key(pair.mine, doubt.mine)
        if doubt.golden is not None:
            keys["golden"] = _key(pair.golden, doubt.golden)
        if len(keys) == 2:
            found = self.verdicts.get((keys["mine"], keys["golden"]))
            if found is not None and found.verdict is Verdict.PASS and doubt.fails:
                return doubt._replace(judged=PASSED)
        from ait_llm.match.programs.reasons import UNINITIALISED

        alone = [self.single.get(key) for key in keys.items()]
        if any(each is not None and each.reason == UNINITIALISED for each in alone):
            return doubt._replace(judged=Judged(Verdict.SKIPPED, UNINITIALISED, False))
        if len(keys) == 1 and alone[0] is not None:
            return doubt._replace(judged=_elsewhere(alone[0], doubt.judged))
        return doubt


def _elsewhere(found: Comparison, judged: Judged) -> Judged:
    """What a tensor counts as that has no counterpart of its name."""
    if found.verdict is Verdict.PASS:
        return PASSED
    if found.verdict is Verdict.FAIL:
        return Judged(Verdict.FAIL, found.reason)
    return Judged(Verdict.SKIPPED, found.reason, False) if not found.comparable else judged


def _key_of(record: TensorRecord) -> _Key:
    name = f"{record.op}.{record.label}" if record.label else record.op
    return record.step, record.device, max(record.pid, 0), name


def _key(side: ApiSide, item: Item) -> _Key:
    place = side.place
    return place.step, place.rank, place.pid, item.name


def _blame(pair: ApiPair, result: PairOutcome, origins: Sequence[Origin]) -> None:
    """The first row that fails, of the operation where the error starts if that is known."""
    failing = [doubt for doubt in result.doubts if doubt.fails]
    if not failing:
        if not result.counts[Verdict.FAIL]:
            result.blame(None, "")
        return
    place = pair.mine.place
    for origin in origins:
        if (origin.device, max(origin.pid, 0), origin.step) != (place.rank, place.pid, place.step):
            continue
        of_it = [doubt for doubt in failing if doubt.item.record == origin.op]
        if of_it:
            result.blame(of_it[0], origin.evidence or of_it[0].judged.reason)
            return
    result.blame(failing[0], failing[0].judged.reason)
