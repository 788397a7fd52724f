"""Results and messages as release 26.2 of msprobe gives them, without what it loses.

The rows of one call are judged together: what goes in against what comes out. Where the release
overwrites a message, or calls a row that it did not look at ``pass``, this does not; the list of
such differences is in ``docs/msprobe-compatibility.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.item import NOT_AVAILABLE
from ait_llm.compare.api.row import Row, is_not_finite, number
from ait_llm.compare.api.without_rules import is_ignored, looks_at_inputs_only

NO_BENCH = "warning: No bench data matched."
NO_NPU = "warning: No NPU data matched."
_NOT_FINITE = "error: There is nan/inf/-inf in the maximum or minimum value of NPU."
_THOUSANDTH = (
    "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6."
)
_NORM = "error: The NormRelativeErr of output is greater than 0.5."
_GRAD = "error: The Required_Grad of NPU and Bench are inconsistent."
_SCALAR = "error: The scalar parameters of NPU and Bench are inconsistent."
_DTYPE = "error: The dtype of NPU and Bench are inconsistent."
_SHAPE = "error: The shape of NPU and Bench are inconsistent."
_GROWTH = "warning: The norm relative error of output is 10 times that of input."
_COSINE = "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1"
_MD5 = "error: The CRC-32 value of NPU differs from that of the bench."
_MD5_UNMATCHED = "warning: The parameter of NPU does not match the bench."
# The message of the release says 0.6; the release itself compares with 0.1.
_OUTPUT_THOUSANDTH = 0.6


def judge_release(rows: Sequence[Row], mode: Mode) -> None:
    """Fill in results and messages of the rows of one call."""
    for row in rows:
        if not row.matched and mode != "md5":
            row.messages.append(NO_BENCH if row.golden is None else NO_NPU)
    if mode == "md5":
        for row in rows:
            _checksum(row)
    elif rows and not is_ignored(rows[0].item.record):
        _each(rows)
        if not looks_at_inputs_only(rows[0].item.record):
            (_real_data if mode == "tensor" else _statistics)(rows)
    for row in rows:
        _tell_notes(row)
        row.result = _level(row.messages)


def release_message(row: Row) -> str:
    """The message column: a JSON list."""
    return json.dumps(row.messages, ensure_ascii=False)


def _tell_notes(row: Row) -> None:
    """Say why a matched row has no metrics, unless a rule has said so."""
    for note in row.notes if row.matched else ():
        if note.startswith("Shape") and _SHAPE in row.messages:
            continue
        if note.startswith(("Dump file", "Shape", "The Position", "Bench does not have")):
            row.messages.append(f"warning: {note}")


def _level(messages: Iterable[str]) -> str:
    levels = {message.partition(":")[0] for message in messages}
    return "error" if "error" in levels else "warning" if "warning" in levels else "pass"


def _checksum(row: Row) -> None:
    mine = row.mine.md5 if row.mine is not None else NOT_AVAILABLE
    golden = row.golden.md5 if row.golden is not None else NOT_AVAILABLE
    if mine == golden:
        return
    missing = {NOT_AVAILABLE, "Nan", ""}
    row.messages.append(_MD5_UNMATCHED if {mine, golden} & missing else _MD5)


def _each(rows: Sequence[Row]) -> None:
    for row in rows:
        mine, golden = row.mine, row.golden
        if mine is None:
            continue
        found = any(map(is_not_finite, row.extreme("mine")))
        if found and not any(map(is_not_finite, row.extreme("golden"))):
            row.messages.insert(0, _NOT_FINITE)
        if golden is None:
            continue
        known = NOT_AVAILABLE not in (mine.requires_grad, golden.requires_grad)
        if known and not row.consistent:
            row.messages.append(_GRAD)
        if _is_scalar_input(row) and _differ(mine.statistics[0], golden.statistics[0]):
            row.messages.append(_SCALAR)
        if mine.dtype != golden.dtype and not _is_merged(mine.name):
            row.messages.append(_DTYPE)
        if mine.shape != golden.shape:
            row.messages.append(_SHAPE)


def _is_scalar_input(row: Row) -> bool:
    mine, golden = row.mine, row.golden
    assert mine is not None
    assert golden is not None
    return (
        not row.is_output
        and "class" in mine.dtype
        and "class" in golden.dtype
        and mine.shape == golden.shape == "[]"
    )


def _differ(mine: Any, golden: Any) -> bool:
    return str(mine) != str(golden)


def _is_merged(name: str) -> bool:
    """True for projections that one side keeps merged, whose types may differ."""
    return "qkv" in name or "gate_up" in name


def _statistics(rows: Sequence[Row]) -> None:
    before = _extreme(rows, lambda row: row.relative("NormRelativeErr"), output=False)
    outputs = [row for row in rows if row.is_output]
    errors = [(row, row.relative("NormRelativeErr")) for row in outputs]
    for row, error in errors:
        if before < 0.1 and error is not None and error > 0.5:
            row.messages.append(_NORM)
    after = max((error for _, error in errors if error is not None), default=0.0)
    grown = after > 0.1 if before == 0 else after / before > 10
    if outputs and grown:
        outputs[0].messages.append(_GROWTH)


def _extreme(rows: Sequence[Row], value: Callable[[Row], float | None], *, output: bool) -> float:
    """Largest finite value of a side of a call, 0 without one."""
    found = [value(row) for row in rows if row.is_output is output]
    return max((each for each in found if each is not None and each != float("inf")), default=0.0)


def _real_data(rows: Sequence[Row]) -> None:
    outputs = [row for row in rows if row.is_output]
    if not outputs:
        return
    ratio_in, ratio_out = (_least(rows, "One Thousandth Err Ratio", out) for out in (False, True))
    if ratio_in > 0.9 and ratio_out < _OUTPUT_THOUSANDTH:
        outputs[0].messages.append(_THOUSANDTH)
    cosine_in, cosine_out = (_least(rows, "Cosine", out) for out in (False, True))
    if cosine_in > 0.9 and cosine_in - cosine_out > 0.1:
        outputs[0].messages.append(_COSINE)


def _least(rows: Sequence[Row], metric: str, output: bool) -> float:
    found = [number(row.metric(metric)) for row in rows if row.is_output is output]
    return min((each for each in found if each is not None), default=1.0)
