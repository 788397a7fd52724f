"""What a check says about one output, and what all checks say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ait_llm.core.comparison import Problem, Verdict
from ait_llm.faults import EXIT_CODE

FailOn = Literal["fail", "error", "skipped", "never"]
FAIL_ON: tuple[FailOn, ...] = ("fail", "error", "skipped", "never")
FAILING: Mapping[str, frozenset[Verdict]] = {
    "fail": frozenset({Verdict.FAIL}),
    "error": frozenset({Verdict.FAIL, Verdict.ERROR}),
    "skipped": frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.SKIPPED}),
    "never": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Rerun:
    """What running the operator again gave.

    Attributes:
        backend: ``torch_atb``, or the function that ran it; ``none`` where nothing could.
        verdict: of the rerun against golden; SKIPPED with its reason where it could not run.
        same_as_dump: whether the dumped output is what the rerun gave, by the same standard; None
            where one of them is missing.
        cause: what follows from the three, as a clause; empty where all agree.
        rate: percentage of elements within the manual's relative error, rerun against golden.
        max_relative: largest relative error, likewise.
    """

    backend: str
    verdict: Verdict
    same_as_dump: bool | None = None
    cause: str = ""
    rate: float | None = None
    max_relative: float | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """One output of one operator, checked or not.

    Attributes:
        op_id: position in the topology, ``2_1_3``.
        op_type: ``LinearOperation``.
        verdict: PASS, FAIL, SKIPPED or ERROR.
        output: ``outtensor0``; ``intensor2`` for an input that the operator overwrites; empty
            where the operator as a whole was not checked.
        reason: why it did not pass; empty for a PASS.
        note: what a reader of a PASS should know too, such as parameters that had to be guessed.
        step, device, pid: execution count and process.
        params: the parameters as JSON text.
        path: folder of its tensors.
        standard: name of the standard.
        limit: what the standard demands.
        dtype, shape: of the output under test.
        rate, max_relative: the manual's columns: percentage of elements within the relative error
            of its level, and the largest one. None where nothing was measured.
        abs_rate, max_absolute, cosine, kl: the optional ones.
        first_bad: index of the first element beyond the limit.
        golden_value, mine_value: the values there.
        values: further numbers of the standard.
        rerun: result of running it again; None if nobody asked.
        stamp: bytes and time of the last change in ns of all files of the operator.
        fault: traceback of the exception, a fault of ait, that an ERROR stands for; else empty.
    """

    op_id: str
    op_type: str
    verdict: Verdict
    output: str = ""
    reason: str = ""
    note: str = ""
    step: int = 0
    device: int = -1
    pid: int = -1
    params: str = ""
    path: str = ""
    standard: str = ""
    limit: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    rate: float | None = None
    max_relative: float | None = None
    abs_rate: float | None = None
    max_absolute: float | None = None
    cosine: float | None = None
    kl: float | None = None
    first_bad: tuple[int, ...] | None = None
    golden_value: float | None = None
    mine_value: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    rerun: Rerun | None = None
    stamp: tuple[int, int] | None = None
    fault: str = ""

    @property
    def op(self) -> str:
        """``LinearOperation_0_1``; operators of torch have a name of their own."""
        if self.op_type in self.op_id:
            return self.op_id
        return f"{self.op_type}_{self.op_id}" if self.op_id else self.op_type

    @property
    def title(self) -> str:
        """``LinearOperation_0_1 outtensor0``."""
        return f"{self.op} {self.output}".strip()


@dataclass(frozen=True, slots=True)
class OpcheckReport:
    """All that a check of a dump found.

    Attributes:
        path: the dump.
        items: each output in execution order.
        problems: what the dump lacks.
        standard: name of the standard.
        metrics: optional columns, ``abs``, ``cos_sim``, ``kl``.
        rerun: backend that ran the operators again, ``none`` where none was there, empty where
            nobody asked.
        partial: it was interrupted before everything was checked.
        unchecked: why operators were left out that have no result to check, and how many.
        started, finished: local time, ISO 8601 with offset.
        on_hostatb: the run used our CPU library, whose kernels are golden operators.
    """

    path: str
    items: Sequence[Checked]
    problems: Sequence[Problem] = ()
    standard: str = "contract"
    metrics: Sequence[str] = ()
    rerun: str = ""
    partial: bool = False
    unchecked: Mapping[str, int] = field(default_factory=dict)
    started: str = ""
    finished: str = ""
    on_hostatb: bool = False

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many outputs have each verdict."""
        counts = dict.fromkeys(Verdict, 0)
        for item in self.items:
            counts[item.verdict] += 1
        return counts

    @property
    def faults(self) -> Mapping[str, str]:
        """Tracebacks of faults of ait itself, by what was said of each."""
        return {item.reason: item.fault for item in self.items if item.fault}

    @property
    def operators(self) -> int:
        """How many executions of operators were looked at."""
        return len({(i.device, i.pid, i.step, i.op) for i in self.items})

    @property
    def checked(self) -> int:
        """How many outputs have numbers behind their verdict."""
        counts = self.counts
        return counts[Verdict.PASS] + counts[Verdict.FAIL]

    @property
    def complete(self) -> bool:
        """True if everything was looked at: no ERROR, no SKIPPED, no problem that decides."""
        return not (
            self.partial
            or not self.checked
            or self.checked < len(self.items)
            or any(problem.decides for problem in self.problems)
        )

    @property
    def verdict(self) -> Verdict:
        """FAIL if any output failed, PASS if all passed and nothing is missing, else SKIPPED."""
        if self.counts[Verdict.FAIL]:
            return Verdict.FAIL
        return Verdict.PASS if self.complete else Verdict.SKIPPED

    def exit_code(self, *, fail_on: FailOn = "fail", allow_skip: bool = False) -> int:
        """0 all checked and passed, 1 failed, 3 incomplete.

        4 where an exception nobody foresaw cost a result, whatever the others say.

        Args:
            fail_on: the mildest verdict that counts as failed.
            allow_skip: what was not checked does not count; a check of nothing still does.
        """
        if self.faults:
            return EXIT_CODE
        counts = self.counts
        if any(counts[verdict] for verdict in FAILING[fail_on]):
            return 1
        if self.complete or (allow_skip and self.checked and not self.partial):
            return 0
        return 3

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PASS
