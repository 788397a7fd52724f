"""Modules that may rightly compute in several ways, or of which some rows are not known.

What is rounded to few bits, or chosen by its size, may fall on either side of a step: rows in which
the arithmetic of a kernel decides that are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from ait_llm.opcheck.golden.base import Arithmetic, GoldenOp, Params, Result
from ait_llm.opcheck.golden.functions import golden_function
from ait_llm.opcheck.golden.modules.table import Compute

_OTHERWISE = "computed in another way"


@runtime_checkable
class SeveralWays(Protocol):
    """What a module computes, with what it does not tell."""

    roundings: ClassVar[int]
    """How often kernels store values in 16 bits beside the steps that are written here."""

    def __call__(self, tensors: Mapping[str, Tensor]) -> Any:
        """The result."""

    def unclear(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Which elements of the result are not known, broadcast to it; None where all are."""

    def others(self) -> Sequence[Compute]:
        """In which other ways it may be computed rightly."""


def in_any_way(golden: GoldenOp, compute: SeveralWays, names: Sequence[str]) -> GoldenOp:
    """The same, right in any of its ways, and judged where it is known.

    Args:
        golden: computes in the first way.
        compute: what it computes.
        names: of its inputs.
    """
    others = compute.others()

    def alternatives(params: Params) -> tuple[Params, ...]:
        ways = ({**params, _OTHERWISE: way} for way in range(len(others)))
        return (*golden.alternatives(params), *ways)

    def run(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        chosen = golden
        if _OTHERWISE in params:
            other = partial(_called, others[params[_OTHERWISE]], names)
            short = golden.kernel(params).short_sums
            chosen = golden_function(
                golden.name, other, roundings=compute.roundings, short_sums=short
            )
        found = chosen.compute(inputs, params, how)
        unclear = compute.unclear(_named(names, inputs))
        if unclear is None or not unclear.any():
            return found
        return replace(found, undefined={0: unclear})

    return replace(golden, compute=run, alternatives=alternatives, plain=None)


def _called(compute: Compute, names: Sequence[str], inputs: Sequence[Tensor | None]) -> Any:
    return compute(_named(names, inputs))


def _named(names: Sequence[str], inputs: Sequence[Tensor | None]) -> dict[str, Tensor]:
    given = zip(names, inputs, strict=True)
    return {name: tensor for name, tensor in given if tensor is not None}
