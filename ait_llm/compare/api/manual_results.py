"""Results and messages as the product manual describes them."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.compare.api.columns import RELATIVES, Mode
from ait_llm.compare.api.item import NOT_AVAILABLE
from ait_llm.compare.api.real_data import SHAPE_UNMATCHED, UNMATCHED
from ait_llm.compare.api.row import Row, number
from ait_llm.compare.api.statistics_rules import NO_DIFFERENCES

WARNING = "Warning"
REACHED, NOT_REACHED, UNCLEAR, UNMATCHED_SHAPE = "Yes", "No", "None", "Unmatched"
SAME, DIFFERENT = "Pass", "Different"
_CHECK = "Need double check api accuracy."
_NO_BENCH = "No bench data matched."
_NO_NPU = "No NPU data matched."
_GRAD = "Requires_grad inconsistent."
_FUZZY = "Fuzzy matching data, the comparison accuracy may be affected."
_RELATIVE = 0.5
_COSINE, _LOW_COSINE = 0.99, 0.9
_ABSOLUTE, _HIGH_ABSOLUTE = 0.001, 1.0


def judge_manual(rows: Sequence[Row], mode: Mode, *, fuzzy: bool = False) -> None:
    """Fill in results and messages of some rows, each for itself.

    Args:
        rows: of any calls.
        mode: what is compared.
        fuzzy: names were matched without call numbers.
    """
    for row in rows:
        if mode == "md5":
            _checksum(row)
            continue
        if mode == "tensor":
            row.result = accuracy(row)
            row.messages += [note for note in row.notes if note != UNMATCHED or row.mine]
        else:
            _statistics(row)
        if not row.matched:
            row.messages.append(_NO_BENCH if row.golden is None else _NO_NPU)
        elif not row.consistent:
            row.messages.append(_GRAD)
        if fuzzy and row.mine and row.golden and row.mine.name != row.golden.name:
            row.messages.append(_FUZZY)


def manual_message(row: Row) -> str:
    """The message column: sentences."""
    return " ".join(row.messages)


def accuracy(row: Row) -> str:
    """``Accuracy Reached or Not`` of real data."""
    cosine, absolute = row.metric("Cosine"), row.metric("MaxAbsErr")
    if cosine == SHAPE_UNMATCHED:
        return UNMATCHED_SHAPE
    if NOT_AVAILABLE in (cosine, absolute):
        return NOT_REACHED
    similar, error = number(cosine), number(absolute)
    if error is not None and similar is None and cosine == "unsupported":
        return NOT_REACHED if error > _HIGH_ABSOLUTE else UNCLEAR
    if similar is None or error is None:
        return UNCLEAR
    far = similar < _LOW_COSINE or error > _HIGH_ABSOLUTE
    return NOT_REACHED if far or (similar < _COSINE and error > _ABSOLUTE) else REACHED


def _statistics(row: Row) -> None:
    if not row.matched:
        row.result = NOT_AVAILABLE
        return
    if row.cells is NO_DIFFERENCES:
        return
    errors = [row.relative(name) for name in RELATIVES]
    unlike = "Nan" in row.cells or "Diff" in row.cells
    if unlike or any(error is not None and error > _RELATIVE for error in errors):
        row.result = WARNING
        row.messages.append(_CHECK)


def _checksum(row: Row) -> None:
    if row.mine is None or row.golden is None:
        row.result = NOT_AVAILABLE
        row.messages.append(_NO_BENCH if row.golden is None else _NO_NPU)
    else:
        row.result = SAME if row.mine.md5 == row.golden.md5 else DIFFERENT
