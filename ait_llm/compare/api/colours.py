"""Which rows a table marks red or yellow, and the sentences that say why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.row import Row, is_not_finite, number

RED, YELLOW = "red", "yellow"
_NOT_FINITE = "maximum or minimum is nan, -inf, or inf"
_HUGE = "maximum absolute error exceeds 1e+10"
_THOUSANDTH = (
    "The input/parameters's one thousandth err ratio exceeds 0.9, while the output's is below 0.6"
)
_RELATIVE = "maximum relative error exceeds 0.5"
_MAGNITUDE = (
    "maximum absolute error of both input/parameters and output exceed 1, "
    "with the output larger by an order of magnitude"
)
_THOUSANDTH_DROP = (
    "The output's one thousandth err ratio decreases by more than 0.1 compared to the "
    "input/parameters's"
)
_RELATIVE_GROWTH = (
    "The output's maximum relative error exceeds 0.1, while the input/parameters's is below 0.01"
)
_COSINE_DROP = "The output's cosine decreases by more than 0.1 compared to the input/parameters's"
_GRAD = "Requires_grad inconsistent."
_FLOOR = 0.01  # below it, a maximum is too small to divide by
_LARGEST = 1e10


def colour(rows: Sequence[Row], mode: Mode) -> None:
    """Mark the rows of one call, red before yellow, and add the reasons to their messages."""
    if mode == "md5":
        return
    inputs = [row for row in rows if not row.is_output and row.matched]
    for row in rows:
        if row.mine is None:
            continue
        red = list(_red_alone(row, mode))
        yellow = [] if row.consistent or not row.matched else [_GRAD]
        if row.is_output and row.matched:
            red += _red_output(row, inputs, mode)
            yellow += _yellow_output(row, inputs, mode)
        row.colour = RED if red else YELLOW if yellow else ""
        row.messages += [text for text in (*red, *yellow) if text not in row.messages]


def _red_alone(row: Row, mode: Mode) -> Iterable[str]:
    if any(map(is_not_finite, row.extreme("mine"))):
        yield _NOT_FINITE
    error = _absolute(row, mode)
    if error is not None and error > _LARGEST:
        yield _HUGE


def _red_output(row: Row, inputs: Sequence[Row], mode: Mode) -> Iterable[str]:
    if mode == "tensor":
        ratio = number(row.metric("One Thousandth Err Ratio"))
        if ratio is not None and _least(inputs, "One Thousandth Err Ratio", 0.9) and ratio < 0.6:
            yield _THOUSANDTH
    else:
        relative = _relative(row)
        if relative is not None and relative > 0.5:
            yield _RELATIVE


def _yellow_output(row: Row, inputs: Sequence[Row], mode: Mode) -> Iterable[str]:
    error = _absolute(row, mode)
    before = max((each for r in inputs if (each := _absolute(r, mode)) is not None), default=None)
    if error is not None and before is not None and min(error, before) > 1 and error >= 10 * before:
        yield _MAGNITUDE
    if mode == "tensor" and _dropped(row, inputs, "One Thousandth Err Ratio"):
        yield _THOUSANDTH_DROP
    relative = _relative(row)
    entering = [each for r in inputs if (each := _relative(r)) is not None]
    if relative is not None and relative > 0.1 and entering and max(entering) < 0.01:
        yield _RELATIVE_GROWTH
    if mode == "tensor" and _dropped(row, inputs, "Cosine"):
        yield _COSINE_DROP


def _absolute(row: Row, mode: Mode) -> float | None:
    if mode == "tensor":
        return number(row.metric("MaxAbsErr"))
    return row.difference() if row.matched else None


def _relative(row: Row) -> float | None:
    """Difference of the maxima over golden's, which counts as 0.01 at least."""
    if row.mine is None or row.golden is None:
        return None
    mine, golden = number(row.mine.statistics[0]), number(row.golden.statistics[0])
    if mine is None or golden is None or not (math.isfinite(mine) and math.isfinite(golden)):
        return None
    return abs(mine - golden) / max(_FLOOR, abs(golden))


def _values(rows: Iterable[Row], metric: str) -> list[float]:
    return [each for row in rows if (each := number(row.metric(metric))) is not None]


def _least(rows: Iterable[Row], metric: str, limit: float) -> bool:
    found = _values(rows, metric)
    return bool(found) and min(found) > limit


def _dropped(row: Row, inputs: Iterable[Row], metric: str) -> bool:
    after, before = number(row.metric(metric)), _values(inputs, metric)
    return after is not None and bool(before) and min(before) - after > 0.1
