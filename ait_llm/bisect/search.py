"""The search: statistics of everything, then values around the first difference."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from ait_llm.bisect.captures import Captured, Kind, Program, Runner, Selection
from ait_llm.bisect.given import given_inputs, has_padding, other_given
from ait_llm.bisect.inside import is_open, look_inside
from ait_llm.bisect.merging import merge
from ait_llm.bisect.picture import Looker, Picture, look
from ait_llm.bisect.planning import TooLarge, cache_writers, next_capture, spread_outputs
from ait_llm.bisect.repeating import Unrepeated, first_difference
from ait_llm.bisect.result import BisectResult, RunRecord, Status
from ait_llm.bisect.runs import Bisection, ProgramFailedError, Runs
from ait_llm.bisect.sizes import full_bytes
from ait_llm.bisect.step import Capture
from ait_llm.compare.origin_finding import OTHER_INPUT, OTHER_WEIGHT
from ait_llm.core.comparison import Origin, Verdict
from ait_llm.dumps import open_dump
from ait_llm.errors import IncompleteError, UsageError
from ait_llm.judge.evidence import Introduced
from ait_llm.match.model import SideName

_DEPTHS = (2, 4, 8, 16, 32)
_MOST_CAPTURES = 12
_FINGERPRINT = {
    "atb": "--type stats layer model",
    "torch": "--type torch-stats --weights",
    None: "--type stats layer model, or torch-stats --weights",
}


class _Ended(Exception):
    """The search is over."""

    def __init__(self, result: BisectResult) -> None:
        self.result = result


def bisect(
    request: Bisection,
    runner: Runner,
    *,
    on_run: Callable[[RunRecord], None] | None = None,
    looker: Looker = look,
) -> BisectResult:
    """Find the operation at which two programs part, writing few bytes.

    Args:
        request: the programs and the limits.
        runner: runs them.
        on_run: called before each run, and again with its bytes when it has ended.
        looker: compares what was captured.

    Raises:
        UsageError: the folder is in use, or a program cannot be started.
        AitError: a capture is damaged or cannot be compared.
    """
    return _Search(request, runner, on_run, looker).run()


class _Search:
    def __init__(
        self,
        request: Bisection,
        runner: Runner,
        on_run: Callable[[RunRecord], None] | None,
        looker: Looker,
    ) -> None:
        self._request = request
        self._look = looker
        self._runs = Runs(request, runner, on_run if on_run is not None else lambda _record: None)
        self._notes: list[str] = []
        self._compared = 0
        self._inherits = False
        self._spread: Capture | None = None  # in place of statistics that count padding

    def run(self) -> BisectResult:
        """The whole search."""
        folder = self._request.folder
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is in use already; give another one with -o")
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        try:
            self._fingerprints()
            return self._inside(self._narrow())
        except _Ended as end:
            return end.result
        except ProgramFailedError as error:
            if error.ran_before:
                self._notes.append(error.sentence())
            return replace(self._result("failed"), side=error.side, program_code=error.code)

    # --- statistics of everything ---

    def _fingerprints(self) -> None:
        request = self._request
        self._statistics("mine", self._dump("mine"), "statistics of all operations", None)
        own = self._runs.records[-1].written or 0
        self._runs.full["mine"] = full_bytes(open_dump(self._dump("mine")))
        for again in range(2, request.runs + 1):
            other = request.folder / f"mine_run_{again}"
            self._statistics("mine", other, f"the same again, run {again}", own)
            found = first_difference(open_dump(self._dump("mine")), open_dump(other))
            if found is not None:
                self._unrepeatable("mine", found)
        self._statistics("golden", self._dump("golden"), "statistics of all operations", own)
        self._runs.full["golden"] = full_bytes(open_dump(self._dump("golden")))

    def _statistics(self, side: SideName, folder: Path, what: str, expected: int | None) -> None:
        self._check_budget(expected, what)
        options = f"{_FINGERPRINT[self._runs.programs[side].kind]} -er {self._request.steps}"

        def capture(program: Program) -> Captured:
            return self._runs.runner.statistics(program, folder, self._request.steps)

        self._runs.start(side, what, options, expected, capture)

    def _check_budget(self, expected: int | None, what: str) -> None:
        """End the search if a run would exceed the budget, or earlier ones did."""
        limit, written = self._runs.limit(), self._runs.written
        if limit is None or written + (expected or 0) <= limit:
            return
        advice = "look at fewer tokens with -er, or raise --budget"
        if 0 < len(self._runs.records) < self._request.runs:
            advice += "; --runs 1 saves a run"
        if written > limit:
            text = f"the statistics took {written:,} bytes of a budget of {limit:,}"
        else:
            text = (
                f"{what} would take about {expected or 0:,} bytes, and {limit - written:,} are left"
            )
        self._notes.append(f"{text}; {advice}")
        self._end("undecided")

    # --- values around the first difference ---

    def _narrow(self) -> BisectResult:
        depth = 0
        done: set[Capture | TooLarge] = set()
        picture = self._see()
        for _ in range(_MOST_CAPTURES):
            origin = self._decided(picture)
            if origin is not None:
                return self._result("found", origin)
            capture = self._of_the_whole(picture) or self._next(picture, _DEPTHS[depth])
            if capture is None and depth == 0:
                capture = self._before(picture)
            while capture is None and picture.failed and depth + 1 < len(_DEPTHS):
                depth += 1
                capture = self._next(picture, _DEPTHS[depth])
            if capture is None or capture in done:  # what cannot be captured is not asked again
                return self._exhausted(picture)
            if isinstance(capture, TooLarge):
                self._notes.append(
                    f"the values of {', '.join(capture.operations)} would take "
                    f"{capture.bytes:,} bytes, more than the budget has left; raise --budget"
                )
                return self._result("undecided", picture.origin)
            done.add(capture)
            self._capture(capture)
            picture = self._see()
        self._notes.append(f"given up after {_MOST_CAPTURES} captures")
        return self._result("undecided", picture.origin)

    def _next(self, picture: Picture, depth: int) -> Capture | TooLarge | None:
        for place in picture.places:
            capture = next_capture(place, self._runs.left(), depth)
            if capture is not None:
                return capture
        return None

    def _of_the_whole(self, picture: Picture) -> Capture | None:
        """What the programs are given; values anywhere, where padding spoils the statistics."""
        left, origin = self._runs.left(), picture.origin
        if picture.failed:
            blamed = origin is not None and origin.kind == OTHER_INPUT
            return given_inputs(picture.places[0], left, blamed=blamed)
        if any(each.verdict is Verdict.FAIL for each in picture.report.comparisons):
            captures = (given_inputs(at, left, blamed=False) for at in picture.runs)
            if (capture := next(filter(None, captures), None)) is not None:
                return capture
        padded = next((at for at in picture.runs if has_padding(at)), None)
        if padded is None or self._spread is not None:
            return None
        self._spread = spread_outputs(padded, left, anyway=True)
        return self._spread

    def _before(self, picture: Picture) -> Capture | None:
        for place in picture.earlier:
            capture = cache_writers(place, self._runs.left())
            if capture is not None:
                return capture
        return None

    def _decided(self, picture: Picture) -> Origin | None:
        """The origin, if values prove it."""
        given = next(filter(None, map(other_given, picture.runs)), None)
        if given is not None:
            return given
        origin = picture.origin
        if origin is not None and origin.certain and origin.kind == OTHER_WEIGHT:
            return origin  # stated by both captures; no value is needed
        if origin is not None and picture.inherits(origin):
            return picture.wrong_before()
        if origin is None or not origin.certain:
            return None
        examined = picture.examined(origin)
        if isinstance(examined, Introduced):
            return origin if examined.is_suspect else None
        # Without a golden operator the comparison of its values with golden's has to do.
        return origin if examined is not None and picture.is_compared(origin) else None

    def _exhausted(self, picture: Picture) -> BisectResult:
        """Everything near was captured, and no operation was proved wrong."""
        if not picture.failed:
            if self._spread is None and any(map(has_padding, picture.runs)):
                self._notes.append(
                    "statistics count rows of padding, so that values must tell, and no value fits "
                    "into what the budget has left; raise --budget"
                )
                return self._result("undecided")
            if picture.places and picture.places[0].is_alike:
                self._notes.append(
                    "the two programs are not equal to the bit, and the operations near the first "
                    "difference compute rightly from their own inputs: they round differently"
                )
            return self._result("equal")
        origin = picture.origin
        proved = (
            origin is not None
            and origin.certain
            and picture.examined(origin) is not None
            and picture.is_compared(origin)
            and not picture.inherits(origin)
        )
        return self._result("found" if proved else "undecided", origin)

    def _capture(self, capture: Capture) -> None:
        plans: tuple[tuple[SideName, Selection | None, int], ...] = (
            ("mine", capture.mine, capture.my_bytes),
            ("golden", capture.golden, capture.golden_bytes),
        )
        for side, selection, expected in plans:
            if selection is None:
                continue
            kind: Kind = self._runs.programs[side].kind or "atb"
            folder = self._request.folder / f"capture_{len(self._runs.records) + 1}"
            count = len(selection.operations)
            what = f"values of {count} operation{'s' if count > 1 else ''}: {capture.why}"
            types = "--type tensor stats" if kind == "atb" else "--type torch torch-stats"
            self._runs.start(
                side,
                what,
                f"{types} {selection.options(kind)}",
                expected,
                partial(self._values, folder, selection),
            )
            different = merge(folder, self._dump(side))
            shutil.rmtree(folder)
            if different is not None:
                self._unrepeatable(side, different)

    def _values(self, folder: Path, selection: Selection, program: Program) -> Captured:
        return self._runs.runner.values(program, folder, selection)

    def _see(self) -> Picture:
        picture = self._compare(self._dump("golden"), self._dump("mine"))
        self._compared = picture.report.compared
        self._inherits = picture.origin is not None and picture.inherits(picture.origin)
        if not picture.report.compared:
            raise IncompleteError(
                "the two programs have no tensor in common that could be compared; are they the "
                "same model?"
            )
        return picture

    def _compare(self, golden: Path, mine: Path) -> Picture:
        picture = self._look(golden, mine)
        if picture.report.partial:
            self._end("interrupted")
        return picture

    # --- operators in the module that is named ---

    def _inside(self, result: BisectResult) -> BisectResult:
        """The result with the operator in place of its module, as far as it can be told."""
        origin = result.origin
        if origin is None or result.status not in ("found", "undecided"):
            return result
        if self._inherits and origin.kind != OTHER_INPUT:
            return result
        if not is_open(self._runs, origin, certain=result.status == "found"):
            return result
        inside = look_inside(self._runs, self._compare, origin)
        self._notes += inside.notes
        if inside.origin is None:
            return self._result(result.status, origin)
        status: Status = "found" if inside.certain else result.status
        found = replace(self._result(status, inside.origin), module=origin.op)
        return replace(found, operators=inside.folders, compared=inside.compared)

    # --- the end ---

    def _unrepeatable(self, side: SideName, found: Unrepeated) -> None:
        self._end("unrepeatable", unrepeated=found, side=side)

    def _end(
        self, status: Status, *, unrepeated: Unrepeated | None = None, side: str = ""
    ) -> NoReturn:
        raise _Ended(replace(self._result(status), unrepeated=unrepeated, side=side))

    def _result(self, status: Status, origin: Origin | None = None) -> BisectResult:
        return BisectResult(
            status,
            self._request.folder,
            tuple(self._runs.records),
            origin,
            limit=self._runs.limit(),
            full=self._runs.full_bytes(),
            compared=self._compared,
            notes=tuple(self._notes),
        )

    def _dump(self, side: SideName) -> Path:
        return self._runs.dump(side)
