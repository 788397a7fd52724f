"""What one execution of a compiled graph lacks though the other executions of that graph have it.

A compiled graph runs the same operators each time. An operator that a dump has of some executions
and not of another one was therefore lost, whether or not the other side has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ait_llm.dumps.model import Operation

if TYPE_CHECKING:
    from ait_llm.program.compiled import Execution

_BRANCHES = re.compile(
    r"^(Stateless)?(If|Case|While)$|Switch|^Label|cond|while_loop|^PartitionedCall$"
)
"""Types with which a graph chooses what to run."""
_SHOWN = 3

_Part = tuple[str, str]
"""Title of an operation, and a tensor of it; no tensor for the operation itself."""


def gaps(executions: Sequence[Execution], *, by_tensor: bool) -> Iterator[str]:
    """A sentence for each execution that lacks operators, or tensors of one.

    What the first execution alone has may be made once for all. Graphs that branch are left out.

    Args:
        executions: of one compiled graph, in their order.
        by_tensor: each tensor is a file of its own, which can be lost alone.
    """
    if any(_BRANCHES.search(op.type) for run in executions for op in run.operations):
        return
    runs = [Counter(_parts(run.operations, by_tensor)) for run in executions]
    expected: Counter[_Part] = Counter()
    for later in runs[1:]:
        expected |= later
    for execution, run in zip(executions, runs, strict=True):
        if missing := expected - run:
            gone = {name for name, tensor in missing if not tensor}
            names = [
                f"{tensor} of {name}" if tensor else name
                for name, tensor in missing
                if not tensor or name not in gone
            ]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            which = f"{', '.join(names[:_SHOWN])}{more}"
            yield f"{execution.title} is without {which}, which its other executions have"


def _parts(operations: Sequence[Operation], by_tensor: bool) -> Iterator[_Part]:
    for op in operations:
        title = f"{op.name} ({op.type})" if op.type and op.type != op.name else op.name
        yield title, ""
        if by_tensor:
            yield from ((title, tensor.stem) for tensor in op.tensors)
