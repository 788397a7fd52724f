"""The JSON objects of a jsonl report; the schema is described in docs/compare.md.

Every object has a ``type``. Fields with their default value are left out. JSON has no NaN and no
infinities: they are the strings ``NaN``, ``Infinity`` and ``-Infinity``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any

from ait_llm import __version__
from ait_llm.core import DType
from ait_llm.core.closeup import Closeup
from ait_llm.core.comparison import (
    Comparison,
    Origin,
    Problem,
    Report,
    Side,
    SideSummary,
    TensorRecord,
    Verdict,
)
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.report.conforming import check_fields

SCHEMA = "ait-llm.compare"
VERSION = 1

Json = Any  # one JSON value
Object = dict[str, Json]

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TUPLES = {  # fields that are tuples in memory and arrays in JSON
    "shape", "worst", "worst_values", "first_bad", "histogram", "candidates", "processes", "steps",
    "stamp", "parts", "cells", "golden_counts", "my_counts", "golden_windows", "my_windows",
}  # fmt: skip
_SINGLE = {  # fields that are one number
    "max", "min", "mean", "norm", "inherited", "introduced", "total", "excess", "confidence",
    "low", "high",
}  # fmt: skip
_INTEGERS = frozenset({int})
_NUMBERS = {"values", "tolerance", "needed"}  # fields that map names to numbers


def number(value: float) -> Json:
    """A number, or the string that stands for one that JSON cannot write."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain(value: Any) -> Json:  # whatever a caller put into the options
    """A value in JSON types: mappings and sequences element by element, others as text."""
    if type(value) is float:
        return number(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return str(value)


def header(report: Report) -> Object:
    """What is known before anything is compared."""
    return {
        "type": "header",
        "schema": SCHEMA,
        "version": VERSION,
        "tool": f"ait-llm {__version__}",
        "scenario": report.scenario,
        "golden": _object(report.golden),
        "mine": _object(report.mine),
        "metrics": list(report.metrics),
        "options": plain(report.options),
        "started": report.started,
    }


def comparison(index: int, item: Comparison) -> Object:
    """One comparison; ``index`` is its place in the report."""
    return {"type": "comparison", "index": index, **_object(item)}


def problem(item: Problem) -> Object:
    """One problem."""
    return {"type": "problem", **_object(item)}


def origin(item: Origin) -> Object:
    """One origin."""
    return {"type": "origin", **_object(item)}


def ledger_row(item: LedgerRow) -> Object:
    """One row of the error ledger."""
    return {"type": "ledger", **_object(item)}


def closeup(item: Closeup) -> Object:
    """One closeup."""
    return {"type": "closeup", **_object(item)}


def total(report: Report) -> Object:
    """The last line of a finished report."""
    return {
        "type": "total",
        "verdict": report.verdict.value,
        "counts": {verdict.value: count for verdict, count in report.counts.items()},
        "complete": report.complete,
        "partial": report.partial,
        "exit_code": report.exit_code(),
        "scenario": report.scenario,
        "metrics": list(report.metrics),
        "finished": report.finished,
    }


def read_comparison(data: Object) -> Comparison:
    """The inverse of :func:`comparison`.

    Raises:
        KeyError, TypeError, ValueError: it is no such object.
    """
    data = dict(data)
    for name in ("golden", "mine"):
        data[name] = _read(TensorRecord, data[name]) if data.get(name) else None
        summary = "golden_summary" if name == "golden" else "my_summary"
        if data.get(summary):
            data[summary] = _read(SideSummary, data[summary])
    data["verdict"] = Verdict(data["verdict"])
    result: Comparison = _read(Comparison, data)
    result.record  # noqa: B018  # raises where both sides are missing
    return result


def read_origin(data: Object) -> Origin:
    """The inverse of :func:`origin`."""
    result: Origin = _read(Origin, data)
    return result


def read_ledger_row(data: Object) -> LedgerRow:
    """The inverse of :func:`ledger_row`."""
    result: LedgerRow = _read(LedgerRow, data)
    return result


def read_closeup(data: Object) -> Closeup:
    """The inverse of :func:`closeup`.

    Raises:
        KeyError, TypeError, ValueError: it is no such object, or its map has other dims.
    """
    result: Closeup = _read(Closeup, data)
    if len(base64.b64decode(result.errors, validate=True)) != math.prod(result.cells):
        raise ValueError(f"a map of {list(result.cells)} cells does not fit its errors")
    return result


def read_problem(data: Object) -> Problem:
    """The inverse of :func:`problem`."""
    result: Problem = _read(Problem, data)
    return result


def read_side(data: Object) -> Side:
    """One side of a header."""
    result: Side = _read(Side, data)
    return result


def read_header(data: Object) -> Object:
    """What the first line says of a report, besides its sides.

    Raises:
        KeyError, TypeError: it is no such line.
    """
    found = {name: data[name] for name in ("scenario", "metrics", "options", "started")}
    check_fields(Report, found)
    return {**found, "metrics": tuple(found["metrics"])}


def read_total(data: Object) -> Object:
    """What the last line says of a report; what counts it is not taken over.

    Raises:
        TypeError: it is no such line.
    """
    names = ("scenario", "metrics", "finished")
    found: Object = {name: data[name] for name in names if name in data}
    found["partial"] = data.get("partial", False)
    check_fields(Report, found)
    if "metrics" in found:
        found["metrics"] = tuple(found["metrics"])
    return found


def _object(item: Any) -> Object:  # any of the frozen types of core.comparison
    result: Object = {}
    owner: Any = type(item)
    defaults = _defaults(owner)
    for (name, default), value in zip(defaults, _values(owner)(item), strict=True):
        if value is default:
            continue
        kind = type(value)
        if kind is TensorRecord or kind is SideSummary:
            result[name] = _object(value)
        elif value == default:
            continue
        elif kind is str or kind is int:
            result[name] = value
        elif kind is float:
            result[name] = number(value)
        elif kind is Verdict:
            result[name] = value.value
        elif kind is DType:
            result[name] = value.label
        elif kind is tuple and _INTEGERS.issuperset(map(type, value)):
            result[name] = list(value)
        elif name in _NUMBERS and kind is dict and all(map(math.isfinite, value.values())):
            result[name] = value
        else:
            result[name] = plain(value)
    return result


@cache
def _values(kind: Any) -> Callable[[Any], tuple[Any, ...]]:  # a dataclass
    """All fields of an object at once, in their order."""
    return attrgetter(*(name for name, _ in _defaults(kind)))


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:  # a dataclass and its defaults
    """Fields in their order, with their defaults; MISSING where there is none."""
    return tuple(
        (field.name, field.default_factory() if callable(field.default_factory) else field.default)
        for field in fields(kind)
    )


def _read(kind: type, data: Object) -> Any:  # an instance of kind
    """Build ``kind`` from the fields that it has; unknown ones come from a newer version."""
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} is not an object")
    values = {name: _field(name, data[name]) for name, _ in _defaults(kind) if name in data}
    check_fields(kind, values)
    return kind(**values)


def _field(name: str, value: Json) -> Any:  # the value in memory
    if name == "dtype" and isinstance(value, str):
        return DType.from_label(value)
    if name in _TUPLES and isinstance(value, list):
        return tuple(map(_number_of, value))
    if name in _NUMBERS:
        return {str(key): _number_of(item) for key, item in value.items()}
    if name in _SINGLE:
        return _number_of(value)
    return value


def _number_of(value: Json) -> Any:  # numbers of any kind, names, None
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
