"""Whether an operation is plainly right: the operator itself, run here, makes the same.

A kernel that is held against what exact arithmetic permits has to be evaluated several times in
float64. Most need not be: the operator of torch, run once on the dumped inputs as they are, makes
the same bits, or bits that differ as little and as seldom as another order of sums explains. What
differs more says nothing yet, and has to be recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from ait_llm.dumps.model import Operation
from ait_llm.dumps.model import Tensor as Dumped
from ait_llm.errors import AitError, MissingDependencyError
from ait_llm.formats.torch_bridge import bytes_in_order
from ait_llm.judge.standards.rounding import FLOAT32_UNIT, OWN_ERRORS, walk_of
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.cases import REFUSALS, case_of, values_of

if TYPE_CHECKING:
    from torch import Tensor

# Float32 sums in another order are rounded to another neighbour of 16 bits now and then.
_NEIGHBOURS = 1 / 64
# Units in the last place of float32 by which functions of one element differ from library to
# library. A kernel is permitted 64 and more.
_UNITS = 4
# By operator: the arguments whose products are added up, along the last and the last but one dim.
_PRODUCTS = {
    "mm": ("input_0", "input_1"),
    "bmm": ("input_0", "input_1"),
    "addmm": ("input_1", "input_2"),
    "baddbmm": ("input_1", "input_2"),
}
_PART = 8  # the share of their terms that limits are made of


def is_plainly_right(operation: Operation) -> bool | None:
    """Whether the operator itself makes what an operation made; None where it cannot be run.

    Args:
        operation: an operator, no graph, with dumped inputs and outputs.
    """
    try:
        case = case_of(operation)
        if isinstance(case, NoCase) or case.missing or case.golden.plain is None:
            return None
        saved = case.outputs()
        if not saved or not all(each.has_data for each in saved.values()):
            return None
        return _Run(case).makes(saved)
    except (AitError, MissingDependencyError, OSError, *REFUSALS):
        return None


class _Run:
    """One operation, run here on the inputs that were dumped.

    Args:
        case: the operation; it can be run.
    """

    def __init__(self, case: Case) -> None:
        assert case.golden.plain is not None
        self._case = case
        self._plain = case.golden.plain
        self._kernel = case.golden.kernel(case.params)
        self._inputs = case.read()

    def makes(self, saved: Mapping[int, Dumped]) -> bool:
        """True if it makes what was dumped, by index of the results."""
        found = self._plain(self._inputs, self._case.params)
        return all(
            index < len(found) and self._is_alike(found[index], dumped)
            for index, dumped in saved.items()
        )

    def _is_alike(self, right: Tensor, dumped: Dumped) -> bool:
        import torch

        if right.numel() != prod(dumped.shape):
            return False
        mine = values_of(dumped).reshape(right.shape)
        if mine.dtype != right.dtype:
            return False
        right, mine = right.contiguous(), mine.contiguous()
        if _has_equal_bits(right, mine):
            return True
        if self._kernel.moves or not right.dtype.is_floating_point:
            return False
        if not bool(right.isfinite().all() & mine.isfinite().all()):
            return False
        if right.dtype.itemsize == 2:
            return self._is_rounded_alike(right, mine)
        return right.dtype is torch.float32 and (
            _is_near(right, mine) or self._is_other_sum(right, mine)
        )

    def _is_rounded_alike(self, right: Tensor, mine: Tensor) -> bool:
        """True if few elements of 16 bits differ, by a neighbour or by what sums explain."""
        import torch

        apart = (mine.view(torch.int16).int() - right.view(torch.int16).int()).abs_()
        if int((apart > 0).sum()) > apart.numel() * _NEIGHBOURS:
            return False
        far = apart > 1
        terms = self._terms() if bool(far.any()) else 0
        if not terms:
            return not bool(far.any())
        off = (mine.float() - right.float()).abs_()
        return bool((off <= self._sizes(right, terms).mul_(walk_of(terms) / 2))[far].all())

    def _is_other_sum(self, right: Tensor, mine: Tensor) -> bool:
        """True if another order of the sums of a product in float32 explains what differs.

        That is the contract of such sums, see :mod:`ait_llm.judge.standards.contract`, with half of
        what it permits: the other half is left to the result that was made here.
        """
        terms = self._terms()
        if not terms:
            return False
        sizes, walk = self._sizes(right, terms), walk_of(terms)
        off = mine - right
        if bool((off.abs() > sizes * (walk / 2)).any()):
            return False
        deviation = sizes.mul_((terms + OWN_ERRORS) ** 0.5 * FLOAT32_UNIT)
        off, weight = off.div_(deviation).double(), (right / deviation).double()
        power, count = float(weight.square().sum()), off.numel()
        return (
            float(off.square().sum()) <= count / 2
            and abs(float(off.sum())) <= float(weight.abs().sum()) * walk / 2
            and abs(float((off * weight).sum())) <= power * walk / 2
        )

    def _sizes(self, right: Tensor, terms: int) -> Tensor:
        """At most ``sum |a||b|``, of a part of the terms, in float32."""
        import torch

        with torch.no_grad():
            found = self._plain(self._part(terms), self._case.params)[0].float()
        return found.maximum(right.abs()).clamp_(min=torch.finfo(torch.float32).tiny)

    def _terms(self) -> int:
        """Terms of each sum of a product; 0 for other operators."""
        factors = self._factors()
        return factors[0].shape[-1] if factors else 0

    def _factors(self) -> tuple[Tensor, Tensor] | None:
        from ait_llm.opcheck.golden.aten import TENSORS

        named = dict(zip(self._case.params.get(TENSORS, ()), self._inputs, strict=False))
        places = _PRODUCTS.get(self._case.golden.name.partition(".")[2].partition(".")[0])
        if places is None or not self._kernel.products:
            return None
        left, right = (named.get(place) for place in places)
        return None if left is None or right is None else (left, right)

    def _part(self, terms: int) -> list[Tensor | None]:
        """Absolute inputs, with some of the terms of each sum."""
        factors = self._factors()
        assert factors is not None
        left, right = factors
        kept = slice(0, -(-terms // _PART))
        sizes = {id(left): left[..., kept].abs(), id(right): right[..., kept, :].abs()}
        return [each if each is None else sizes.get(id(each), each.abs()) for each in self._inputs]


def _has_equal_bits(one: Tensor, other: Tensor) -> bool:
    import torch

    return torch.equal(bytes_in_order(one), bytes_in_order(other))


def _is_near(right: Tensor, mine: Tensor) -> bool:
    """True if each element differs by as little as functions of two libraries do."""
    return bool(((mine - right).abs_() <= right.abs().mul_(_UNITS * FLOAT32_UNIT)).all())
