"""Where an operator runs: its id, its layer and the step, as far as they are known."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import dataclass, field

from ait_llm.core import OpId

LAYER_WORD = "layer"


@dataclass(slots=True)
class Clock:
    """Counts the executions of one top-level operation.

    Attributes:
        step: number of the current execution, from 0; -1 before the first.
    """

    step: int = -1


@dataclass(slots=True)
class Site:
    """The place of one leaf operator.

    Attributes:
        operation: operation type, such as ``LinearOperation``.
        op_id: its id; None before the first Setup of its top-level operation.
        layer: number among its equals, from 0, of the outermost graph around it whose name holds
            the word "layer"; None outside of any.
        clock: of its top-level operation.
    """

    operation: str
    op_id: OpId | None = None
    layer: int | None = None
    clock: Clock = field(default_factory=Clock)

    def __str__(self) -> str:
        return self.operation if self.op_id is None else f"{self.operation}_{self.op_id}"


class _TopLevel:
    """Numbers top-level operations in the order of their first Setup, as the runtime does.

    Attributes:
        lock: held from taking a number to the end of that Setup.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._ids = itertools.count()
        self._names: Counter[str] = Counter()

    def number(self, name: str) -> tuple[int, int]:
        """The id of a new top-level operation, and how many of that name were there before."""
        ordinal = self._names[name]
        self._names[name] += 1
        return next(self._ids), ordinal


top_level = _TopLevel()
