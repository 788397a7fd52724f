"""Pairs of small ATB dumps for tests of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.core import TensorDesc
from ait_llm.core.comparison import Comparison, Report
from ait_llm.formats import dtype_of, write_tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class AtbPair:
    """Two dumps of one process, ``golden`` and ``mine`` below a folder."""

    root: Path

    @property
    def golden(self) -> Path:
        """The trusted dump."""
        return self.root / "golden" / "ait_dump"

    @property
    def mine(self) -> Path:
        """The dump under suspicion."""
        return self.root / "mine" / "ait_dump"

    def file(self, side: str, operation: str, name: str = "outtensor0", step: int = 0) -> Path:
        """The file of a tensor of one side."""
        folder = self.root / side / "ait_dump" / "tensors" / "0_4242" / str(step) / operation
        return folder / "after" / f"{name}.bin"

    def add(
        self,
        operation: str,
        golden: Array | None,
        mine: Array | None,
        *,
        name: str = "outtensor0",
        step: int = 0,
        attributes: Sequence[Mapping[str, str]] = ({}, {}),
        data: Sequence[bool] = (True, True),
    ) -> None:
        """Write a tensor of both sides; None leaves a side out, ``data`` only its values."""
        sides = zip(("golden", "mine"), (golden, mine), attributes, data, strict=True)
        for side, array, lines, has_data in sides:
            if array is not None:
                path = self.file(side, operation, name, step)
                path.parent.mkdir(parents=True, exist_ok=True)
                desc = TensorDesc(dtype_of(array), array.shape)
                write_tensor(path, array if has_data else None, desc, lines)

    def add_many(self, count: int, shape: tuple[int, ...] = (8, 16), steps: int = 1) -> None:
        """Operations whose sides agree to one rounding."""
        random = np.random.default_rng(count)
        for step in range(steps):
            for number in range(count):
                array = random.normal(size=shape).astype(np.float16)
                self.add(f"{number}_LinearOperation", array, array, step=step)


def of(report: Report, title: str) -> Comparison:
    """The comparison of my tensor (or golden's without a partner) called ``title``."""
    [found] = [item for item in report.comparisons if item.record.title == title]
    return found
