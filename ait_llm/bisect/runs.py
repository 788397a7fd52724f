"""The runs of both programs: each is told before it starts, and counts against the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ait_llm.bisect.budget import Budget
from ait_llm.bisect.captures import Captured, Program, Runner
from ait_llm.bisect.result import RunRecord
from ait_llm.core import StepRange
from ait_llm.errors import IncompleteError
from ait_llm.match.model import SideName

FIRST_STEPS = StepRange(((0, 1),))


@dataclass(frozen=True, slots=True)
class Bisection:
    """What is asked for.

    Attributes:
        mine, golden: the two programs.
        budget: how many bytes all captures may write.
        folder: a folder that does not exist or is empty; everything is written below it.
        steps: executions of each operation that are looked at.
        runs: how often the statistics of mine are captured, to see whether it repeats itself.
    """

    mine: Program
    golden: Program
    budget: Budget
    folder: Path
    steps: StepRange = FIRST_STEPS
    runs: int = 2


class ProgramFailedError(Exception):
    """A program ended with an error.

    Attributes:
        side: whose it is.
        code: its exit code, or 128 plus the signal that ended it.
        ran_before: an earlier run of it ended well.
    """

    def __init__(self, side: SideName, code: int, *, ran_before: bool) -> None:
        super().__init__(side, code)
        self.side: SideName = side
        self.code = code
        self.ran_before = ran_before

    def sentence(self) -> str:
        """What to say where an earlier run ended well."""
        return (
            f"the {word(self.side)} program ran and then did not run again (exit code {self.code}):"
            " bisect starts it several times, so each run must find what the first one found: its "
            "files, its ports, its memory"
        )


class Runs:
    """Starts programs and keeps account of what they write.

    Args:
        request: the programs and the limits.
        runner: runs them.
        tell: called before each run, and again with its bytes when it has ended.

    Attributes:
        records: all runs so far.
        programs: with their kinds, as soon as they are known.
        full: bytes of a full dump of each, as soon as they are known.
    """

    def __init__(
        self, request: Bisection, runner: Runner, tell: Callable[[RunRecord], None]
    ) -> None:
        self.runner = runner
        self.records: list[RunRecord] = []
        self.programs: dict[SideName, Program] = {"mine": request.mine, "golden": request.golden}
        self.full: dict[SideName, int] = {}
        self._request = request
        self._tell = tell

    @property
    def folder(self) -> Path:
        """Everything is written below it."""
        return self._request.folder

    def dump(self, side: SideName) -> Path:
        """The folder of the statistics of a program, to which values are added."""
        return self.folder / side

    def start(
        self,
        side: SideName,
        what: str,
        options: str,
        planned: int | None,
        capture: Callable[[Program], Captured],
    ) -> Captured:
        """Run a program.

        Args:
            side: which.
            what: what is captured, in a few words.
            options: the same as options of ``ait llm dump``.
            planned: bytes that it should write; None where they are not known.
            capture: runs it.

        Raises:
            ProgramFailedError: it ended with an error.
            IncompleteError: nothing of it was seen.
        """
        record = RunRecord(len(self.records) + 1, side, what, options, planned)
        self._tell(record)
        captured = capture(self.programs[side])
        record = replace(record, written=captured.bytes, exit_code=captured.exit_code)
        ran_before = any(each.side == side for each in self.records)
        self.records.append(record)
        self._tell(record)
        if captured.exit_code:
            raise ProgramFailedError(side, captured.exit_code, ran_before=ran_before)
        if captured.kind is None:
            raise IncompleteError(
                f"no operation of the {word(side)} program was seen: {_reason(captured.problems)}"
            )
        self.programs[side] = replace(self.programs[side], kind=captured.kind)
        return captured

    @property
    def written(self) -> int:
        """Bytes that all runs wrote."""
        return sum(run.written or 0 for run in self.records)

    def full_bytes(self) -> int | None:
        """Bytes of full dumps of both; golden is taken to be like mine until it is known."""
        if "mine" not in self.full:
            return None
        return self.full["mine"] + self.full.get("golden", self.full["mine"])

    def limit(self) -> int | None:
        """Bytes that all runs may write; None while that is not known."""
        return self._request.budget.limit(self.full_bytes())

    def left(self) -> int | None:
        """Bytes that may still be written; None for any number."""
        limit = self.limit()
        return None if limit is None else max(0, limit - self.written)


def word(side: SideName) -> str:
    """How messages call a program."""
    return "golden" if side == "golden" else "suspicious"


def _reason(problems: Sequence[str]) -> str:
    return problems[0] if problems else "nothing was captured"
