"""One step of the search: what one run of each program is to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.bisect.captures import Selection
from ait_llm.dumps.model import Operation
from ait_llm.probe import TensorPart
from ait_llm.program.one_pass import Pass

# A ledger, tables and folders that come with every capture.
OVERHEAD = 4096


@dataclass(frozen=True, slots=True)
class Capture:
    """One step of the search: one run of mine, of golden, or of both.

    Attributes:
        why: what it is for, in a few words.
        mine, golden: what they write; None for no run.
        my_bytes, golden_bytes: what they are expected to write.
    """

    why: str
    mine: Selection | None = None
    golden: Selection | None = None
    my_bytes: int = 0
    golden_bytes: int = 0

    @property
    def bytes(self) -> int:
        """What both write."""
        return self.my_bytes + self.golden_bytes


def selection_of(
    run: Pass, operations: Sequence[Operation], part: TensorPart, *, before: bool = False
) -> Selection:
    """How a capture is told these operations."""
    names = (str(each.op_id) if run.traits.library else each.name for each in operations)
    steps = tuple(sorted({each.step for each in operations}))
    return Selection(tuple(dict.fromkeys(names)), steps, part, before)
