"""What is known of one dumped operation so that it can be computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Tensor

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import GoldenOp


@dataclass(frozen=True, eq=False)
class Case:
    """An operation that can be computed again.

    Attributes:
        golden: how.
        params: as the golden operator takes them.
        read: reads its inputs as the golden operator takes them, None for absent optional ones. It
            raises FormatError where values were not saved or a file is damaged, and
            UnverifiableError where a parameter of the model was not saved.
        outputs: lists what was dumped of its results, by the golden operator's numbers. It raises
            FormatError where a file is damaged.
        missing: why it cannot be computed from this dump; empty where it can.
    """

    golden: GoldenOp
    params: Mapping[str, Any]
    read: Callable[[], list[torch.Tensor | None]]
    outputs: Callable[[], Mapping[int, Tensor]]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class NoCase:
    """An operation that cannot be computed again.

    Attributes:
        reason: why there is nothing to check in operators like it, as the end of a sentence about
            several; empty where there is no golden operator.
        lost: what the dump lacks of it; empty where it lacks nothing.
    """

    reason: str = ""
    lost: str = ""
