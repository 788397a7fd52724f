"""The number of a pass in its process: how many passes ran before it, captured or not.

Of a pass that was not captured, the execution counts of later ones tell. Operations of one model
run in passes with one another; another model has operations of its own, and its passes count too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ait_llm.program.executions import Execution


def number(passes: Sequence[Sequence[Execution]]) -> list[int]:
    """How many passes ran before each, as far as execution counts tell.

    A model with lower ids ran at least once before one with higher ids, for ids are given at the
    first execution.

    Args:
        passes: in the order in which they ran, none empty.
    """
    models = _models(passes)
    starts: dict[int, int] = {}
    for one, model in zip(passes, models, strict=True):
        starts[model] = min(starts.get(model, one[0].top), *(each.top for each in one))
    often = _executions_in_a_pass(passes)
    numbers: list[int] = []
    ran = dict.fromkeys(starts, 0)  # passes of each model that are known of
    for one, model in zip(passes, models, strict=True):
        own = max(ran[model], *(each.count // often[each.top] for each in one))
        others = sum(
            max(count, int(starts[other] < starts[model]))
            for other, count in ran.items()
            if other != model
        )
        numbers.append(max(own + others, numbers[-1] + 1 if numbers else 0))
        ran[model] = own + 1
    return numbers


def _executions_in_a_pass(passes: Sequence[Sequence[Execution]]) -> Counter[int]:
    """How often each operation runs in a pass, one after another."""
    often: Counter[int] = Counter()
    for one in passes:
        often |= Counter(each.top for each in one)
    return often


def _models(passes: Sequence[Sequence[Execution]]) -> list[int]:
    """For each pass the first one that shares operations with it, directly or not."""
    parents = list(range(len(passes)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    owners: dict[int, int] = {}
    for place, one in enumerate(passes):
        for each in one:
            ends = sorted((root(place), root(owners.setdefault(each.top, place))))
            parents[ends[1]] = ends[0]
    return [root(place) for place in range(len(passes))]
