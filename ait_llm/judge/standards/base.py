"""What a precision standard is: a judge of one output, in one registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ait_llm.core import Registry

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result


class Computation:
    """A golden operator bound to one case's inputs and parameters; each result is computed once.

    Args:
        golden: the operator.
        inputs: as the golden operator takes them.
        params: its parameters, recovered ones included.
        run: computes the result in an arithmetic.
        verdict_only: nobody asks how far off a correct kernel might be, which costs more to know
            than that this one is correct.
    """

    def __init__(
        self,
        golden: GoldenOp,
        inputs: list[torch.Tensor | None],
        params: Mapping[str, Any],
        run: Callable[[Arithmetic], Result],
        *,
        verdict_only: bool = False,
    ) -> None:
        self.golden = golden
        self.inputs = inputs
        self.params = params
        self.verdict_only = verdict_only
        self._run = run
        self._results: dict[Arithmetic, Result] = {}

    def result(self, arithmetic: Arithmetic) -> Result:
        """The result in an arithmetic; treat it as read-only."""
        if arithmetic not in self._results:
            rounded = self._rounded() if self.golden.rounds_last else None
            if rounded is None or arithmetic not in rounded:
                self._results[arithmetic] = self._run(arithmetic)
            else:
                self._results |= rounded
        return self._results[arithmetic]

    def _rounded(self) -> dict[Arithmetic, Result]:
        """The exact result, and from it the rounded one, so that both cost one evaluation."""
        from ait_llm.opcheck.golden import EXACT, GOLDEN

        if EXACT in self._results:
            return {}
        exact = self._run(EXACT)
        pairs = zip(exact.outputs, exact.dtypes, strict=True)
        return {EXACT: exact, GOLDEN: replace(exact, outputs=tuple(t.to(d) for t, d in pairs))}


@dataclass(frozen=True, eq=False)
class Output:
    """One output of one case, for a standard to judge.

    Attributes:
        name: ``outtensor0``, or ``intensor2`` for an input that the operator overwrites.
        index: among the outputs, or among the inputs for an overwritten one.
        is_input: it is an overwritten input.
        golden: the golden value, rounded to its data type.
        mine: the value under test, in golden's shape.
        defined: true at elements that the operator defines, in golden's shape; None for all.
        computation: how golden was made, for standards that need it in another arithmetic.
    """

    name: str
    index: int
    is_input: bool
    golden: torch.Tensor
    mine: torch.Tensor
    defined: torch.Tensor | None
    computation: Computation

    def in_arithmetic(self, arithmetic: Arithmetic) -> torch.Tensor:
        """The golden value computed in another arithmetic."""
        result = self.computation.result(arithmetic)
        return result.updated_inputs[self.index] if self.is_input else result.outputs[self.index]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a standard says about one output.

    Attributes:
        passed: the verdict.
        limit: what is demanded, in few words: ``99.9%(error<0.001)``.
        reason: why it failed, as a clause; empty where it passed.
        values: the numbers behind it, by name.
        first_bad: flat index of the first element beyond the limit; None if there is none.
    """

    passed: bool
    limit: str
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    first_bad: int | None = None


class Standard(Protocol):
    """Judges one output.

    It raises UnverifiableError where it has no limit for the output, which becomes SKIPPED.
    """

    def __call__(self, output: Output, /) -> Judgement: ...


standards: Registry[Standard] = Registry("precision standard")
