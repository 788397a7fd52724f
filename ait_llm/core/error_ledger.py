"""The error ledger: for each operator what it added to the error, and what it was given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One output of one execution of one operator of mine.

    ``golden(x)`` is the golden operator on inputs x. The three errors are Euclidean norms over that
    of golden's output, so that the total is at most the sum of the others; without a golden
    counterpart, over the norm of ``golden(my inputs)``.

    Attributes:
        op, op_id, op_type, step, device, pid: the operator.
        output: ``outtensor0``.
        order: rank of its operator in the execution order of its process.
        index: of the comparison of this output in the report; None if it was not compared.
        introduced: ``|my output - golden(my inputs)|``; None if unknown, infinite where one of the
            two is not finite and the other is.
        inherited: ``|golden(my inputs) - golden's output|``, golden's output being what golden's
            own inputs give.
        total: ``|my output - golden's output|``.
        excess: how many times the introduced error is what the operator's arithmetic contract
            allows; above 1 is wrong. None if unknown.
        reason: what is wrong with it, or why it was not computed.
    """

    op: str
    op_id: str
    op_type: str
    step: int
    device: int = -1
    pid: int = -1
    output: str = ""
    order: int = 0
    index: int | None = None
    introduced: float | None = None
    inherited: float | None = None
    total: float | None = None
    excess: float | None = None
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """True if the operator was computed again."""
        return self.excess is not None

    @property
    def is_beyond(self) -> bool:
        """True if it introduced more than its contract allows."""
        return self.excess is not None and not self.excess <= 1


def ranked(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Known rows by introduced error relative to what is allowed, the worst first.

    Equals are ordered by the introduced error, then by the order of execution.
    """
    known = [row for row in rows if row.is_known]

    def key(row: LedgerRow) -> tuple[float, float, int]:
        return (-_size(row.excess), -_size(row.introduced), row.order)

    return sorted(known, key=key)


def _size(value: float | None) -> float:
    return -1.0 if value is None else math.inf if math.isnan(value) else value
