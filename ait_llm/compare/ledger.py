"""The error ledger of a comparison: who introduced which error, and who only handed it on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import prod

from ait_llm.compare.ledger_errors import ledger_rows
from ait_llm.compare.origin_run import operation_key, record_key
from ait_llm.core.comparison import Comparison
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.match.model import Match
from ait_llm.opcheck.cases import golden_of
from ait_llm.program.one_pass import Pass

# Without being asked for, at most this much is computed again; two cores take some seconds for it.
AUTOMATIC_BYTES = 64 << 20
AUTOMATIC_OPERATORS = 500
ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LedgerCase:
    """One execution of one operator of mine.

    Attributes:
        operation: the operator.
        order: rank in the execution order of its process.
        matches: what its outputs were compared with, by their index, and where in the report.
    """

    operation: Operation
    order: int
    matches: Mapping[int, tuple[int, Match]]


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    """The operators that can be computed again.

    Attributes:
        cases: in execution order.
        bytes: of all their inputs.
        others: operators that cannot, with the reason, as rows.
    """

    cases: Sequence[LedgerCase]
    bytes: int
    others: Sequence[LedgerRow]

    def is_wanted(self, asked: bool | None) -> bool:
        """Whether the ledger is kept.

        Args:
            asked: the user's choice; None leaves it to the data: it is kept if outputs of operators
                were compared, and at most :data:`AUTOMATIC_OPERATORS` with inputs of at most
                :data:`AUTOMATIC_BYTES` are computed again.
        """
        if asked is not None:
            return asked
        return any(case.matches for case in self.cases) and not self.too_large()

    def too_large(self) -> str:
        """Why the ledger is not kept without being asked for; empty if it is, or cannot be."""
        if not any(case.matches for case in self.cases):
            return ""
        if self.bytes <= AUTOMATIC_BYTES and len(self.cases) <= AUTOMATIC_OPERATORS:
            return ""
        return (
            f"the error ledger was not kept: it would compute {len(self.cases):,} operators with "
            f"{self.bytes / 2**20:,.0f} MiB of inputs again; --ledger does so"
        )


def plan_ledger(runs: Sequence[Pass], matches: Mapping[int, Match]) -> LedgerPlan:
    """Find the operators of my runs that can be computed again from their own inputs.

    Only headers of tensor files are read.

    Args:
        runs: mine.
        matches: what was compared, by place in the report.
    """
    outputs: dict[object, dict[int, tuple[int, Match]]] = {}
    for place, match in matches.items():
        record = match.mine.record
        if record.role == "out" and not match.is_self_check:
            key = (record.device, record.pid, *record_key(record))
            outputs.setdefault(key, {}).setdefault(record.index, (place, match))
    cases: list[LedgerCase] = []
    others: list[LedgerRow] = []
    size = 0
    for run in runs:
        if not run.traits.library or find_spec("torch") is None:
            continue
        for order, operation in enumerate(run.operations, run.first_order):
            if operation.is_graph:
                continue
            own = outputs.get((run.device, run.pid, *operation_key(operation)), {})
            case = LedgerCase(operation, order, own)
            try:
                reason = _obstacle(operation)
                size += 0 if reason else _bytes_of(operation)
            except AitError as error:
                reason = str(error)
            if reason:
                others.append(replace(row_of(case), reason=reason))
            else:
                cases.append(case)
    return LedgerPlan(cases, size, others)


def row_of(case: LedgerCase) -> LedgerRow:
    """The row of an operator without numbers."""
    operation = case.operation
    return LedgerRow(
        op=operation.name,
        op_id=str(operation.op_id),
        op_type=operation.type,
        step=operation.step,
        device=operation.device,
        pid=operation.pid,
        order=case.order,
    )


def error_ledger(
    plan: LedgerPlan,
    *,
    jobs: int = 1,
    stop: threading.Event | None = None,
    on_progress: ProgressCallback | None = None,
) -> tuple[LedgerRow, ...]:
    """Compute all operators of a plan again and measure their errors.

    Args:
        plan: the operators.
        jobs: threads.
        stop: when set, what is known until then is returned.
        on_progress: called with how many operators are done and how many there are.

    Returns:
        One row for each output, in execution order; one without numbers for an operator that could
        not be computed.
    """
    rows: list[LedgerRow] = list(plan.others)
    for done, found in enumerate(_in_parallel(plan.cases, jobs, stop), 1):
        rows += found
        if on_progress is not None:
            on_progress(done, len(plan.cases))
    return tuple(sorted(rows, key=lambda row: (row.device, row.pid, row.order)))


def _in_parallel(
    cases: Sequence[LedgerCase], jobs: int, stop: threading.Event | None
) -> Iterator[list[LedgerRow]]:
    work = partial(_rows_unless, stop)
    if jobs <= 1:
        yield from map(work, cases)
        return
    with ThreadPoolExecutor(jobs, thread_name_prefix="ait-ledger") as pool:
        yield from pool.map(work, cases)


def _rows_unless(stop: threading.Event | None, case: LedgerCase) -> list[LedgerRow]:
    if stop is not None and stop.is_set():
        return []
    return ledger_rows(case.operation, case.matches, row_of(case))


def with_shares(comparisons: Sequence[Comparison], rows: Sequence[LedgerRow]) -> list[Comparison]:
    """The comparisons with inherited and introduced errors from the ledger."""
    found = list(comparisons)
    for row in rows:
        if row.index is None or row.index >= len(found) or row.introduced is None:
            continue
        found[row.index] = replace(
            found[row.index], inherited=row.inherited, introduced=row.introduced
        )
    return found


def _obstacle(operation: Operation) -> str:
    """Why an operator cannot be computed again, as far as headers tell; empty if nothing."""
    if golden_of(operation) is None:
        return f"there is no golden {operation.type}"
    if "after" not in operation.phases:
        return "its outputs were not saved; dump with -time 1 or 2"
    for tensor in (*operation.inputs, *operation.outputs):
        if tensor.shape and 0 not in tensor.shape and not tensor.has_data:
            return f"{tensor.name} was only described, without values"
    return ""


def _bytes_of(operation: Operation) -> int:
    return sum(tensor.dtype.byte_count(prod(tensor.shape)) for tensor in operation.inputs)
