"""One bug: drawn, put into a program, captured, and looked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from shutil import rmtree

import torch

from ait_llm import compare
from ait_llm.core import DType
from ait_llm.core.comparison import Report, Verdict
from ait_llm.judge.tolerance import tolerance_for
from ait_llm.opcheck.pipeline import opcheck
from bugs.grading import Outcome, Truth, excess_of_modules, graded, is_named, single_dump
from bugs.model import KINDS, Injected, Kind, Nature, Surgery
from bugs.places import Places
from bugs.programs import Healthy, Pair, captured, draw, golden_of, healthy, is_sound, traced
from bugs.tracing import Call, culprits, rewritten
from bugs.visible import visible

_KINDS, _TRIES = 8, 60  # that are drawn, until one has a place in a program
_SHARE_NEAR = 0.33
_NEAR = (0.6, 0.95)
_AIM = 0.8


@dataclass(frozen=True)
class Bug:
    """A bug that was drawn.

    Attributes:
        number: of the trial; with the seed it says everything.
        kind: of bug.
        pair: programs.
        near: its error is just below the tolerance of a pair.
        strength: relative size, for kinds that have one.
        seed: of the site.
        truth: what is wrong.
        distance: of the first wrong values, over what the tolerance of a pair permits.
        roundings: their relative error, in units of one rounding of their type.
    """

    number: int
    kind: Kind
    pair: Pair
    near: bool
    strength: float
    seed: int
    truth: Truth
    distance: float
    roundings: float


@dataclass(frozen=True)
class Trial:
    """What was said about a bug.

    Attributes:
        bug: that was looked for.
        outcome: whether its origin was found.
        said: the first origin, and how it was found.
        accused: an innocent was named as certain.
        named: whether the report has the number; None where there is none.
        alone: whether the check of mine alone found it; None where that is no check for it.
        innocent: operators that the check of mine alone accuses wrongly.
        exit_code: of the comparison.
        excess: error over bound by the check of mine alone, in captures of modules that of the
            module that is wrong; None where it was not measured.
        visible: what the capture shows of the bug, beside the rounding of its type; None where
            something was said.
        deep: what a comparison with ``--deep`` says where one without says nothing.
    """

    bug: Bug
    outcome: Outcome
    said: str
    accused: bool
    named: bool | None
    alone: bool | None
    innocent: int
    exit_code: int
    excess: float | None
    visible: float | None
    deep: Outcome | None


def draw_bug(
    seed: int,
    number: int,
    kinds: Sequence[str],
    folder: Path,
    pairs: Callable[[Random], Pair] = draw,
) -> Bug:
    """Draw a bug that changes what its program computes.

    Args:
        seed, number: decide all that is left to chance.
        kinds: names of kinds to draw from.
        folder: where golden captures are kept.
        pairs: draws the programs.

    Raises:
        RuntimeError: none of the programs that were drawn has a place for it.
    """
    rng = Random(f"{seed}/{number}")
    graded = [name for name in kinds if KINDS[name].graded]
    near = bool(graded) and rng.random() < _SHARE_NEAR
    for _ in range(_KINDS):
        one = KINDS[rng.choice(graded if near else kinds)]
        for _ in range(_TRIES):
            pair, site = pairs(rng), rng.randrange(1 << 30)
            found = _try(number, one, pair, near, site)
            if found is not None and is_sound(pair, folder):
                return found
    raise RuntimeError(f"no program has a place for {', '.join(kinds)}")


def _try(number: int, one: Kind, pair: Pair, near: bool, site: int) -> Bug | None:
    strength = one.large
    for _ in range(6 if near else 1):
        with ExitStack() as stack:
            prepared = _inject(one, pair, site, strength, stack)
            if prepared is None:
                return None
            injected, surgery = prepared
            try:
                calls = traced(surgery.model, pair.mine, surgery.places)
            except (RuntimeError, IndexError, ValueError, TypeError):
                return None  # the program does not run with it
        before = healthy(pair.mine)
        truth = _truth(injected, before, calls)
        if not truth.operators and not (injected.words or one.nature is Nature.CODE):
            return None
        if not _differs(before, calls):
            return None
        distance, roundings = _distance(truth, before, calls)
        if not near:
            break
        if _NEAR[0] <= distance <= _NEAR[1]:
            break
        if not (0 < distance < math.inf):
            return None
        strength *= _AIM / distance
    else:
        return None
    return Bug(number, one, pair, near, strength, site, truth, distance, roundings)


def _inject(
    one: Kind, pair: Pair, site: int, strength: float, stack: ExitStack
) -> tuple[Injected, Surgery] | None:
    before = healthy(pair.mine)
    model = pair.mine.make()
    surgery = Surgery(
        model, Places(model), Random(site), strength, before.operators, before.functions, stack
    )
    with torch.no_grad():
        injected = one.inject(surgery)
    return None if injected is None else (injected, surgery)


def _truth(injected: Injected, before: Healthy, calls: Sequence[Call]) -> Truth:
    if injected.operator is not None:
        operators = frozenset({injected.operator})
    else:
        first = culprits(before.calls, calls)
        operators = frozenset(c.place for c in first if c.place.path in injected.owners)
        operators |= {c.place for c in rewritten(before.calls, calls, injected.owners)}
    return Truth(injected, operators)


def _differs(before: Healthy, calls: Sequence[Call]) -> bool:
    """True if the bug reaches the last result."""
    last, last_before = (
        [call for call in each if any(one.is_floating_point() for one in call.outputs)][-1]
        for each in (calls, before.calls)
    )
    return last.result != last_before.result


def _distance(truth: Truth, before: Healthy, calls: Sequence[Call]) -> tuple[float, float]:
    """Error of the first wrong values, over the tolerance of a pair, and in roundings."""
    right = {call.place: call for call in before.calls}
    worst, roundings = 0.0, 0.0
    for call in calls:
        if call.place not in truth.operators:
            continue
        healthy_call = right.get(call.place)
        if healthy_call is None or healthy_call.shapes != call.shapes:
            return math.inf, math.inf
        for golden, mine in zip(healthy_call.outputs, call.outputs, strict=True):
            if not mine.is_floating_point() or not mine.numel():
                continue
            limits = tolerance_for(_logical(mine), _logical(mine))
            error, element = _errors(golden.double(), mine.double())
            over = max(error / limits.relative_euclidean, element / limits.max_element)
            worst = max(worst, over)
            roundings = max(roundings, error / torch.finfo(mine.dtype).eps * 2)
    return worst, roundings


def _errors(golden: torch.Tensor, mine: torch.Tensor) -> tuple[float, float]:
    usual = golden.abs() < 1e4  # masks hide with the lowest numbers
    if not bool(mine[usual].isfinite().all()):
        return math.inf, math.inf
    golden, mine = golden[usual], mine[usual]
    if not golden.numel() or not bool(golden.any()):
        return (0.0, 0.0) if torch.equal(golden, mine) else (math.inf, math.inf)
    error = (mine - golden).abs()
    scale = golden.abs() + golden.square().mean().sqrt()
    return float(error.norm() / golden.norm()), float((error / scale).max())


def _logical(tensor: torch.Tensor) -> DType:
    name = str(tensor.dtype).removeprefix("torch.")
    return next(each for each in DType if each.torch_name == name)


def hunt(bug: Bug, folder: Path) -> Trial:
    """Capture a program with a bug, and let the tool look for it."""
    pair = bug.pair
    golden = golden_of(pair.golden, folder, operators=pair.operators)
    mine = folder / f"bug-{bug.number}"
    try:
        _capture(bug, mine)
        report = compare(golden, mine, jobs=1)
        outcome, accused = graded(bug.truth, report, mine, bug.kind.nature)
        alone, innocent, excess, seen, deep = None, 0, None, None, None
        if bug.kind.nature is Nature.KERNEL and pair.operators:
            alone, innocent, excess = single_dump(bug.truth, opcheck(mine, jobs=1))
        if outcome is Outcome.SILENT:
            if not pair.operators and bug.kind.nature in (Nature.KERNEL, Nature.CODE):
                excess = excess_of_modules(bug.truth, opcheck(mine, jobs=1))
            wider = "float64" if pair.mine.dtype == "float32" else "float32"
            programs = pair.mine, replace(pair.mine, dtype=wider)
            without = (golden_of(each, folder, operators=pair.operators) for each in programs)
            seen = visible(mine, *without)
            deeply = compare(golden, mine, jobs=1, deep=True)
            deep, blamed = graded(bug.truth, deeply, mine, bug.kind.nature)
            accused |= blamed
    finally:
        rmtree(mine, ignore_errors=True)
    return Trial(
        bug,
        outcome,
        _said(report),
        accused,
        is_named(bug.truth.injected, report, bug.kind.nature),
        alone,
        innocent,
        report.exit_code(),
        excess,
        seen,
        deep,
    )


def _capture(bug: Bug, folder: Path) -> None:
    with ExitStack() as stack:
        prepared = _inject(bug.kind, bug.pair, bug.seed, bug.strength, stack)
        assert prepared is not None
        model, places = prepared[1].model, prepared[1].places
        captured(model, bug.pair.mine, places, folder, operators=bug.pair.operators)


def _said(report: Report) -> str:
    if not report.origins:
        failed = report.counts[Verdict.FAIL]
        return f"no origin; {failed} comparisons fail" if failed else "nothing"
    first = report.origins[0]
    sure = "certain" if first.certain else f"one of {1 + len(first.candidates)}"
    return f"{first.op} ({sure}): {first.evidence}"
