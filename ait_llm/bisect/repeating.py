"""Whether a program computes the same again: two captures of statistics, compared to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ait_llm.compare.origin_run import operation_key
from ait_llm.dumps import Dump
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.match.pairing import pair_processes


@dataclass(frozen=True, slots=True)
class Unrepeated:
    """The first tensor of a program that differs between two of its runs.

    Attributes:
        op, op_id, op_type, step: its operation.
        tensor: ``outtensor0``.
        received: the operation was given it; else it computed it.
        detail: what differs, as a clause.
    """

    op: str
    op_id: str
    op_type: str
    step: int
    tensor: str
    received: bool
    detail: str

    def sentence(self) -> str:
        """What to say about it."""
        if self.received:
            return (
                f"{self.tensor} that {self.op} (step {self.step}) is given differs between two "
                f"runs: {self.detail}. The program gets other inputs each time; fix them and its "
                "seeds"
            )
        return (
            f"{self.op} (step {self.step}) does not repeat itself: {self.tensor} differs between "
            f"two runs: {self.detail}"
        )


def first_difference(first: Dump, second: Dump) -> Unrepeated | None:
    """The first difference of two runs of a program, in execution order; None if there is none.

    Operators count before the graphs and modules around them.

    Raises:
        AitError: a capture is damaged.
    """
    pairs, problems = pair_processes(first, second)
    if problems:
        return Unrepeated("the program", "", "", 0, "", False, problems[0].text)
    for one, other, _ in pairs:
        around: Unrepeated | None = None
        for a, b in zip_longest(
            first.operations(device=one.device, pid=one.pid),
            second.operations(device=other.device, pid=other.pid),
        ):
            found = _of_operation(a, b)
            if found is None:
                continue
            operation = a if a is not None else b
            if operation is None or not operation.is_graph or found.received:
                return found
            around = around or found
        if around is not None:
            return around
    return None


def _of_operation(first: Operation | None, second: Operation | None) -> Unrepeated | None:
    if first is None or second is None or operation_key(first) != operation_key(second):
        present = first if first is not None else second
        assert present is not None
        other = second if first is not None else None
        ran = f"{other.name} (step {other.step}) ran there" if other is not None else "it ran once"
        return unrepeated(present, None, f"the order of operations differs; {ran}")
    tensors: Sequence[Tensor]
    others: Sequence[Tensor]
    for tensors, others in ((first.inputs, second.inputs), (first.outputs, second.outputs)):
        for mine, theirs in zip_longest(tensors, others):
            if mine is None or theirs is None:
                missing = mine if mine is not None else theirs
                return unrepeated(first, missing, "one run has no such tensor")
            if detail := difference(mine, theirs):
                return unrepeated(first, mine, detail)
    return None


def difference(one: Tensor, other: Tensor) -> str:
    """How two captures of one tensor differ, as a clause; empty if they do not."""
    try:
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return (
                f"{one.dtype.label} {list(one.shape)} and {other.dtype.label} {list(other.shape)}"
            )
        first, second = one.statistics, other.statistics
    except AitError as error:
        return str(error)
    if first is None or second is None:
        return ""
    for name in ("max", "min", "mean", "l2norm", "nan", "inf"):
        a, b = getattr(first, name), getattr(second, name)
        if a != b and not (a != a and b != b):
            return f"{name} {a} and {b}"
    return ""


def unrepeated(operation: Operation, tensor: Tensor | None, detail: str) -> Unrepeated:
    """A difference at a tensor of an operation, or at the operation itself."""
    return Unrepeated(
        op=operation.name,
        op_id=str(operation.op_id),
        op_type=operation.type,
        step=operation.step,
        tensor=tensor.name if tensor is not None else "it",
        received=tensor is not None and tensor.role == "in",
        detail=detail,
    )
