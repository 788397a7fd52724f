"""Whether golden and mine are what the user meant them to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ait_llm.core.comparison import Comparison, Problem
from ait_llm.core.dtype import DType
from ait_llm.match.scenario import Scenario


def same_side(scenario: Scenario) -> list[Problem]:
    """The problem that one dump was given twice; empty otherwise."""
    golden, mine = scenario.golden, scenario.mine
    if golden.dump is None or mine.dump is None:
        return []
    text = itself(golden.path, mine.path)
    return [Problem("both", text)] if text else []


def itself(golden: Path, mine: Path) -> str:
    """What is wrong with two paths that stand for one dump; empty if they do not."""
    if _place(golden) != _place(mine):
        return ""
    return f"golden and mine are both {mine}: compared with itself, a dump always passes"


def _place(path: Path) -> Path:
    """What a path stands for, whether it names the dump or the folder that holds it."""
    found = path.resolve()
    inside = found / "ait_dump"
    return inside.resolve() if inside.is_dir() else found


def exchanged_sides(comparisons: Sequence[Comparison]) -> list[Problem]:
    """A note if golden computes in a coarser type than mine; empty otherwise.

    Limits follow the coarser type of a pair, so verdicts are the same either way. But who is to
    blame is always looked for in mine.

    Args:
        comparisons: of the whole report.
    """
    pairs: Counter[tuple[DType, DType]] = Counter()
    for item in comparisons:
        if item.golden is None or item.mine is None or item.mine.role != "out":
            continue
        golden, mine = item.golden.dtype, item.mine.dtype
        if golden is not None and mine is not None and golden.is_floating and mine.is_floating:
            pairs[golden, mine] += 1
    if not pairs:
        return []
    golden, mine = pairs.most_common(1)[0][0]
    if golden.bits >= mine.bits:
        return []
    text = (
        f"golden computes in {golden.label} and mine in {mine.label}; if mine is the trusted run, "
        "exchange -gp and -mp"
    )
    return [Problem("both", text, decides=False)]
