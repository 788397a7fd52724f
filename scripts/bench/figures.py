"""What a benchmark found, for ``run`` to collect and publish.

A benchmark prints its own table for people. Beside it, it says each figure that has a target, or
that a reader of the page wants to know, with :func:`figure`; alone it only prints.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_VARIABLE = "AIT_BENCH_FIGURES"


@dataclass(frozen=True)
class Figure:
    """One number that was measured.

    Attributes:
        what: was measured, with its size.
        value: the number.
        unit: of it, for example ``times msprobe's speed`` or ``MB``.
        target: that it should reach; None where it is only information.
        at_least: the target is a lower bound, else an upper one.
        note: what a reader has to know to judge it.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """True if it reaches its target, None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def figure(
    what: str,
    value: float,
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> None:
    """Say one figure; kept only where ``run`` started the benchmark."""
    path = os.environ.get(FILE_VARIABLE)
    if path is None:
        return
    target = at_most if at_least is None else at_least
    found = Figure(what, float(value), unit, target, at_least is not None, note)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(found)) + "\n")


def read_figures(path: Path) -> list[Figure]:
    """What a benchmark said, in its order."""
    if not path.exists():
        return []
    return [Figure(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
