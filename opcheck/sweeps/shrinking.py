"""From a case that fails to the smallest one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.sweeps.cases import Case
from ait_llm.opcheck.sweeps.looking import Looked

_MOST = 200  # cases that are looked at


def shrunk(found: Looked, look: Callable[[Case], Looked]) -> Looked:
    """The smallest case that fails as a case did.

    Dims of one size shrink together, so that inputs go on fitting each other.

    Args:
        found: the failure.
        look: judges a case in the way in which it was found.
    """
    tried = {found.case}
    best = found
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for case in _simpler(best.case):
            if case in tried or len(tried) >= _MOST:
                continue
            tried.add(case)
            try:
                other = look(case)
            except Exception:  # noqa: BLE001  what cannot be looked at is no smaller failure
                continue
            if other.verdict is Verdict.FAIL and other.kind == found.kind:
                best, is_smaller = other, True
                break
    return best


def _simpler(case: Case) -> Iterator[Case]:
    """Cases with one thing simpler, the largest steps first."""
    if case.layout != "contiguous":
        yield replace(case, layout="contiguous")
    if case.values != "normal":
        yield replace(case, values="normal")
    sizes = sorted({size for shape in case.shapes if shape for size in shape}, reverse=True)
    for size in sizes:
        for smaller in sorted({1, 2, size // 4, size // 2, size - size // 8, size - 1}):
            if 0 < smaller < size:
                yield replace(
                    case,
                    shapes=tuple(
                        None if shape is None else tuple(smaller if s == size else s for s in shape)
                        for shape in case.shapes
                    ),
                )
    for place, shape in enumerate(case.shapes):  # sizes that are equal by chance
        for dim, size in enumerate(shape or ()):
            for smaller in sorted({1, size // 2, size - 1}):
                if shape is not None and 0 < smaller < size:
                    own = (*shape[:dim], smaller, *shape[dim + 1 :])
                    shapes = (*case.shapes[:place], own, *case.shapes[place + 1 :])
                    yield replace(case, shapes=shapes)
    if case.seed:
        yield replace(case, seed=0)
