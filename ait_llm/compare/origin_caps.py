"""Caps of which golden shows no number: a product of mine may have taken in the division by it.

Golden's modules show a product and what it became in the end. If that is ``cap * tanh(x / cap)`` of
it, both tell the cap; a product of mine that makes another multiple of golden's is wrong.
"""

from __future__ import annotations

from ait_llm.compare.origin_finding import OTHER_DEFINITION, Finding, Telling
from ait_llm.compare.origin_run import RunStructure, record_key
from ait_llm.compare.origin_values import Upstream
from ait_llm.compare.origin_words import first_that_fails
from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.judge.caps import Cap, cap_of
from ait_llm.metrics.precision import coarser
from ait_llm.program.describe import params_of
from ait_llm.program.roles_fx import kind_of

_FUSED = "ms_FusedMatMul"


class Caps:
    """Looks for products of mine that another cap divides.

    Args:
        tell: makes findings about my run.
        golden: the golden run, as far as it is known.
    """

    def __init__(self, tell: Telling, golden: RunStructure | None) -> None:
        self._tell = tell
        self._values = tell.values
        self._golden = golden

    def other(self, near: Upstream, failed: int) -> Finding | None:
        """A product on the way to a failure that makes another multiple than golden's values tell.

        Args:
            near: the way back; the product ends it, for some multiple of golden's it is.
            failed: number of the value.
        """
        try:
            return self._other(near, failed)
        except AitError:
            return None  # a damaged file tells nothing

    def _other(self, near: Upstream, failed: int) -> Finding | None:
        for value in near.agreeing:
            op = self._values.producer(value)
            factor = None if op is None else _factor(self._values.run.operations[op])
            if op is None or factor is None:
                continue
            product, result = self._golden_of(value), self._golden_of(failed)
            if product is None or result is None or product.shape != result.shape:
                continue
            if not (product.has_data and result.has_data):
                continue
            dtype = coarser(product.dtype, result.dtype)
            cap = None if dtype is None else cap_of(product.nd(), result.nd(), dtype)
            if cap is not None and not cap.permits(factor):
                text = f"{_told(factor, cap)}; {first_that_fails(self._values, failed)}"
                return self._tell.stated(op, text, OTHER_DEFINITION, None)
        return None

    def _golden_of(self, value: int) -> Tensor | None:
        """What golden computes in the place of a value of mine."""
        known = self._values.evidence.get(value)
        for index in (*known.failed, *known.passed) if known is not None else ():
            found = self._computed(self._tell.comparisons[index].golden)
            if found is not None:
                return found
        return None

    def _computed(self, record: TensorRecord | None) -> Tensor | None:
        if self._golden is None or record is None or record.role != "out":
            return None
        op = self._golden.places.get(record_key(record))
        outputs = () if op is None else self._golden.run.operations[op].outputs
        return next((each for each in outputs if each.index == record.index), None)


def _told(factor: float, cap: Cap) -> str:
    return (
        f"it multiplies its product by {factor:.4g}; what golden makes of that product in the end "
        f"is capped at {cap.number:.4g}, as far as rounding permits, so that it is to be "
        f"multiplied by {1 / cap.number:.4g}"
    )


def _factor(operation: Operation) -> float | None:
    """The number by which a product is multiplied as it is computed; None if there is none."""
    if kind_of(operation.type) != _FUSED:
        return None
    alpha = params_of(operation).get("alpha")
    return float(alpha) if isinstance(alpha, int | float) and alpha else None
