"""Weights by name, and int8 weights by the real numbers they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.model import Match, MatchOptions, SideName, Source, Unmatched, matchers
from ait_llm.match.names import pair_names
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.match.views import Dequantise, View
from ait_llm.program.describe import logical_shape
from ait_llm.program.one_pass import Pass

_QUANTISED = frozenset({DType.INT8, DType.INT4})
_SCALE, _OFFSET = "_scale", "_offset"
_MAX_SCALES = 1 << 22


@matchers.register("by_weight")
def by_weight(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Weights of equal names; wrappers and outer names may differ.

    An int8 weight ``X.weight`` becomes ``(X.weight - X.weight_offset) * X.weight_scale`` where the
    other side has real numbers. The format is that of Ascend's W8A8 checkpoints.
    """
    first = {each.operation.name: each for each in placed(golden)}
    second = {each.operation.name: each for each in placed(mine)}
    helpers = _helpers(first), _helpers(second)
    names = pair_names(
        {name: None for name in first if name not in helpers[0]},
        {name: None for name in second if name not in helpers[1]},
    )
    for pair in names:
        one, other = first[pair.golden], second[pair.mine]
        finding = Finding("by_weight", pair.confidence, pair.reason)
        yield from _match(one, other, first, second, finding)
    # scales that both sides have are compared like any weight
    for name in helpers[0] & helpers[1]:
        finding = Finding("by_weight", 1.0, "same name")
        yield from _match(first[name], second[name], {}, {}, finding)
    for name in sorted(helpers[1] - helpers[0]):
        yield from _alone("mine", second[name])
    for name in sorted(helpers[0] - helpers[1]):
        yield from _alone("golden", first[name])


def _helpers(weights: Mapping[str, Placed]) -> set[str]:
    """Names of the scales and offsets that belong to another weight of the same side."""
    found = set()
    for name in weights:
        for suffix in (_SCALE, _OFFSET):
            if name.endswith(suffix) and name.removesuffix(suffix) in weights:
                found.add(name)
    return found


def _alone(side: str, each: Placed) -> Iterator[Unmatched]:
    for tensor in each.tensors:
        reason = "is a scale or an offset of a quantised weight that has no partner"
        yield each.unmatched("mine" if side == "mine" else "golden", tensor, reason)


def _match(
    golden: Placed,
    mine: Placed,
    golden_weights: Mapping[str, Placed],
    my_weights: Mapping[str, Placed],
    finding: Finding,
) -> Iterator[Match | Unmatched]:
    one, other = next(golden.tensors), next(mine.tensors)
    try:
        quantised = one.dtype in _QUANTISED, other.dtype in _QUANTISED
    except AitError:
        quantised = False, False  # reading the values says what is wrong
    for found in finding.match((golden, one), (mine, other)):
        if isinstance(found, Unmatched) or quantised[0] == quantised[1]:
            yield found
            continue
        side, tensor, weights = (
            (golden, one, golden_weights) if quantised[0] else (mine, other, my_weights)
        )
        view = _dequantise(side.operation.name, tensor, weights)
        if isinstance(view, str):
            yield golden.unmatched("golden", one, view)
            yield mine.unmatched("mine", other, view)
            continue
        sources = [found.golden, found.mine]
        at = 0 if quantised[0] else 1
        sources[at] = _viewed(sources[at], view)
        name = side.operation.name
        helpers = [
            weights[name + suffix] for suffix in (_SCALE, _OFFSET) if name + suffix in weights
        ]
        where: SideName = "golden" if quantised[0] else "mine"
        yield Match(
            sources[0],
            sources[1],
            finding.rule,
            finding.confidence,
            f"{finding.reason}, int8 dequantised with its scale",
            uses=tuple((where, each.source(next(each.tensors)).record) for each in helpers),
        )


def _viewed(source: Source, view: View) -> Source:
    return Source(source.record, source.tensor, (view, *source.views))


def _dequantise(name: str, weight: Tensor, weights: Mapping[str, Placed]) -> Dequantise | str:
    """The view that turns a quantised weight into real numbers, or why there is none."""
    scale = weights.get(name + _SCALE)
    if scale is None:
        return f"{name} is quantised, its scale {name}{_SCALE} is not there"
    offset = weights.get(name + _OFFSET)
    try:
        scales = _numbers(next(scale.tensors))
        offsets = (0.0,) if offset is None else _numbers(next(offset.tensors))
        shape = logical_shape(weight)
    except AitError as error:
        return f"the scale of {name} cannot be read: {error}"
    # one scale for each output channel, which is the first axis of a torch weight
    if len(scales) not in (1, shape[0] if shape else 1):
        return f"{name} of shape {list(shape)} has {len(scales)} scales, not 1 or {shape[:1]}"
    return Dequantise(scales, offsets, -len(shape))


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    array = tensor.nd()
    if array.size > _MAX_SCALES:
        raise AitError(f"{tensor.path}: {array.size} values are no scale per channel")
    return tuple(array.astype(np.float64).reshape(-1).tolist())
