"""Weights by name, and quantised weights by the real numbers they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ait_llm.core import DType
from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.dequantised import Dequantised, dequantised
from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.names import pair_names
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.program.describe import dtype_of
from ait_llm.program.one_pass import Pass

_NARROW = (DType.INT8, DType.INT4)


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight of one side.

    Attributes:
        placed: where reports find it.
        parts: what it is stored in, if that is more than one tensor.
    """

    placed: Placed
    parts: tuple[Placed, ...] = ()


@matchers.register("by_weight")
def by_weight(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Weights of equal names; wrappers and outer names may differ.

    A weight that only one side quantised, or each in its own way, becomes the real numbers that
    it stands for. What both sides store alike is compared as stored.
    """
    first = {each.operation.name: each for each in placed(golden)}
    second = {each.operation.name: each for each in placed(mine)}
    real = _dequantised(first), _dequantised(second)
    alike = {
        name
        for name, one in real[0].items()
        if name in real[1]
        and real[1][name].parts == one.parts
        and real[1][name].tensor.stored_as == one.tensor.stored_as
    }
    ours, theirs = _weights(first, real[0], alike), _weights(second, real[1], alike)
    for pair in pair_names(dict.fromkeys(ours), dict.fromkeys(theirs)):
        one, other = ours[pair.golden], theirs[pair.mine]
        finding = Finding("by_weight", pair.confidence, pair.reason)
        yield from _match(one, other, finding)
    for side, weights in (("golden", ours), ("mine", theirs)):
        for weight in weights.values():
            yield from _alone("golden" if side == "golden" else "mine", weight)


def _dequantised(weights: Mapping[str, Placed]) -> dict[str, Dequantised]:
    return dequantised({name: next(each.tensors) for name, each in weights.items()})


def _weights(
    stored: Mapping[str, Placed], real: Mapping[str, Dequantised], as_stored: set[str]
) -> dict[str, _Weight]:
    """Weights by name, those that are stored in parts as one."""
    found = {name: _Weight(each) for name, each in stored.items()}
    for name, each in real.items():
        if name in as_stored:
            continue
        parts = tuple(stored[part] for part in each.parts)
        for part in each.parts:
            found.pop(part, None)
        tensor = replace(each.tensor, role="out", phase="after")
        operation = replace(parts[0].operation, name=name, tensors=(tensor,))
        found[name] = _Weight(replace(parts[0], operation=operation), parts)
    return found


def _match(one: _Weight, other: _Weight, finding: Finding) -> Iterator[Match | Unmatched]:
    tensors = next(one.placed.tensors), next(other.placed.tensors)
    words = [each.stored_as for each in tensors if each.stored_as]
    if words:
        how = " and ".join(dict.fromkeys(words))
        finding = replace(finding, reason=f"{finding.reason}, of {how}")
    for weight, tensor, partner in ((one, *tensors), (other, *tensors[::-1])):
        if dtype_of(tensor) in _NARROW and dtype_of(partner) not in _NARROW:
            name = weight.placed.operation.name
            reason = f"{name} is quantised, its scale {name}_scale is not there"
            yield one.placed.unmatched("golden", tensors[0], reason)
            yield other.placed.unmatched("mine", tensors[1], reason)
            return
    for found in finding.match((one.placed, tensors[0]), (other.placed, tensors[1])):
        if isinstance(found, Unmatched):
            yield found
            continue
        yield replace(found, uses=(*_uses("golden", one), *_uses("mine", other)))


def _uses(side: SideName, weight: _Weight) -> Iterator[tuple[SideName, TensorRecord]]:
    for part in weight.parts[1:]:
        yield side, part.source(next(part.tensors)).record


def _alone(side: SideName, weight: _Weight) -> Iterator[Unmatched]:
    """Why the parts of a quantised weight have no partner, if it has none."""
    for part in weight.parts[1:]:
        reason = "is a scale or an offset of a quantised weight that has no partner"
        yield part.unmatched(side, next(part.tensors), reason)
