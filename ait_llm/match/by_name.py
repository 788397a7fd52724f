"""Dumps of modules and operators by their dotted names: torch against torch, and the like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ait_llm.dumps.model import Tensor
from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.names import NamePair, pair_names
from ait_llm.match.operators import Finding, Placed, output_shapes, placed
from ait_llm.match.shapes import align, batch_ratio
from ait_llm.program.one_pass import Pass


@matchers.register("by_name")
def by_name(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Calls of equal names and numbers, and their tensors of equal arguments."""
    first, second = _by_name(golden), _by_name(mine)
    names = pair_names(
        {name: next(iter(calls.values())).operation.type for name, calls in first.items()},
        {name: next(iter(calls.values())).operation.type for name, calls in second.items()},
    )
    pairs: list[tuple[NamePair, Placed, Placed]] = []
    for pair in names:
        golden_calls, my_calls = first[pair.golden], second[pair.mine]
        common = golden_calls.keys() & my_calls.keys()
        pairs += [(pair, golden_calls[number], my_calls[number]) for number in common]
        yield from _surplus(golden_calls, my_calls)
    pairs.sort(key=lambda each: each[2].order)
    ratio = batch_ratio(output_shapes((one, other) for _, one, other in pairs))
    for pair, one, other in pairs:
        finding = Finding("by_name", pair.confidence, pair.reason, ratio)
        yield from _tensors(one, other, finding)


Calls = dict[int, Placed]


def _by_name(run: Pass) -> dict[str, Calls]:
    """Calls of each module by their number; by their order where several have one number."""
    found: dict[str, Calls] = defaultdict(dict)
    for each in placed(run):
        operation = each.operation
        calls = found[operation.record_name or operation.name]
        number = operation.call
        calls[len(calls) if number in calls else number] = each
    return found


def _surplus(golden: Calls, mine: Calls) -> Iterator[Unmatched]:
    """Calls that only one side has."""
    sides: tuple[tuple[SideName, Calls, Calls], ...]
    sides = (("golden", golden, mine), ("mine", mine, golden))
    for side, calls, others in sides:
        for number in calls.keys() - others.keys():
            reason = f"call {number} is one of {len(calls)}, the other side has {len(others)}"
            for tensor in calls[number].tensors:
                yield calls[number].unmatched(side, tensor, reason)


def _tensors(golden: Placed, mine: Placed, finding: Finding) -> Iterator[Match | Unmatched]:
    """Tensors of equal arguments; a sole one left on each side belongs together if it fits.

    A value may be passed by position on one side and by name on the other.
    """
    for first, second in (
        (golden.operation.inputs, mine.operation.inputs),
        (golden.operation.outputs, mine.operation.outputs),
    ):
        partners = {_argument(tensor): tensor for tensor in second}
        left = []
        for tensor in first:
            partner = partners.pop(_argument(tensor), None)
            if partner is None:
                left.append(tensor)
            else:
                yield from finding.match((golden, tensor), (mine, partner))
        right = list(partners.values())
        if len(left) == len(right) == 1 and _fit(left[0], right[0], finding.ratio):
            loose = Finding(
                finding.rule,
                min(finding.confidence, 0.8),
                f"{finding.reason}, the one value left ({_argument(left[0])} for "
                f"{_argument(right[0])})",
                finding.ratio,
            )
            yield from loose.match((golden, left[0]), (mine, right[0]))
            continue
        for tensor in left:
            reason = f"my {mine.operation.name} has no {_argument(tensor)}"
            yield golden.unmatched("golden", tensor, reason)
        for tensor in right:
            reason = f"the golden {golden.operation.name} has no {_argument(tensor)}"
            yield mine.unmatched("mine", tensor, reason)


def _argument(tensor: Tensor) -> str:
    """``input_0``, ``input_attention_mask``, ``output``; the position where nothing names it."""
    word = "input" if tensor.role == "in" else "output"
    if tensor.stem:
        return tensor.stem
    if tensor.ir_name and tensor.ir_name.startswith(f"{word}."):
        return tensor.ir_name  # API dumps name the part of the call themselves
    return f"{word}_{tensor.ir_name or tensor.index}"


def _fit(golden: Tensor, mine: Tensor, ratio: int) -> bool:
    return not isinstance(align(golden, mine, ratio), str)
