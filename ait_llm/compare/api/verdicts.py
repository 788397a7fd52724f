"""Whether a row is right, by the limits of every other comparison, whatever its table calls it.

The columns of the tables, the result column included, are those of the manual and of msprobe. What
the command says, and what it ends with, rests on this.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.item import NO_CHECKSUM, NO_FILE, NOT_AVAILABLE, Item, is_number
from ait_llm.compare.api.without_rules import function_of
from ait_llm.compare.statistics import compare_statistics
from ait_llm.compare.values import Values
from ait_llm.core import DType
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.api_values import dtype_named, statistics_named
from ait_llm.errors import AitError
from ait_llm.judge import Limits, Tolerance, tolerance_for
from ait_llm.judge.definitions import is_telling
from ait_llm.metrics.ratios import Ratios

_NOBODY: Mapping[str, Any] = {"golden": None, "mine": None}
_MODULE = "Module."
_DEVICES = ("npu", "cpu", "cuda")
_SAME_NUMBER = 1e-6  # relative: one tool writes a float32, the other a float64
# What code fills in where a score is hidden: the lowest number of the type that it computes in,
# of float32, bfloat16, float16 and float64, or infinity.
_ENDS = (3.4028234663852886e38, 3.3895313892515355e38, 65504.0, sys.float_info.max, math.inf)
_MARGIN = 0.5  # of a limit; totals say of a single element only how far it is away at most


class Judged(NamedTuple):
    """What a row counts as.

    Attributes:
        verdict: PASS, FAIL or SKIPPED.
        reason: why, as a clause; empty for a plain PASS.
        comparable: False for what means nothing on either side; it decides nothing.
    """

    verdict: Verdict
    reason: str = ""
    comparable: bool = True


PASSED = Judged(Verdict.PASS)


def judge_row(
    mine: Item | None,
    golden: Item | None,
    mode: Mode,
    measured: Judged | None,
    tolerance: Tolerance | None = None,
) -> Judged:
    """Whether two items are the same within what rounding permits.

    Args:
        mine, golden: what a row sets side by side; one of them may be missing.
        mode: what is compared.
        measured: of their values; None where nothing was measured.
        tolerance: limits of the user.
    """
    if mine is None or golden is None:
        item, side = (golden, "golden") if mine is None else (mine, "mine")
        assert item is not None
        text = f"only {side} has it" if item.is_tensor else f"scalar of {side} only"
        return Judged(Verdict.SKIPPED, text)
    if mode == "statistics" and _are_same(mine, golden):
        return PASSED  # nearly always, of hundreds of thousands
    if not (mine.is_tensor and golden.is_tensor) or mine.dtype == golden.dtype == "torch.Size":
        return _scalars(mine, golden)
    if isinstance(mine.statistics[0], str) and mine.statistics == golden.statistics:
        return PASSED  # what is written out: an ellipsis, a process group, a rank
    if mine.state == "output" and function_of(mine.record) in _WITHOUT_VALUES:
        return Judged(Verdict.SKIPPED, "it is memory that nobody has written yet", False)
    if mine.shape != golden.shape and _dims(mine) != _dims(golden):
        text = f"shapes differ: golden {golden.shape}, mine {mine.shape}"
        return Judged(Verdict.FAIL, text)
    if "0" in _dims(mine):
        return PASSED
    if mode == "statistics" and mine.is_text and golden.is_text:
        return Judged(Verdict.SKIPPED, "it is text, which has no statistics", False)
    if mode == "tensor" and measured is not None:
        if NO_FILE not in (mine.data_name, golden.data_name):
            return measured
        found = _described(mine, golden, mode, tolerance)
        lost = "its values were not saved"
        return found if found.verdict is not Verdict.SKIPPED else Judged(Verdict.SKIPPED, lost)
    return _described(mine, golden, mode, tolerance)


def _are_same(mine: Item, golden: Item) -> bool:
    statistics = mine.statistics
    return (
        statistics[0] is not None
        and statistics == golden.statistics
        and mine.dtype == golden.dtype
        and mine.shape == golden.shape
    )


# Of what they give back, the elements are whatever was there.
_WITHOUT_VALUES = frozenset(
    {
        "empty",
        "empty_like",
        "empty_with_format",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    }
)


def judge_values(
    mine: Values, golden: Values, totals: Ratios | None, tolerance: Tolerance | None = None
) -> Judged:
    """Whether two tensors are the same within what rounding permits.

    Args:
        mine, golden: opened.
        totals: of all their elements; those that are far within the limits are not read again.
        tolerance: limits of the user.
    """
    if totals is not None and _is_within(
        totals, tolerance_for(golden.dtype, mine.dtype, tolerance)
    ):
        return PASSED
    from ait_llm.compare.pair import Settings, compare_opened  # takes long, and few need it

    try:
        found = compare_opened(golden, mine, Settings((), tolerance=tolerance), names=_NOBODY)
    except (AitError, ValueError) as error:
        return Judged(Verdict.SKIPPED, str(error))
    return Judged(found.verdict, found.reason)


def judge_text(mine: Path, golden: Path) -> Judged:
    """Whether two files hold the same text."""
    try:
        arrays = [np.load(path, allow_pickle=False) for path in (mine, golden)]
    except (OSError, ValueError, EOFError) as error:
        return Judged(Verdict.SKIPPED, f"its text cannot be read: {error}")
    if np.array_equal(*arrays):
        return PASSED
    return Judged(Verdict.FAIL, "the text is another one")


def _is_within(totals: Ratios, limits: Limits) -> bool:
    if totals.misplaced or not math.isfinite(totals.golden_squares + totals.squares):
        return False
    if not totals.squares and not totals.max_absolute:
        return True
    if limits.exact or not totals.count:
        return False
    distance = math.sqrt(totals.squares)
    size = math.sqrt(totals.golden_squares)
    typical = size / math.sqrt(totals.count)
    near = distance <= _MARGIN * limits.relative_euclidean * size
    return near and totals.max_absolute <= _MARGIN * limits.max_element * typical


def _described(mine: Item, golden: Item, mode: Mode, tolerance: Tolerance | None) -> Judged:
    """By checksums where they were asked for, else by statistics."""
    if mode == "md5" and NO_CHECKSUM not in (mine.md5, golden.md5) and mine.md5 and golden.md5:
        if mine.md5 == golden.md5:
            return PASSED
        return Judged(Verdict.FAIL, f"checksums differ: golden {golden.md5}, mine {mine.md5}")
    types = dtype_named(mine.dtype), dtype_named(golden.dtype)
    ours, theirs = (statistics_named(*side.statistics) for side in (mine, golden))
    if ours is None or theirs is None:
        if DType.UNDEFINED not in types and types[0].is_floating != types[1].is_floating:
            return Judged(Verdict.FAIL, f"types differ: golden {golden.dtype}, mine {mine.dtype}")
        return Judged(Verdict.SKIPPED, "neither its values nor statistics of it were recorded")
    limit = tolerance_for(types[1], types[0], tolerance).relative_euclidean
    found = compare_statistics(theirs, ours, _elements(golden), limit)
    return Judged(found.verdict, found.reason)


def _dims(item: Item) -> list[str]:
    """Dims that are not 1, as text."""
    return [each for each in item.shape.strip("[]()").split(", ") if each not in ("", "1")]


def _elements(item: Item) -> int:
    return math.prod(int(each) for each in _dims(item) if each.isdecimal())


def _scalars(mine: Item, golden: Item) -> Judged:
    """Arguments that are no tensors: equal, but for where and in which type things are computed."""
    ours, theirs = _content(mine), _content(golden)
    if str(ours) == str(theirs) or (_is_place(ours) and _is_place(theirs)):
        return PASSED
    if isinstance(ours, float) and is_number(theirs) and _are_one_number(ours, theirs):
        return PASSED
    text = f"it is {ours} instead of {theirs}"
    if mine.record.startswith(_MODULE) and not _is_telling(mine):
        return Judged(Verdict.SKIPPED, f"{text}, which decides nothing that is computed", False)
    return Judged(Verdict.FAIL, text)


def _are_one_number(ours: float, theirs: float) -> bool:
    """True for numbers that are one but for their type, and for ends of types."""
    if abs(ours - theirs) <= _SAME_NUMBER * max(abs(ours), abs(theirs)):
        return True
    return _is_end(ours) and _is_end(theirs) and (ours > 0) == (theirs > 0)


def _is_end(value: float) -> bool:
    """True for the lowest or highest number of a floating type, or infinity."""
    return any(math.isclose(abs(value), each, rel_tol=_SAME_NUMBER) for each in _ENDS)


def _is_telling(item: Item) -> bool:
    """True unless a name says that an argument is no part of what is computed: ``use_cache``."""
    last = item.name.rpartition(".")[2]
    return last.isdigit() or is_telling(last)


def _content(item: Item) -> Any:
    """The value of what is no tensor; of a slice, whose value no table shows, its checksum."""
    if item.statistics[0] is not None:
        return item.statistics[0]
    return item.md5 if item.shape in ("(3,)", NOT_AVAILABLE) else item.shape


def _is_place(value: Any) -> bool:
    text = str(value)
    return text.startswith(_DEVICES) or (
        text.startswith("torch.") and dtype_named(text) is not DType.UNDEFINED
    )
