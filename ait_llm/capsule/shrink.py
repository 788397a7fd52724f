"""Making a case as small as it can be while it shows the same error.

The kernel that erred is not there, so nothing is computed with it: what stays of the dumped output
are elements as they were dumped. A cut is taken only if golden of the cut inputs is what golden was
at the elements that stay, so that both sides still belong together, and if the error that stays is
of the same kind and size. Delta debugging finds the least set of units along each axis (Zeller and
Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions on Software
Engineering 28, 2002).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ait_llm.capsule.case import Case
from ait_llm.capsule.cuts import Cut, cuts_of
from ait_llm.capsule.idle import without_idle_values
from ait_llm.capsule.measured import Measured, measured
from ait_llm.errors import AitError
from ait_llm.opcheck.cases import REFUSALS

if TYPE_CHECKING:
    from torch import Tensor


# Part of an element's bound by which the unrounded golden of a cut may differ: other sums of the
# same terms differ by much less, other terms by much more.
_SAME = 2.0**-6
_ROUNDS = 4
_TRIES = 96  # for one way to cut


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A case made smaller.

    Attributes:
        case: the small one.
        before, after: shapes of the inputs and the output.
        bytes_before, bytes_after: of all of them.
        zeroed: elements of inputs that became zero because the output does not depend on them.
        cuts: what was cut, in words.
        kind: of the error, which stayed the same; empty where it is not known.
    """

    case: Case
    before: Sequence[tuple[int, ...]]
    after: Sequence[tuple[int, ...]]
    bytes_before: int
    bytes_after: int
    zeroed: int
    cuts: Sequence[str]
    kind: str = ""

    def facts(self) -> dict[str, Any]:
        """For the files and the command line."""
        count = self.before[-1], self.after[-1]
        text = (
            f"{self.bytes_before:,} to {self.bytes_after:,} bytes of inputs and output, "
            f"the output from {list(count[0])} to {list(count[1])}"
        )
        if self.zeroed:
            text += f", {self.zeroed:,} input values that it does not depend on are zero"
        if self.kind:
            text += f"; the error still is: {self.kind}"
        return {
            "text": text,
            "shapes_before": [list(shape) for shape in self.before],
            "shapes_after": [list(shape) for shape in self.after],
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "zeroed": self.zeroed,
            "cuts": list(self.cuts),
            "kind": self.kind,
        }


def shrink(case: Case) -> Shrunk:
    """Make a case smaller; one that passes, or needs several ranks, stays as it is.

    Raises:
        AitError: golden cannot be computed.
    """
    first = measured(case)
    best, cuts, zeroed = first, [], 0
    if first.found.check and not case.of_ranks and first.output.golden.dim():
        # A wrong kernel may read what the right one does not, such as masked tokens. Where it is
        # not known what it does, nothing is taken away that only golden does not need.
        for _ in range(_ROUNDS):
            smaller, taken = _cut_once(best, first, inputs_too=bool(first.kind))
            cuts += taken
            if smaller is best:
                break
            best = smaller
        if first.kind:
            idle, count = without_idle_values(best.case, lambda each: _try(each, best, first))
            if count:
                best, zeroed = measured(idle), count
    return Shrunk(
        best.case,
        _shapes(case),
        _shapes(best.case),
        case.byte_count,
        best.case.byte_count,
        zeroed,
        cuts,
        best.kind,
    )


def _shapes(case: Case) -> list[tuple[int, ...]]:
    tensors = (*case.call.inputs, case.dumped)
    return [() if tensor is None else tuple(tensor.shape) for tensor in tensors]


def _cut_once(start: Measured, first: Measured, *, inputs_too: bool) -> tuple[Measured, list[str]]:
    """Along each axis of the output the smallest part that shows the same."""
    best, taken = start, []
    done: set[tuple[int | None, str]] = set()
    again = True
    while again:
        again = False
        for cut in cuts_of(best.case):
            if (cut.dim, cut.name) in done or (cut.dim is None and not inputs_too):
                continue
            smaller, units = _smallest(best, cut, first)
            if smaller is not None:
                done.add((cut.dim, cut.name))
                taken.append(f"{cut.name}: {units} of {len(cut.parts)}")
                best, again = smaller, True
                break  # shapes are others now
    return best, taken


def _smallest(best: Measured, cut: Cut, first: Measured) -> tuple[Measured | None, int]:
    """The least units of a cut that show the same; None if the cut is wrong or takes nothing."""
    ranked = _ranked(best, cut)
    if cut.dim is not None and not _is_right(best, cut, ranked[:1]):
        return None, 0
    everything = sorted(ranked)
    tried: dict[tuple[int, ...], Measured | None] = {}

    def shows(units: Sequence[int]) -> bool:
        key = tuple(sorted(units))
        if key not in tried and len(tried) >= _TRIES:
            return False
        if key not in tried:
            tried[key] = _try(cut.apply_or_none(best.case, key), best, first, cut, key)
        return tried[key] is not None

    if cut.dim is None:
        guesses = [list(cut.needed)] if cut.needed else _halves(everything)
    else:
        guesses = _first_guesses(ranked)
    kept = next((part for part in guesses if part and shows(part)), everything)
    if cut.dim is None and kept is everything:
        return None, 0
    kept = _ddmin(sorted(kept), shows) if len(kept) > 1 else kept
    key = tuple(sorted(kept))
    return (tried.get(key), len(key)) if len(key) < len(everything) else (None, 0)


def _is_right(best: Measured, cut: Cut, units: Sequence[int]) -> bool:
    return _try(cut.apply_or_none(best.case, units), best, None, cut, units) is not None


def _halves(units: Sequence[int]) -> list[list[int]]:
    """Without one half, then without one quarter."""
    found = []
    for pieces in (2, 4):
        size = math.ceil(len(units) / pieces)
        for start in range(0, len(units), size):
            found.append([*units[:start], *units[start + size :]])
    return found


def _ranked(best: Measured, cut: Cut) -> list[int]:
    """Units by how many bad elements they have, most first; the one of the first bad one leads."""
    import torch

    if cut.dim is None:
        return list(range(len(cut.parts)))
    bad, place = best.found.bad, best.found.place or 0
    shape = best.output.golden.shape
    marks = torch.zeros(shape, dtype=torch.float64) if bad is None else bad.double()
    marks = marks.reshape(shape).clone()
    marks.view(-1)[place] += marks.numel()
    sums = marks.movedim(cut.dim, 0).reshape(shape[cut.dim], -1).sum(1)
    counts = [float(sums[list(part)].sum()) for part in cut.parts]
    return sorted(range(len(counts)), key=lambda unit: -counts[unit])


def _first_guesses(ranked: Sequence[int]) -> list[list[int]]:
    """One unit, two, four …: what fails strongly is found at once."""
    guesses, size = [], 1
    while size < len(ranked):
        guesses.append(list(ranked[:size]))
        size *= 2
    return guesses


def _ddmin(units: list[int], shows: Any) -> list[int]:
    """The part of ``units`` of which no piece can be left out."""
    pieces = 2
    while len(units) >= 2:
        size = math.ceil(len(units) / pieces)
        parts = [units[start : start + size] for start in range(0, len(units), size)]
        for part in parts:
            rest = [unit for unit in units if unit not in part]
            if rest and shows(rest):
                units, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if pieces >= len(units):
                return units
            pieces = min(pieces * 2, len(units))
    return units


def _try(
    candidate: Case | None,
    best: Measured,
    first: Measured | None,
    cut: Cut | None = None,
    units: Sequence[int] = (),
) -> Measured | None:
    """The candidate, measured, if it belongs to ``best`` and shows what ``first`` shows.

    Args:
        candidate: with its part of the dumped output; None for one that cannot be made.
        best: what it was made of.
        first: None to ask only whether golden is the same.
        cut, units: how it was made of ``best``.
    """
    if candidate is None:
        return None
    try:
        if best.case.is_accepted() and not candidate.is_accepted():
            return None  # it could not be run again on a device
        if not _belongs(candidate, best, cut, units):
            return None
        found = measured(candidate)
    except (AitError, *REFUSALS):
        return None
    return found if first is None or found.shows_the_same(first) else None


def _belongs(candidate: Case, best: Measured, cut: Cut | None, units: Sequence[int]) -> bool:
    import torch

    from ait_llm.capsule.carried.verdict import ROUNDING
    from ait_llm.judge.standards.rounding import exact_of

    def part(tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(best.output.golden.shape)
        return tensor if cut is None else cut.of_output(tensor, units)

    output, limits = candidate.evaluated(), best.tolerance.limits
    golden = part(best.output.golden)
    if output.golden.shape != golden.shape:
        return False
    if limits.kind != ROUNDING:
        return torch.equal(output.golden, golden)
    assert limits.exact is not None
    assert limits.bound is not None
    exact, own = part(limits.exact), exact_of(output).reshape(golden.shape)
    same = (own - exact).abs() <= _SAME * part(limits.bound)
    return bool((same | (own == exact) | (own.isnan() & exact.isnan())).all())
