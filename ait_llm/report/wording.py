"""How reports write names, types, shapes and numbers, and why a pair did not pass."""

from __future__ import annotations

import math
import os.path
from collections.abc import Iterable, Mapping

from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Origin, TensorRecord, Verdict
from ait_llm.naming import escaped, shown
from ait_llm.storage import is_url

HEADLINE = (
    "relative_euclidean_distance",
    "stat_scaled_error",
    "mean_relative_error",
    "max_relative_error",
    "mean_absolute_error",
    "max_absolute_error",
)
"""Metrics that can stand for the error of a tensor, the best first."""


def headline(metrics: Iterable[str]) -> str:
    """The metric that curves and rankings use; the judge's own if none of them was asked for."""
    given = set(metrics)
    return next((name for name in HEADLINE if name in given), HEADLINE[0])


def kind_text(origin: Origin) -> str:
    """What kind of bug an origin has and why, in one clause."""
    return f"{origin.kind} ({origin.kind_evidence})" if origin.kind_evidence else origin.kind


def printable(text: str) -> str:
    """Text from a dump with control characters escaped.

    They could recolour, overwrite or reverse what a terminal shows. Local copies are called by
    their address.
    """
    return escaped(shown(text))


def dtype_text(dtype: DType | None) -> str:
    """``torch.float16``, the manual's style; our own name where torch has none; else empty."""
    if dtype is None:
        return ""
    return f"torch.{dtype.torch_name}" if dtype.torch_name else dtype.label


def shape_text(shape: Iterable[int] | None) -> str:
    """``[1, 4, 8]``; empty if unknown."""
    return "" if shape is None else f"[{', '.join(map(str, shape))}]"


def path_text(record: TensorRecord | None) -> str:
    """The absolute path or the URL of a record's file; empty without a record."""
    return "" if record is None else absolute_text(record.path)


def absolute_text(path: str) -> str:
    """An absolute path, or the URL that is given; empty for none."""
    if not path or is_url(path):
        return path
    return os.path.abspath(path)  # noqa: PTH100  # it may hold bytes that are no text


def short(value: float | None) -> str:
    """Four significant digits for people: ``0.03125``, ``1.2e-05``, ``NaN``; ``n/a`` for None."""
    if value is None:
        return "n/a"
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}"


def index_text(index: Iterable[int] | None) -> str:
    """``[0, 3]``; a scalar's only element is ``[]``."""
    return "" if index is None else f"[{', '.join(map(str, index))}]"


def failed_limits(item: Comparison) -> list[str]:
    """Each limit that was missed, in words: ``max_element_error 0.3 over 0.01``."""
    return [
        f"{name} {short(item.needed[name])} over {short(limit)}"
        for name, limit in item.tolerance.items()
        if name in item.needed and not item.needed[name] <= limit
    ]


def why_not(item: Comparison) -> str:
    """Why a pair did not pass, never empty; empty for a PASS."""
    if item.reason:
        return item.reason
    if item.verdict is Verdict.PASS:
        return ""
    limits = "; ".join(failed_limits(item))
    return limits or f"{item.verdict.value} without a recorded reason"


def missing_text(missing: Mapping[str, str], names: Iterable[str]) -> str:
    """Why metrics have no value: ``kl_divergence: constant tensor``."""
    return "; ".join(f"{name}: {missing[name]}" for name in names if name in missing)


def counted(count: int, noun: str) -> str:
    """``1 tensor``, ``2 tensors``, ``10,000 tensors``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
