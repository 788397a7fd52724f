"""What the checker is graded on: an operator with representative shapes, values and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class Draw:
    """Draws the inputs of one case; the same ones each time.

    Attributes:
        dtype: of the floating tensors.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype = dtype
        self._generator = torch.Generator()
        self._generator.manual_seed(seed)

    def floats(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed, of a standard deviation."""
        values = torch.randn(shape, generator=self._generator) * scale
        return values.to(dtype or self.dtype)

    def around_one(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Weights of a normalisation."""
        values = 1 + 0.2 * torch.randn(shape, generator=self._generator)
        return values.to(dtype or self.dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32
    ) -> Tensor:
        """Uniform whole numbers from ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self._generator).to(dtype)

    def order(self, count: int, first: int | None = None) -> Tensor:
        """A permutation of ``range(count)``, or the first entries of one; int32."""
        return torch.randperm(count, generator=self._generator)[:first].to(torch.int32)


@dataclass(frozen=True, eq=False)
class Built:
    """Inputs and parameters of one run.

    Attributes:
        inputs: in the operator's order.
        params: as the library prints them.
        mask: index of an additive mask input, to be read off by one column.
        lengths: index of the input with lengths of cached sequences; caches hold more than that.
        room: most entries that a sequence can have.
        heads: heads side by side in the rows of output 0.
        scaled: index of the input that scales a quantised output; the first unless given.
        ranks: of a collective operator, inputs and parameters of every rank, those of ``rank``
            being ``inputs`` and ``params``.
        rank: whose result is graded.
    """

    inputs: Sequence[Tensor | None]
    params: Mapping[str, Any]
    mask: int | None = None
    lengths: int | None = None
    room: int = 0
    heads: int = 0
    scaled: int | None = None
    ranks: Sequence[tuple[Sequence[Tensor | None], Mapping[str, Any]]] = ()
    rank: int = 0

    def compute(self, golden: GoldenOp, arithmetic: Arithmetic) -> Result:
        """The result of the operator; of a collective one, what ``rank`` gets."""
        with torch.no_grad():
            if not self.ranks:
                return golden.compute(self.inputs, self.params, arithmetic)
            assert golden.compute_ranks is not None
            given = list(self.ranks)
            given[self.rank] = (self.inputs, self.params)
            inputs, params = [own for own, _ in given], [own for _, own in given]
            return golden.compute_ranks(inputs, params, arithmetic)[self.rank]


def over_ranks(
    ranks: Sequence[tuple[Sequence[Tensor | None], Mapping[str, Any]]], *, rank: int = 0
) -> Built:
    """One run of a collective operator, of which one rank's result is graded."""
    size = len(ranks)
    numbered = [
        (inputs, {"rank": number, "rankSize": size, **params})
        for number, (inputs, params) in enumerate(ranks)
    ]
    inputs, params = numbered[rank]
    return Built(inputs, params, ranks=numbered, rank=rank)


@dataclass(frozen=True, slots=True)
class Case:
    """One variant of an operator.

    Attributes:
        op: class name.
        variant: what is special about it.
        dtypes: of the floating inputs that it is graded with.
        build: draws inputs and parameters.
    """

    op: str
    variant: str
    dtypes: tuple[torch.dtype, ...]
    build: Callable[[Draw], Built]


cases: list[Case] = []

# What cannot be graded, by operator.
NOT_GRADED = {
    "SendOperation": "it has no output; what it sends is graded at Recv.",
    "MultinomialOperation": "not with the device's clock as its seed: then a check can only ask "
    "whether one random number explains the draws of all rows.",
    "LinearSparseOperation": "not with a compressed weight, whose format is not published.",
    "LinearParallelOperation": "not the order of experts' rows where experts are split over ranks "
    "(`tpSize` above 1), which is not published.",
}


def case(
    op: str, variant: str = "", *, dtypes: tuple[torch.dtype, ...] = HALVES
) -> Callable[[Callable[[Draw], Built]], Callable[[Draw], Built]]:
    """Decorate a function that builds inputs to add it to :data:`cases`."""

    def add(build: Callable[[Draw], Built]) -> Callable[[Draw], Built]:
        cases.append(Case(op, variant, dtypes, build))
        return build

    return add
