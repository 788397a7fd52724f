"""Whether the other operators of a run show in which arithmetic one of them should compute.

An error beyond the contract of an operator may still be that of a usual kernel, which rounds on the
way. Whether the machine has such kernels, its other operators tell: those that make what the
operator of torch makes here, to the bit or to the order of its sums, have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ait_llm.dumps.model import Operation
from ait_llm.program.describe import shape_of
from ait_llm.program.operators import is_product

# Operators that are what this machine makes, for each that is not and may be to blame.
_PEERS = 8

Like = tuple[str, tuple[tuple[int, ...] | None, ...]]


def like(operation: Operation) -> Like:
    """What operations share that one kernel computes: their type, and the shapes."""
    shapes = (shape_of(each) for each in (*operation.inputs, *operation.outputs))
    return operation.type, tuple(shapes)


class Peers:
    """Operators of a run that are what this machine makes, and those that are not.

    Args:
        right: what is known to be so, counted.
        others: operations that are not, the ones to be judged among them.
    """

    def __init__(self, right: Counter[Like], others: Iterable[Operation]) -> None:
        self._alike = right
        self._right: Counter[str] = Counter()
        self._products = 0
        for (kind, _), count in right.items():
            self._right[kind] += count
            self._products += count * is_product(kind)
        self._others = Counter(each.type for each in others)
        self._other_products = sum(
            count for kind, count in self._others.items() if is_product(kind)
        )

    def show(self, operation: Operation) -> bool:
        """True if they show that one of the others computes in another arithmetic than they.

        Those of its type do, where there are enough. A small program has few batched products:
        there, those of all types do, if the only one of its type that is off has a twin of the
        same shapes that is not, so that its kernel is known.
        """
        kind = operation.type
        if self._right[kind] >= _PEERS * self._others[kind]:
            return True
        return (
            is_product(kind)
            and self._others[kind] == 1
            and self._alike[like(operation)] > 0
            and self._products >= _PEERS * self._other_products
        )
