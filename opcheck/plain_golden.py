"""A plain function as a golden operator: what it returns, and what it writes to its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ait_llm.core import TensorDesc
from ait_llm.errors import AitError, OperationError, UsageError
from ait_llm.judge.outputs import Produced, misfit
from ait_llm.opcheck.cases import REFUSALS
from ait_llm.opcheck.kernel_call import Kernel, aliases, listed, same_bits

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Params, Result


@dataclass(frozen=True, eq=False)
class PlainGolden:
    """A plain function that was called once on the inputs of a check.

    Attributes:
        name: of the operator in reports.
        function: tensors to what they make, each call on copies: what it returns, then what it
            leaves in the inputs that it writes to.
        made: what it made in the types of the inputs, or in wider ones.
        narrow: ``made`` has the types of the inputs.
        writes: inputs that it writes to.
        same: results that are the memory of an input that it writes to.
    """

    name: str
    function: Kernel
    made: Sequence[Tensor]
    narrow: bool
    writes: tuple[int, ...]
    same: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """How many of its results are returned."""
        return len(self.made) - len(self.writes)

    def without_same(self) -> PlainGolden:
        """The same without the results that are the memory of an input."""
        kept = [place for place in range(len(self.made)) if place not in self.same]
        whole = self.function

        def function(tensors: Sequence[Tensor | None]) -> list[Tensor]:
            found = whole(tensors)
            return [found[place] for place in kept]

        made = [self.made[place] for place in kept]
        return replace(self, function=function, made=made, same=())

    def misfits(self, given: Sequence[Tensor | None], produced: Produced) -> dict[int, str]:
        """What is wrong with the types and shapes of results, by their numbers."""
        floats = {t.dtype for t in given if t is not None and t.is_floating_point()}
        found = {}
        for index, own in enumerate(self.made[: self.outputs]):
            mine = produced.outputs.get(index)
            if mine is None:
                continue
            # a definition that widens its inputs to be more exact says nothing of types
            widened = own.is_floating_point() and all(
                kind.itemsize < own.dtype.itemsize for kind in floats
            )
            if not self.narrow or (widened and mine.dtype in floats):
                own = own.to(mine.dtype)
            if reason := misfit(own, mine, shaped=True, whole=True):
                found[index] = reason
        return found

    def operator(self, given: Sequence[Tensor | None], produced: Produced) -> GoldenOp:
        """The golden operator of one call."""
        return self._split(self._traced(given, produced) or self._rounded_like(given, produced))

    def _traced(self, given: Sequence[Tensor | None], produced: Produced) -> GoldenOp | None:
        """With limits that follow from its steps, and from where it keeps 16 bits.

        Returns:
            None where the kernel's results are of other types than its own, or it cannot be run in
            the types of the inputs: then only what goes in and comes out is known to be rounded.
        """
        from ait_llm.opcheck.golden import GOLDEN
        from ait_llm.opcheck.golden.functions import golden_function

        golden = golden_function(self.name, self.function)
        mine = [produced.outputs.get(place) for place in range(self.outputs)]
        mine += [given[place] for place in self.writes]
        try:
            golden.recover(given, mine, {})
            made = golden.compute(given, {}, GOLDEN).outputs
        except (AitError, *REFUSALS):
            return None
        alike = len(made) == len(mine) and all(
            one is not None and each.is_floating_point() and each.dtype == one.dtype
            for each, one in zip(made, mine, strict=True)
        )
        return golden if alike else None

    def _rounded_like(self, given: Sequence[Tensor | None], produced: Produced) -> GoldenOp:
        """Computed in wide types, and rounded to the types of the kernel's results."""
        from ait_llm.opcheck.golden import GoldenOp, Result

        like = [produced.outputs.get(place) for place in range(self.outputs)]
        like += [given[place] for place in self.writes]

        def compute(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
            made = self.function([None if t is None else how.widen(t) for t in inputs])
            pairs = zip(made, like, strict=True)
            return Result(tuple(_rounded(own, mine, how) for own, mine in pairs))

        def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
            raise OperationError(f"{self.name}: a plain function has no shape rule")

        return GoldenOp(self.name, compute, infer_shape)

    def _split(self, golden: GoldenOp) -> GoldenOp:
        """The same with what is written to inputs in its place."""
        if not self.writes:
            return golden

        def compute(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
            result = golden.compute(inputs, params, how)
            written = result.outputs[self.outputs :]
            return replace(
                result,
                outputs=result.outputs[: self.outputs],
                updated_inputs=dict(zip(self.writes, written, strict=True)),
            )

        return replace(golden, compute=compute, plain=None)


def plain_golden(
    name: str,
    function: Kernel,
    given: Sequence[Tensor | None],
    params: Mapping[str, Any],
    writes: Sequence[int] | None,
) -> PlainGolden:
    """Call a plain function once, to see what it makes.

    Args:
        name: of the operator in reports.
        function: called as ``function(*inputs, **params)``.
        given: the inputs.
        params: its parameters.
        writes: inputs whose new values are its last results; None if it writes to inputs itself.

    Raises:
        UsageError: it returns fewer results than ``writes`` names.
    """
    from ait_llm.opcheck.golden import GOLDEN

    narrow = True
    try:
        returned, left = _called(function, given, params)
    except REFUSALS:  # as on a CPU that lacks it in 16 bits
        wide = [None if tensor is None else GOLDEN.widen(tensor) for tensor in given]
        returned, left = _called(function, wide, params)
        narrow, given = False, wide
    if writes is not None:
        if len(returned) < len(writes):
            raise UsageError(
                f"writes= names {len(writes)} inputs, and golden {name} returns {len(returned)} "
                "tensors; return what is written last"
            )

        def results(tensors: Sequence[Tensor | None]) -> list[Tensor]:
            return _called(function, tensors, params)[0]

        return PlainGolden(name, results, returned, narrow, tuple(writes), ())
    changed = tuple(
        place
        for place, (before, after) in enumerate(zip(given, left, strict=True))
        if before is not None and after is not None and not same_bits(before, after)
    )
    same = aliases(returned, left)

    def both(tensors: Sequence[Tensor | None]) -> list[Tensor]:
        made, after = _called(function, tensors, params)
        return [*made, *(one for place in changed if (one := after[place]) is not None)]

    return PlainGolden(
        name,
        both,
        [*returned, *(one for place in changed if (one := left[place]) is not None)],
        narrow,
        changed,
        tuple(result for result, place in same.items() if place in changed),
    )


def _called(
    function: Kernel, tensors: Sequence[Tensor | None], params: Mapping[str, Any]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """What a function returns, and its arguments after that."""
    import torch

    own = [None if tensor is None else tensor.clone() for tensor in tensors]
    with torch.no_grad():
        made = listed(function(*own, **params))
    return [one for one in made if one is not None], own


def _rounded(tensor: Tensor, mine: Tensor | None, arithmetic: Arithmetic) -> Tensor:
    if mine is None or not tensor.is_floating_point() or not mine.is_floating_point():
        return tensor
    if mine.dtype.itemsize > tensor.dtype.itemsize:
        return tensor  # a type that golden does not have is no rounding
    return arithmetic.round(tensor, mine.dtype)
