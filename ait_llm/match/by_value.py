"""The last resort: tensors whose values are nearly the same, whatever their order and layout.

It pairs only what no other matcher paired, only tensors of the same role and size, and only where
the second best candidate is far off. Such a pair is nearly equal by its nature: it says where a
value went, and never that a wrong value is right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.model import Match, MatchOptions, Unmatched, matchers
from ait_llm.match.operators import Placed, placed
from ait_llm.match.views import Reorder, Reshape, View, apply
from ait_llm.program.describe import logical_shape
from ait_llm.program.one_pass import Pass

_MIN_ELEMENTS, _MAX_ELEMENTS = 32, 1 << 22
_QUANTILES = np.linspace(0, 1, 33)
_NEAR = 0.02  # of the spread of the values: rounding of bf16, not another tensor
_MARGIN = 5.0  # the second best must be this many times farther
_CONFIDENCE = 0.5
_MAX_DIMS = 4

Print = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Tensors of one side with one fingerprint: one value under several names."""

    members: tuple[tuple[Placed, Tensor], ...]
    print: Print
    shape: tuple[int, ...]


@matchers.register("by_value")
def by_value(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Float tensors of equal role and size whose sorted values nearly agree, with a margin."""
    sides = _candidates(golden), _candidates(mine)
    for key, ours in sides[1].items():
        theirs = sides[0].get(key, [])
        for candidate in ours:
            partner = _best(candidate, theirs)
            if partner is None or _best(partner, ours) is not candidate:
                continue
            first = partner.members[0]
            for member in candidate.members:
                views = _layout(first[1], member[1], partner.shape, candidate.shape)
                if views is not None:
                    yield Match(
                        first[0].source(first[1]),
                        member[0].source(member[1], views),
                        "by_value",
                        _CONFIDENCE,
                        "nearly the same values, the next candidate is far off",
                        tuple(f"{each.operation.name} {t.name}" for each, t in partner.members[1:]),
                    )


def _candidates(run: Pass) -> dict[tuple[str, int], list[_Candidate]]:
    """Fingerprints by role and number of elements."""
    found: dict[tuple[str, int], list[_Candidate]] = defaultdict(list)
    for each in placed(run):
        for tensor in each.tensors:
            try:
                shape = logical_shape(tensor)
                fits = _MIN_ELEMENTS <= prod(shape) <= _MAX_ELEMENTS
                if not (fits and tensor.dtype.is_floating and tensor.has_data):
                    continue
                seen = fingerprint(tensor)
            except AitError:
                continue  # comparing it says what is wrong
            if seen is None:
                continue
            rivals = found[tensor.role, prod(shape)]
            for place, rival in enumerate(rivals):
                if np.array_equal(rival.print, seen) and rival.shape == shape:
                    members = (*rival.members, (each, tensor))
                    rivals[place] = _Candidate(members, seen, shape)
                    break
            else:
                rivals.append(_Candidate(((each, tensor),), seen, shape))
    return found


def fingerprint(tensor: Tensor) -> Print | None:
    """Sorted values at 33 places, in units of their spread; None if they do not tell anything.

    Any order of the same elements has the same fingerprint. Tensors that are constant or not
    finite have none.

    Raises:
        FormatError: the file is damaged.
    """
    values = tensor.nd().astype(np.float64).reshape(-1)
    if not np.isfinite(values).all():
        return None
    spread = float(values.std())
    quantiles = np.quantile(values, _QUANTILES)
    if spread == 0 or len(np.unique(quantiles)) < len(_QUANTILES) // 2:
        return None
    # what is normalised twice has the same spread: mean and spread themselves stay in
    return np.asarray([*quantiles, values.mean(), spread])


def _distance(first: Print, second: Print) -> float:
    spread = max(first[-1], second[-1])
    return float(np.abs(first - second).max() / spread)


def _best(candidate: _Candidate, others: Sequence[_Candidate]) -> _Candidate | None:
    """The one that is near while all others are far."""
    ranked = sorted(
        ((_distance(candidate.print, other.print), place) for place, other in enumerate(others))
    )
    if not ranked or ranked[0][0] > _NEAR:
        return None
    if len(ranked) > 1 and ranked[1][0] < max(_NEAR, _MARGIN * ranked[0][0]):
        return None
    return others[ranked[0][1]]


def _layout(
    golden: Tensor, mine: Tensor, shape: tuple[int, ...], other: tuple[int, ...]
) -> tuple[View, ...] | None:
    """Views of mine under which the elements agree one by one; None if none do."""
    wanted = golden.nd().astype(np.float64)
    values = mine.nd()
    dims = len(other)
    choices: list[tuple[View, ...]] = [()] if shape == other else []
    if shape != other:
        choices.append((Reshape(shape),))
    if 2 <= dims <= _MAX_DIMS:
        for axes in permutations(range(dims)):
            if axes != tuple(range(dims)):
                turned = tuple(other[axis] for axis in axes)
                back: tuple[View, ...] = () if turned == shape else (Reshape(shape),)
                choices.append((Reorder(axes), *back))
    spread = float(wanted.std())
    for views in choices:
        if np.abs(apply(values, views).astype(np.float64) - wanted).mean() < _NEAR * spread:
            return views
    return None
