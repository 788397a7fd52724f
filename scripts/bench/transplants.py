"""Two bugs of different size at once: which one matters more, and which are needed to heal.

    python scripts/bench/transplants.py --draws 40 --results rows.jsonl --write

Programs are small models of families of ``transformers`` with drawn weights. Golden is the model;
mine is the same, or with another implementation of attention, and has two bugs, drawn by chance,
in two modules. What each bug does to the answer is measured without the tool: the model with that
bug alone against golden. Healthy pairs are drawn, too. ``docs/transplant.md`` has the table.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent)]

from drawn_rows import draw_rows, write_table  # noqa: E402
from planted_bugs import Bug, drawn_bug, effect, is_of, made, programs, with_bugs  # noqa: E402

from ait_llm.transplanting.in_process import transplant  # noqa: E402
from ait_llm.transplanting.result import TransplantResult  # noqa: E402
from ait_llm.transplanting.search import CHANCE, LEFT  # noqa: E402

IDS = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22, 31, 6, 70]])
_APART = 1.5  # how many times as large the effect of one bug is as that of the other, at least
_CLEAR = 1.5  # an effect so much above or below a limit is on one side of it for certain


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one draw.

    Attributes:
        program: family, type and attention of mine.
        bugs: module and kind of each, the one that does more to the answer first.
        effects: of each alone: root mean square of the change of the logits, relative.
        status: what was said.
        first: the operator that was ranked first.
        needed: operators of the smallest set.
        runs: of mine.
        suspects: how many there were.
        is_first: the first is of the bug that does more.
        is_smallest: the set has one operator of each bug that is needed, and nothing else.
        error: of the answer of mine, and what was left of it.
    """

    program: str
    bugs: tuple[str, ...]
    effects: tuple[float, ...]
    status: str
    first: str
    needed: tuple[str, ...]
    runs: int
    suspects: int
    is_first: bool
    is_smallest: bool
    error: tuple[float, float]

    @property
    def is_healthy(self) -> bool:
        """No bug was planted."""
        return not self.bugs

    @property
    def is_accused(self) -> bool:
        """A set is named, and there is no bug."""
        return self.is_healthy and self.status == "found"

    def line(self) -> str:
        """For people."""
        marks = ("first" if self.is_first else "NOT FIRST") + ", "
        marks += "smallest" if self.is_smallest else "NOT SMALLEST"
        if self.is_healthy:
            marks = "ACCUSED" if self.status == "found" else "healthy"
        said = ", ".join(self.needed)
        return (
            f"{self.program}: {self.bugs} {self.effects} -> {self.status}: {said} "
            f"({self.runs} runs, {self.suspects} suspects) {marks}"
        )


def main() -> int:
    """0 if no healthy pair is accused."""
    return draw_rows(__doc__ or "", Row, _healthy, _draw, publish)


def publish(rows: Sequence[Row]) -> None:
    """Write the table of the pages."""
    write_table("transplant", "two bugs", Path(__file__).name, table(rows))


def _healthy() -> Iterator[Row]:
    for family, dtype, attention in programs():
        golden, mine = made(family, dtype, "eager"), made(family, dtype, attention)
        result = transplant(golden, mine, input_ids=IDS)
        yield _row(f"{family}/{dtype}/{attention}", [], [], result)


def _draw(rng: random.Random) -> Row | None:
    """What is said of a pair with two bugs; None where their effects are not of different size."""
    family, dtype, attention = rng.choice(list(programs()))
    golden = made(family, dtype, "eager")
    bugs = [drawn_bug(rng, golden) for _ in range(2)]
    if bugs[0].where.startswith(bugs[1].where) or bugs[1].where.startswith(bugs[0].where):
        return None
    effects = [effect(golden, with_bugs(family, dtype, attention, [bug]), IDS) for bug in bugs]
    rounding = effect(golden, made(family, dtype, attention), IDS)
    if dtype == "bfloat16":
        rounding = max(rounding, 2.0**-8)
    if effects[0] < effects[1]:
        bugs.reverse()
        effects.reverse()
    if effects[0] < _APART * effects[1] or effects[0] < 3 * rounding or effects[0] > 1:
        return None
    mine = with_bugs(family, dtype, attention, bugs)
    result = transplant(golden, mine, input_ids=IDS)
    return _row(f"{family}/{dtype}/{attention}", bugs, effects, result)


def _row(
    program: str, bugs: Sequence[Bug], effects: Sequence[float], result: TransplantResult
) -> Row:
    before = math.nan if result.before is None else result.before.error
    floor = 0.0 if result.floor is None else result.floor.error
    first = result.suspects[0].op if result.suspects else ""
    needed = tuple(each.op for each in result.needed)
    is_first = bool(bugs) and is_of(first, bugs[0])
    limit = CHANCE * floor + LEFT * (before - floor)
    hit = [sum(is_of(op, bug) for op in needed) for bug in bugs]
    wanted: Callable[[float, int], bool] = lambda effect, count: (  # noqa: E731
        count <= 1
        and (count == 1 or effect < _CLEAR * limit)
        and (count == 0 or effect > limit / _CLEAR)
    )
    is_smallest = len(needed) == sum(hit) and all(map(wanted, effects, hit))
    left = math.nan if result.after is None else result.after.error
    return Row(
        program,
        tuple(f"{bug.where} {bug.kind} {bug.strength:.2g}" for bug in bugs),
        tuple(float(f"{effect:.3g}") for effect in effects),
        result.status,
        first,
        needed,
        result.runs,
        len(result.suspects),
        is_first,
        is_smallest,
        (before, left),
    )


def table(rows: Sequence[Row]) -> str:
    """How many of the draws were told rightly, by family."""
    healthy = [row for row in rows if row.is_healthy]
    lines = [
        f"Healthy pairs: {len(healthy)}, {sum(row.is_accused for row in healthy)} accused.",
        "",
        "| family | pairs with two bugs | larger one first | smallest set | runs, at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    faulty = [row for row in rows if not row.is_healthy]
    families = sorted({row.program.partition("/")[0] for row in faulty})
    for name in (*families, "all"):
        some = [row for row in faulty if name in ("all", row.program.partition("/")[0])]
        first, smallest = sum(row.is_first for row in some), sum(row.is_smallest for row in some)
        runs = max((row.runs for row in some), default=0)
        lines.append(f"| {name} | {len(some)} | {first} | {smallest} | {runs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
