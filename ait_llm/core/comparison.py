"""What a comparison says about one pair of tensors, and what it says in all.

These types are values: matchers, metrics and judges fill them, report writers print them. They hold
numbers and names, never tensor data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from ait_llm.core.closeup import Closeup
from ait_llm.core.dataflow import Dataflow
from ait_llm.core.dtype import DType
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.core.report_plots import ReportPlots
from ait_llm.core.report_views import arrow_of, frame_of, html_of, line_of
from ait_llm.faults import EXIT_CODE

if TYPE_CHECKING:
    import pandas
    import pyarrow

ONLY_STATISTICS = "only statistics were captured"
"""How the reason of a pair begins whose parts or sums answer each other, and have no numbers."""


OTHERS_FIT = "may be its counterpart as well"
"""How the reason of a pair ends that is not told apart from others and differs."""


class Verdict(Enum):
    """What became of one pair; SKIPPED and ERROR always come with a reason."""

    PASS = "PASS"  # a verdict, not a password
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"
    ERROR = "ERROR"

    __hash__ = object.__hash__  # a member is one object; Enum's own costs ten times as much


# Relative errors abs(m - g) / abs(g) that separate the bins 1 to 14 of a histogram. Bin 0 counts
# equal elements, bin 14 also those whose golden value alone is zero, bin 15 those that are not
# finite on either side.
HISTOGRAM_EDGES = tuple(float(f"1e{exponent}") for exponent in range(-10, 3))
HISTOGRAM_BINS = len(HISTOGRAM_EDGES) + 3


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One tensor of a dump, by the names that a report prints.

    Attributes:
        op: operation name (``LinearOperation_0_1``) or dotted path of a torch module; the file's
            name in a comparison of single files.
        op_id: position in the topology (``0_1_0``), empty without one.
        op_type: ``LinearOperation``, ``LlamaRMSNorm``; empty for single files.
        name: ``outtensor0``, or the tensor's name within a file that holds several.
        role: input or output of its operation, a weight, or the content of a single file.
        index: position among the inputs or outputs.
        label: the operator's own name for it (``weight``), empty without one.
        step: execution count in its own dump, 0-based.
        call: which call of that operation within the step, from 0.
        device, pid: the process, -1 if unknown.
        order: rank of its operation in the execution order of its process, from 0 over all steps.
        path: the file.
        dtype: logical element type, None if unreadable.
        shape: dims as recorded, None if unreadable.
        graph: name of the compiled graph that it ran in, empty without one.
        graph_step: which execution of that graph, -1 without one.
        rank: of the process among those of its run, -1 if unknown.
        parts: operators that a fused operator computes, in order; empty for others.
    """

    op: str
    op_id: str
    op_type: str
    name: str
    role: Literal["in", "out", "weight", "file"]
    index: int
    path: str
    label: str = ""
    step: int = 0
    call: int = 0
    device: int = -1
    pid: int = -1
    order: int = 0
    dtype: DType | None = None
    shape: tuple[int, ...] | None = None
    graph: str = ""
    graph_step: int = -1
    rank: int = -1
    parts: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``LinearOperation_0_1 outtensor0``."""
        return f"{self.op} {self.name}".strip()

    @property
    def byte_count(self) -> int:
        """Bytes of its elements; 0 where it is unreadable."""
        return 0 if self.dtype is None else self.dtype.byte_count(math.prod(self.shape or (0,)))


@dataclass(frozen=True, slots=True)
class SideSummary:
    """Numbers about one side of a pair, after alignment; None where they cannot be computed.

    Attributes:
        max, min, mean, norm: of the finite elements, in float64.
        nan, inf: how many elements are not finite.
    """

    max: float | None
    min: float | None
    mean: float | None
    norm: float | None
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One pair of tensors, compared or not.

    Attributes:
        golden, mine: the tensors; exactly one is None for a tensor without a partner.
        verdict: PASS, FAIL, SKIPPED or ERROR.
        reason: why it was not compared, or what is wrong; empty for a plain PASS.
        rule: the matcher that made the pair (``programs``, ``saved_mapping``).
        confidence: of the match, in [0, 1].
        why: the matcher's reason in a few words.
        relation: how the two belong together, see ``match.model.Match``; empty where the matcher
            knows one way only.
        golden_view, my_view: what was done to make the two comparable (``rows 0:7 of axis 0``),
            empty when nothing was.
        golden_summary, my_summary: statistics of both sides.
        values: metric results by name.
        missing: metric name to the reason why it has no value.
        tolerance: limits that were applied, by the name of the metric they limit.
        needed: limits that would just have passed, by the same names.
        worst: index of the largest absolute error, in the aligned golden shape.
        worst_values: golden and my value there.
        first_bad: index of the first element that is not finite on one side only, or not equal
            where both are not finite.
        inherited: error that the operation's inputs bring with them, as a relative error; None if
            unknown.
        introduced: error that the operation adds itself, as a relative error; None if unknown.
        histogram: how many elements have which relative error, in the bins of
            :data:`HISTOGRAM_EDGES`, of a large tensor in a sample; None where nobody counted,
            as for a PASS.
        stamp: size in bytes and time of the last change in ns of golden's file, then of mine, when
            they were measured; None where nothing was.
        comparable: False for a tensor without a partner that can have none, because only one of the
            programs makes it; it decides nothing.
        lost: a tensor without a partner should have had one.
        fault: traceback of the exception, a fault of ait, that an ERROR stands for; else empty.
    """

    golden: TensorRecord | None
    mine: TensorRecord | None
    verdict: Verdict
    reason: str = ""
    rule: str = ""
    confidence: float = 1.0
    why: str = ""
    relation: str = ""
    golden_view: str = ""
    my_view: str = ""
    golden_summary: SideSummary | None = None
    my_summary: SideSummary | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    needed: Mapping[str, float] = field(default_factory=dict)
    worst: tuple[int, ...] | None = None
    worst_values: tuple[float, float] | None = None
    first_bad: tuple[int, ...] | None = None
    inherited: float | None = None
    introduced: float | None = None
    histogram: tuple[int, ...] | None = None
    stamp: tuple[int, ...] | None = None
    comparable: bool = True
    lost: bool = False
    fault: str = ""

    @property
    def record(self) -> TensorRecord:
        """My tensor, or the golden one where mine has no partner."""
        record = self.mine if self.mine is not None else self.golden
        if record is None:
            raise ValueError("a comparison has at least one side")
        return record


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a dump lacks or that a whole side could not offer.

    Attributes:
        side: whose it is.
        text: what, in one sentence.
        decides: whether it makes the comparison incomplete (exit code 3).
        fault: traceback of the exception, a fault of ait, that caused it; empty for others.
        whole: nothing at all was compared of a rank or of a compiled graph, which
            ``--allow-skip`` does not accept.
    """

    side: Literal["golden", "mine", "both"]
    text: str
    decides: bool = True
    fault: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the error of one step of one process started.

    Attributes:
        op, op_id, op_type, step, device, pid: my operation.
        golden_op: its golden counterpart, empty without one.
        index: of the comparison that shows it, in ``Report.comparisons``; None if the operation's
            own outputs were not compared.
        evidence: how it was found, in one sentence with its numbers.
        certain: False if the error may also have started in one of ``candidates``.
        candidates: other operations that cannot be told apart, in execution order.
        inherited, introduced: relative errors, as in :class:`Comparison`.
        parts: operators that it was fused from, in order; empty for others.
        kind: what kind of bug its own error looks like (``constant scale``, ``wrong epsilon``),
            ``rounding only`` or ``unknown``; empty where that was not looked for.
        kind_evidence: why, in one clause with its numbers.
    """

    op: str
    op_id: str
    op_type: str
    step: int
    device: int = -1
    pid: int = -1
    golden_op: str = ""
    index: int | None = None
    evidence: str = ""
    certain: bool = True
    candidates: tuple[str, ...] = ()
    inherited: float | None = None
    introduced: float | None = None
    parts: tuple[str, ...] = ()
    kind: str = ""
    kind_evidence: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two inputs of a comparison.

    Attributes:
        path: as given.
        kind: ``atb``, ``torch``, ``file``, ``weights``.
        processes: ``{device}_{PID}`` of each.
        steps: execution counts that were looked at.
    """

    path: str
    kind: str
    processes: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All that a comparison found.

    Attributes:
        golden, mine: the two sides.
        scenario: ``file``, ``atb-torch``, ``torch-torch``, ``atb-atb``, ``weights`` and so on.
        comparisons: every pair and every tensor without a partner, in execution order of my side.
        problems: what was missing or unsealed.
        origins: where errors started, the earliest first; empty when nothing failed.
        metrics: names of the metrics that were computed, in the order of the report's columns.
        options: the settings that the result depends on.
        partial: True if it was interrupted before everything was compared.
        started, finished: local time, ISO 8601 with offset.
        ledger: what each operator of mine added to the error; empty where it was not kept.
        closeups: what the failing pairs that are opened first look like.
        passes: steps of golden and of mine that were compared with each other; empty where nobody
            says, as in a report that was read from a file.
        flows: who reads what in each pass that was compared, where it was looked at as a program.
    """

    golden: Side
    mine: Side
    scenario: str
    comparisons: Sequence[Comparison]
    problems: Sequence[Problem] = ()
    origins: Sequence[Origin] = ()
    metrics: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    started: str = ""
    finished: str = ""
    ledger: Sequence[LedgerRow] = ()
    closeups: Sequence[Closeup] = ()
    passes: Sequence[tuple[int, int]] = ()
    flows: Sequence[Dataflow] = ()

    def with_verdict(self, verdict: Verdict) -> Iterator[Comparison]:
        """The comparisons with that verdict."""
        return (item for item in self.comparisons if item.verdict is verdict)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many comparisons have each verdict."""
        counts = dict.fromkeys(Verdict, 0)
        for item in self.comparisons:
            counts[item.verdict] += 1
        return counts

    @property
    def faults(self) -> Mapping[str, str]:
        """Tracebacks of faults of ait itself, by what was said of each."""
        found = {item.text: item.fault for item in self.problems if item.fault}
        return {item.reason: item.fault for item in self.comparisons if item.fault} | found

    @property
    def compared(self) -> int:
        """How many pairs have numbers behind their verdict."""
        counts = self.counts
        return counts[Verdict.PASS] + counts[Verdict.FAIL]

    @property
    def missing(self) -> int:
        """How many tensors should have been compared and were not."""
        return sum(item.comparable for item in self.with_verdict(Verdict.SKIPPED))

    @property
    def not_comparable(self) -> int:
        """How many tensors only one of the programs makes, follow from another choice, have several
        counterparts that fit, or are in parts of which a capture of statistics says nothing."""
        return self.counts[Verdict.SKIPPED] - self.missing

    @property
    def left_out(self) -> int:
        """How many of these have a partner: choices differed before, each rightly."""
        skipped = self.with_verdict(Verdict.SKIPPED)
        return (
            sum(
                not item.comparable and item.golden is not None and item.mine is not None
                for item in skipped
            )
            - self.without_parts
            - self.doubtful
        )

    @property
    def doubtful(self) -> int:
        """How many of these have a partner, and others that fit as well as it."""
        return sum(
            not item.comparable and item.reason.endswith(OTHERS_FIT)
            for item in self.with_verdict(Verdict.SKIPPED)
        )

    @property
    def without_parts(self) -> int:
        """How many of these have a partner, and statistics that say nothing of what it answers."""
        return sum(
            not item.comparable and item.reason.startswith(ONLY_STATISTICS)
            for item in self.with_verdict(Verdict.SKIPPED)
        )

    @property
    def complete(self) -> bool:
        """True if all that can be was looked at: no ERROR, nothing missing, no deciding problem."""
        return not (
            self.partial
            or self.counts[Verdict.ERROR]
            or self.missing
            or not self.compared
            or any(problem.decides for problem in self.problems)
        )

    @property
    def verdict(self) -> Verdict:
        """FAIL if any pair failed, PASS if all passed and nothing is missing, else SKIPPED."""
        if self.counts[Verdict.FAIL]:
            return Verdict.FAIL
        return Verdict.PASS if self.complete else Verdict.SKIPPED

    def exit_code(self, *, allow_skip: bool = False, strict: bool = False) -> int:
        """0 all that has a counterpart was compared and passed, 1 a pair failed, 3 incomplete.

        4 where an exception nobody foresaw cost a result, whatever the others say.

        Args:
            allow_skip: what was not compared does not count; a comparison of nothing still does,
                and so does a rank or a compiled graph of which nothing was compared.
            strict: what only one of the programs makes counts as missing, too.
        """
        if self.faults:
            return EXIT_CODE
        if self.verdict is Verdict.FAIL:
            return 1
        if self.verdict is Verdict.PASS:
            return 3 if strict and self.not_comparable else 0
        whole = any(problem.whole for problem in self.problems)
        return 0 if allow_skip and self.compared and not self.partial and not whole else 3

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        return line_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each comparison, in the order of the report.

        Columns: where (``step``, ``rank``, ``op``, ``op_type``, ``tensor``, ``role``,
        ``golden_op``, ``golden_tensor``), what is said (``verdict``, ``reason``, ``comparable``,
        ``origin``: an error starts there), what is compared (``dtype``, ``shape``, ``path`` and the
        same of golden), ``limit`` of the relative Euclidean distance, ``inherited`` and
        ``introduced`` (see :class:`Comparison`), and each metric by its name; NaN where it has no
        value.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        return frame_of(self)

    def to_arrow(self) -> pyarrow.Table:
        """The same as :meth:`to_pandas`, as a table of Arrow, for Parquet, Polars or DuckDB.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        return arrow_of(self)

    @property
    def plot(self) -> ReportPlots:
        """Pictures of the report; they need matplotlib."""
        return ReportPlots(self)
