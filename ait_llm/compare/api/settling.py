"""Rows that did not pass, looked at once more with both dumps as programs.

Names say too little of some rows. A program that computes attention in another way, keeps another
cache or cuts its prompt into pieces has other calls of the same names: what stands in one row is
no counterpart then, and the counterpart stands in another. Values may carry the rounding of a
coarser type that they went through, and memory that nobody has written is no error. That takes
longer than the tables, so it is done where a row did not pass, of dumps that are not too large.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ait_llm.compare.api.item import Item
from ait_llm.compare.api.outcome import Doubt, Outcome, PairOutcome
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.sides import ApiPair, ApiSide
from ait_llm.compare.api.verdicts import PASSED, Judged
from ait_llm.core.comparison import Comparison, Origin, Report, TensorRecord, Verdict
from ait_llm.errors import AitError
from ait_llm.program.counted_places import PLACES

MOST_BYTES = 32 << 20  # of the JSON files of one side
_ANOTHER = Judged(
    Verdict.SKIPPED, "the call of this name is another one in the other program", False
)
_OF_OTHERS = Judged(
    Verdict.SKIPPED,
    "each side calls it with other tokens, and what it gives for the same agrees",
    False,
)
_OTHER_TOKENS = Judged(
    Verdict.SKIPPED, "the step of this number reads other tokens on the other side", False
)
_WITHOUT_EFFECT = Judged(Verdict.SKIPPED, "the mode differs, and what the call gives agrees", False)
# Arguments that say whether a call drops values out.
_OF_TRAINING = frozenset({"training", "train", "dropout_p"})
_BY_NAME = (
    f"calls were paired by their names alone: the files of a side have more than "
    f"{MOST_BYTES >> 20} MiB of JSON; rows of calls that the other program does not make may fail"
)
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
        if any(map(_is_large, ([pair.mine for pair in pairs], [pair.golden for pair in pairs]))):
            outcome.notes.append(_BY_NAME)
            return
        report = _compared(mine, golden, options)
    if report is None or report.partial:
        return
    found = _Found(report, by_user=bool(options.table or options.fuzzy))
    before = [result.doubts for result in outcome.pairs]
    for pair, result in zip(pairs, outcome.pairs, strict=True):
        if pair.mode != "md5":  # which asks for the same bits
            result.settle([found.judge(pair, doubt) for doubt in result.doubts])
        _blame(pair, result, report.origins)
    if before != [result.doubts for result in outcome.pairs]:
        # steps of one side may answer others, and what only one of them makes decides nothing,
        # unless it is what all comes to
        outcome.problems[:] = [each.text for each in report.problems if each.decides]


def _is_large(sides: Sequence[ApiSide]) -> bool:
    return sum(side.place.path.stat().st_size for side in sides) > MOST_BYTES


def _compared(mine: Path, golden: Path, options: ApiOptions) -> Report | None:
    """Both dumps as programs; None where they cannot be."""
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


class _Found:
    """What a comparison of programs says of tensors and calls, by their names.

    Args:
        report: on the programs.
        by_user: the user says which call is which, whatever the programs say.
    """

    def __init__(self, report: Report, *, by_user: bool) -> None:
        self._by_user = by_user
        self._agrees = bool(report.counts[Verdict.PASS]) and not report.counts[Verdict.FAIL]
        self._pairs: dict[tuple[_Key, _Key], Comparison] = {}
        self._single: dict[tuple[str, _Key], Comparison] = {}
        self._partners: dict[tuple[str, _Key], set[_Key]] = defaultdict(set)
        self._steps: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._counting: set[tuple[str, _Key]] = set()  # calls of which each side counts its own
        self._shapes: dict[tuple[str, _Key], dict[str, Sequence[int] | None]] = defaultdict(dict)
        self._results: dict[tuple[_Key, _Key], set[Verdict]] = defaultdict(set)
        for item in report.comparisons:
            sides = {"mine": item.mine, "golden": item.golden}
            known = {side: record for side, record in sides.items() if record is not None}
            for side, record in known.items():
                self._single[side, _key_of(record)] = item
                self._shapes[side, _call_of(record)][record.name] = record.shape
                if item.reason == PLACES:
                    self._counting.add((side, _call_of(record)))
                others = (_call_of(other) for other in known.values() if other is not record)
                self._partners[side, _call_of(record)].update(others)
            if item.mine is not None and item.golden is not None:
                self._pairs[_key_of(item.mine), _key_of(item.golden)] = item
                calls = _call_of(item.mine), _call_of(item.golden)
                if item.mine.role == item.golden.role == "out":
                    self._results[calls].add(item.verdict)
                self._steps["mine", item.mine.step].add(item.golden.step)
                self._steps["golden", item.golden.step].add(item.mine.step)
        self._passes = frozenset(report.passes)
        self._calls = Counter((side, _function(call)) for side, call in self._partners)

    def judge(self, pair: ApiPair, doubt: Doubt) -> Doubt:
        """A row with what is known of its tensors, or of the calls whose arguments it shows."""
        rows = {"mine": (pair.mine, doubt.mine), "golden": (pair.golden, doubt.golden)}
        given = {name: (side, item) for name, (side, item) in rows.items() if item is not None}
        calls = {name: _key(side, item.record) for name, (side, item) in given.items()}
        if not self._is_paired(pair):
            return doubt._replace(judged=self._of_other_passes(given))
        if not doubt.item.is_tensor:
            name = doubt.item.name.rpartition(".")[2]
            return doubt._replace(judged=self._argument(calls, doubt.judged, name))
        keys = {name: _key(side, _name_of(item)) for name, (side, item) in given.items()}
        return doubt._replace(judged=self._tensor(keys, calls, doubt.judged))

    def _is_paired(self, pair: ApiPair) -> bool:
        """False for steps of one number that read other tokens: the programs were shown others."""
        if self._by_user or not self._passes:
            return True
        return (pair.golden.place.step, pair.mine.place.step) in self._passes

    def _of_other_passes(self, given: Mapping[str, tuple[ApiSide, Item]]) -> Judged:
        """A row of steps that are no counterparts: what mine is by the step that is its own."""
        side, item = given.get("mine", (None, None))
        if side is None or item is None or not item.is_tensor:
            return _OTHER_TOKENS
        found = self._single.get(("mine", _key(side, _name_of(item))))
        is_compared = found is not None and found.golden is not None
        return _elsewhere(found, _OTHER_TOKENS) if found and is_compared else _OTHER_TOKENS

    def _tensor(
        self, keys: Mapping[str, _Key], calls: Mapping[str, _Key], judged: Judged
    ) -> Judged:
        from ait_llm.match.programs.reasons import UNINITIALISED

        means_nothing = UNINITIALISED, PLACES
        known = [self._single.get(key) for key in keys.items()]
        if len(keys) == 2:
            found = self._pairs.get((keys["mine"], keys["golden"]))
            if found is not None:
                passes = found.verdict is Verdict.PASS and judged.verdict is Verdict.FAIL
                fails = found.verdict is Verdict.FAIL and judged.verdict is Verdict.FAIL
                # rows of the same tokens are compared, whatever the shapes of all are
                judged = judged._replace(reason=found.reason) if fails else judged
                if found.verdict is Verdict.SKIPPED and not found.comparable:
                    return Judged(Verdict.SKIPPED, found.reason, False)
                return PASSED if passes else judged
        for each in known:
            if each is not None and each.reason in means_nothing:
                return Judged(Verdict.SKIPPED, each.reason, False)
        if known[0] is None or known[-1] is None or (len(keys) == 2 and self._is_alone(calls)):
            return judged
        if self._agrees and known[0].verdict is Verdict.SKIPPED:
            return Judged(Verdict.SKIPPED, known[0].reason, known[0].comparable)
        return _elsewhere(known[0], judged)

    def _is_alone(self, calls: Mapping[str, _Key]) -> bool:
        """True if nothing but their names, or the user, says whether two calls are the same one.

        Where one side calls a function more often, the numbers of its calls say nothing, and in
        steps that read other tokens none do. Where all that follows agrees, what was computed
        otherwise before it is right, too.
        """
        if self._by_user or self._agrees:
            return self._by_user
        mine, golden = calls["mine"], calls["golden"]
        steps = self._steps["mine", mine[0]] | {golden[0]}, self._steps["golden", golden[0]]
        if max(map(len, steps)) > 1:
            return False
        if self._partners["mine", mine] or self._partners["golden", golden]:
            return False
        return self._calls["mine", _function(mine)] == self._calls["golden", _function(golden)]

    def _are_of_other_shapes(self, mine: _Key, golden: _Key) -> bool:
        """True if a tensor of two calls has another shape on the other side."""
        ours, theirs = self._shapes["mine", mine], self._shapes["golden", golden]
        return any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys())

    def _argument(self, calls: Mapping[str, _Key], judged: Judged, name: str) -> Judged:
        """What an argument counts as that is no tensor: only the same call has the same ones.

        One that a side does not state is no loss: tensors of the call are compared.
        """
        if not all(call in self._partners for call in calls.items()):
            return judged
        if self._counting.issuperset(calls.items()):
            return Judged(Verdict.SKIPPED, PLACES, False)
        if len(calls) == 2:
            pair = calls["mine"], calls["golden"]
            agrees = self._results.get(pair) == {Verdict.PASS}
            if name in _OF_TRAINING and (agrees or self._agrees):
                return _WITHOUT_EFFECT
            if (agrees or self._agrees) and self._are_of_other_shapes(*pair):
                return _OF_OTHERS  # one query hides no keys from itself
            is_same = calls["golden"] in self._partners["mine", calls["mine"]]
            return judged if is_same or self._is_alone(calls) else _ANOTHER
        [(side, call)] = calls.items()
        partners = self._partners[side, call]
        return judged._replace(comparable=False) if call[-1] in _names(partners) else _ANOTHER


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


def _name_of(item: Item) -> str:
    """As a record of a tensor has it, which is an input, whether it was named or not."""
    rest = item.name.removeprefix(f"{item.record}.")
    named = rest.removeprefix("kwargs.")
    return item.name if named == rest else f"{item.record}.input.{named}"


def _call_of(record: TensorRecord) -> _Key:
    return record.step, record.device, max(record.pid, 0), record.op


def _names(calls: Iterable[_Key]) -> set[str]:
    return {name for *_, name in calls}


def _function(call: _Key) -> tuple[int, str]:
    """The step and the function of a call, ``Tensor.__add__``."""
    return call[0], call[-1].rsplit(".", 2)[0]


def _key(side: ApiSide, name: str) -> _Key:
    place = side.place
    return place.step, place.rank, place.pid, name


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
