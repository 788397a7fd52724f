"""Whether one program has, as real numbers, the weights that the other one keeps in few bits.

A checkpoint that was made of the quantised weights has their numbers, to the bit or to a rounding
of its type. Then neither run is off by the steps, and a weight that differs is another weight.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.programs.weights import WeightLink, WeightLinks
from ait_llm.match.views import apply

_MOST = 16  # weights that are looked at
_EQUAL = 0.01  # of what rounding to a step costs
_SHARE = 0.5  # of the elements of a weight, and of the weights: single ones may be wrong


def are_restored(links: WeightLinks) -> bool:
    """True if most weights that one side alone keeps in few bits are the same numbers on the other.

    Args:
        links: of the weights of both programs.
    """
    groups = (*links.of_value.values(), *links.of_right_value.values(), links.of_parameter)
    found = list(_in_few_bits(link for group in groups for link in group))
    chosen = found[:: max(1, len(found) // _MOST)][:_MOST]
    same = [_same_numbers(*each) for each in chosen]
    return bool(same) and sum(same) > _SHARE * len(same)


def _in_few_bits(links: Iterable[WeightLink]) -> Iterable[tuple[WeightLink, float]]:
    """Links of a weight in few bits with one that is not, and what rounding has cost it."""
    for link in links:
        try:
            costs = sorted((link.left.tensor.rounding, link.right.tensor.rounding))
        except AitError:
            continue  # a damaged file is told where it is compared
        if costs[0] == 0 < costs[1]:
            yield link, costs[1]


def _same_numbers(link: WeightLink, cost: float) -> bool:
    try:
        one, other = (
            _numbers(apply(side.tensor.nd(), views))
            for side, views in ((link.left, link.left_views), (link.right, link.right_views))
        )
    except (AitError, ValueError):
        return False
    if one.shape != other.shape or not one.size:
        return False
    limit = _EQUAL * cost * float(np.sqrt(np.mean(np.square(one))))
    return float(np.mean(np.abs(one - other) <= limit)) > _SHARE


def _numbers(array: Array) -> Array:
    return array.astype(np.float64)
