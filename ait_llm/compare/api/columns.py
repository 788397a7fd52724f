"""Columns of the result tables, in their order."""

from __future__ import annotations

from typing import Literal

from ait_llm.errors import UsageError

Mode = Literal["tensor", "statistics", "md5"]
# What the product manual describes, or what release 26.2 of msprobe writes.
Style = Literal["manual", "release"]

COMMON = (
    "NPU Name",
    "Bench Name",
    "NPU Dtype",
    "Bench Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "NPU Requires_grad",
    "Bench Requires_grad",
)
METRICS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
DIFFERENCES = ("Max diff", "Min diff", "Mean diff", "L2norm diff")
RELATIVES = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
STATISTICS = (
    "NPU max",
    "NPU min",
    "NPU mean",
    "NPU l2norm",
    "Bench max",
    "Bench min",
    "Bench mean",
    "Bench l2norm",
)
CHECKSUMS = ("NPU MD5", "BENCH MD5")
CONSISTENT = "Requires_grad Consistent"
RESULT = "Result"
ACCURACY = "Accuracy Reached or Not"
MESSAGE = "Err_message"
STACK = "NPU_Stack_Info"
DATA_NAME = "Data_name"


def columns_of(mode: Mode, style: Style, *, stack: bool, custom: tuple[str, ...] = ()) -> list[str]:
    """Header of a table.

    Args:
        mode: what is compared.
        style: whose table.
        stack: with the column of call stacks.
        custom: columns of the user's own metrics, after the built-in ones.

    Raises:
        UsageError: one of them is called as another column.
    """
    fixed = {*COMMON, *METRICS, *STATISTICS, CONSISTENT, RESULT, ACCURACY, MESSAGE, STACK}
    taken = [name for name in custom if name in fixed | {DATA_NAME} or custom.count(name) > 1]
    if taken:
        raise UsageError(f"there is a column {taken[0]!r} already; rename the function of -alg")
    found = [*COMMON]
    if mode == "tensor":
        found += [*METRICS, *custom, *STATISTICS]
    elif mode == "statistics":
        found += [*DIFFERENCES, *RELATIVES, *STATISTICS]
    else:
        found += CHECKSUMS
    found.append(CONSISTENT)
    found.append(ACCURACY if mode == "tensor" and style == "manual" else RESULT)
    found.append(MESSAGE)
    if stack:
        found.append(STACK)
    if mode == "tensor":
        found.append(DATA_NAME)
    return found


def metric_columns(mode: Mode) -> tuple[str, ...]:
    """Columns that measure something, which ``merge-result`` can collect."""
    if mode == "md5":
        return ()
    return (*(METRICS if mode == "tensor" else (*DIFFERENCES, *RELATIVES)), CONSISTENT)
