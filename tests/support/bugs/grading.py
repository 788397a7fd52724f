"""What was said about a bug, held against the truth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path

import torch

from ait_llm import open_dump
from ait_llm.core.comparison import Origin, Report, Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from bugs.model import Injected, Nature
from bugs.places import Place

_LEFT_OUT = frozenset({"comparisons", "golden", "mine", "options", "ledger", "metrics"})
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w])", re.IGNORECASE)
_CLOSE = 2e-3


class Outcome(Enum):
    """What the comparison said about the origin."""

    FIRST = "right first time"
    AMONG = "among the candidates"
    UNSURE = "an innocent, not certain"
    ACCUSED = "an innocent, certain"
    SILENT = "nothing said"


@dataclass(frozen=True)
class Truth:
    """What is wrong.

    Attributes:
        injected: the bug.
        operators: those that make the first wrong values.
    """

    injected: Injected
    operators: frozenset[Place]

    def names(self) -> frozenset[str]:
        """Names of operators and modules, as dumps have them."""
        found = {_root(each) for each in self.injected.owners}
        return frozenset(found | {f"{_root(each.path)}.{each.what}" for each in self.operators})


def _root(path: str) -> str:
    return f"root.{path}" if path else "root"


def graded(truth: Truth, report: Report, mine: Path, nature: Nature) -> tuple[Outcome, bool]:
    """How the origins of a report are to be called, and if any innocent is named as certain."""
    if not report.origins:
        return Outcome.SILENT, False
    calls = {
        (each.name, str(each.op_id), each.step, each.call) for each in open_dump(mine).operations()
    }
    right = [_is_right(truth, origin, calls, nature) for origin in report.origins]
    accused = any(
        origin.certain and not good for origin, good in zip(report.origins, right, strict=True)
    )
    first = report.origins[0]
    if right[0]:
        return Outcome.FIRST, accused
    if first.certain:
        return Outcome.ACCUSED, True
    if any(right) or truth.names() & {*first.candidates}:
        return Outcome.AMONG, accused
    return Outcome.UNSURE, accused


def _is_right(
    truth: Truth, origin: Origin, calls: Iterable[tuple[str, str, int, int]], nature: Nature
) -> bool:
    words = truth.injected.words
    if words and "differ" in origin.evidence and any(each in origin.evidence for each in words):
        return True
    if nature is Nature.INPUT:
        return "differ" in origin.evidence and _owned(truth, origin)
    path, _, operator = origin.op.partition(".aten.")
    if not operator:
        return (truth.injected.operator is None and _owned(truth, origin)) or (
            truth.injected.operator is not None
            and origin.op == _root(truth.injected.operator.path)
            and not any(".aten." in name for name, *_ in calls)
        )
    numbers = {
        call
        for name, op_id, step, call in calls
        if (name, op_id, step) == (origin.op, origin.op_id, origin.step)
    }
    return any(
        _root(each.path) == path and each.what == f"aten.{operator}" and each.call in numbers
        for each in truth.operators
    )


def _owned(truth: Truth, origin: Origin) -> bool:
    return origin.op.partition(".aten.")[0] in {_root(each) for each in truth.injected.owners}


def is_named(injected: Injected, report: Report, nature: Nature) -> bool | None:
    """Whether a report says which number, weight or input is another; None where none is."""
    if nature not in (Nature.DEFINITION, Nature.INPUT):
        return None
    text = "\n".join(_texts(report))
    if injected.words:
        return any(each in text for each in (*injected.words, injected.attribute))
    if injected.attribute not in text and not any(_root(each) in text for each in injected.owners):
        return False
    numbers = [float(each) for each in _NUMBER.findall(text)]
    if injected.numbers:
        return all(any(_is(each, one) for one in numbers) for each in injected.numbers)
    if injected.right is None or injected.wrong is None:
        return injected.attribute in text
    if injected.attribute not in text:
        return False
    right, wrong = injected.right.double().flatten(), injected.wrong.double().flatten()
    return any(
        bool((_near(right, one) & _near(wrong, other)).any())
        for one in numbers
        for other in numbers
        if one != other
    )


def _is(right: float, said: float) -> bool:
    return abs(right - said) <= _CLOSE * abs(right)


def _near(values: torch.Tensor, said: float) -> torch.Tensor:
    if said != said:
        return values.isnan()
    return (values - said).abs() <= _CLOSE * abs(said)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            if not (isinstance(value, Report) and each.name in _LEFT_OUT):
                yield from _texts(getattr(value, each.name))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def single_dump(truth: Truth, report: OpcheckReport) -> tuple[bool, int, float | None]:
    """Whether the check of one dump alone finds a fault, how many innocents it names, the excess.

    The excess is the error of the operator in units of what its arithmetic permits.
    """
    (place,) = truth.operators
    name = f"{_root(place.path)}.{place.what}@{place.call}"
    found, innocent, excess = False, 0, None
    for item in report.items:
        guilty = item.op == name and item.step == place.step
        if item.verdict is Verdict.FAIL:
            found |= guilty
            innocent += not guilty
        if guilty and item.values:
            excess = max(excess or 0.0, _excess(dict(item.values)))
    return found, innocent, excess


def excess_of_modules(truth: Truth, report: OpcheckReport) -> float | None:
    """The error of the wrong modules in units of what their arithmetic permits.

    None where the check of one dump does not compute them: what lies between their members.
    """
    names = {_root(each) for each in truth.injected.owners}
    steps = {each.step for each in truth.operators}
    found = [
        _excess(dict(item.values))
        for item in report.items
        if item.step in steps and item.values and item.op_id.partition("@")[0] in names
    ]
    return max(found, default=None)


def _excess(values: dict[str, float]) -> float:
    ratios = [values.get("worst", 0.0)]
    for each in ("rms", "scale", "shift"):
        permitted = values.get(f"permitted_{each}")
        if permitted:
            ratios.append(abs(values[each]) / permitted)
    return max(ratios)
