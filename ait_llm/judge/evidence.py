"""What one operation adds to the error: its outputs against those that its own inputs demand.

An operation is computed again from its dumped inputs with its dumped parameters. What is left
between that result and the dumped outputs arose in this operation, however wrong its inputs already
were. No golden dump is needed for it.

Two limits stand side by side. The *contract* is what a kernel of the operator promises. A *usual*
kernel may also round intermediate results to the 16 bits of its inputs, as fast ones do: what is
beyond that too has no arithmetic that explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ait_llm.core.comparison import Verdict
from ait_llm.dumps.model import Operation
from ait_llm.formats.elements import Array
from ait_llm.judge.outputs import Judged
from ait_llm.judge.recomputed import Unknown, recomputed
from ait_llm.opcheck.cases import saved_outputs

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.judge.standards import Output
    from ait_llm.opcheck.outcome import Checked

__all__ = ["Introduced", "Unknown", "excess_of", "gain_of", "introduced_error", "right_outputs"]

_OUTPUT = "outtensor"


@dataclass(frozen=True, slots=True)
class Introduced:
    """The error that one operation adds itself.

    Attributes:
        error: Euclidean norm of the error over that of the right result; of the worst output.
        excess: how many times the error is beyond the contract; 1 at most where it is kept.
        output: index of the output that these numbers are of.
        name: of that output in the dump.
        is_wrong: no usual arithmetic explains the error. What follows is told of broken contracts.
        worst: index of the element furthest beyond its bound; of the first that is not finite.
        mine, right: its values.
        reason: how the contract is broken, as a clause; empty where it is kept.
        permitted: what rounding lets ``error`` be.
        errors: ``error`` of each output by its index.
    """

    error: float
    excess: float
    output: int
    name: str
    is_wrong: bool = False
    worst: tuple[int, ...] = ()
    mine: float = 0.0
    right: float = 0.0
    reason: str = ""
    permitted: float = math.inf
    errors: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_suspect(self) -> bool:
        """True if the contract is broken: float32 sums rounded once do not explain the error."""
        return bool(self.reason)


@dataclass(frozen=True, slots=True)
class Gain:
    """What an operation does to errors.

    Attributes:
        amplification: by what factor a relative error of its inputs becomes one of an output; the
            largest of all outputs.
        permitted: largest relative error that it may add itself.
    """

    amplification: float
    permitted: float


def introduced_error(operation: Operation, *, in_place: bool = False) -> Introduced | Unknown:
    """Evaluate an operation of mine on its own inputs and measure what its outputs add.

    Args:
        operation: an operator, no graph, with dumped inputs and outputs.
        in_place: an output of it is the memory of one of its inputs.
    """
    judged = recomputed(operation, in_place=in_place)
    if isinstance(judged, Unknown):
        return judged
    places = saved_outputs(operation)
    found: list[Introduced] = []
    for one in judged:
        tensor = places.get(int(one.checked.output.removeprefix(_OUTPUT) or -1))
        if tensor is None:
            continue
        if one.output is None or one.checked.verdict not in (Verdict.PASS, Verdict.FAIL):
            if one.checked.verdict is Verdict.PASS:
                continue  # empty, as it should be
            return Unknown(f"{tensor.name} could not be judged: {one.checked.reason}")
        found.append(_introduced(one, one.output, tensor.index, tensor.name))
    if not found:
        return Unknown("its outputs are empty")
    worst = max(found, key=lambda one: (one.is_wrong, one.excess))
    return replace(worst, errors={one.output: one.error for one in found})


def right_outputs(operation: Operation) -> dict[int, Array]:
    """What an operation should have made of its own inputs, rounded, as float64, by index.

    Complex numbers are ``[..., 2]``. Empty where it cannot be recomputed.
    """
    judged = recomputed(operation)
    if isinstance(judged, Unknown):
        return {}
    places = saved_outputs(operation)
    return {
        places[one.output.index].index: one.output.golden.detach().double().numpy()
        for one in judged
        if one.output is not None and one.output.index in places
    }


def gain_of(operation: Operation, *, in_place: bool = False) -> Gain | Unknown:
    """What an operation that can be recomputed does to errors, measured by moving its inputs."""
    judged = recomputed(operation, in_place=in_place)
    if isinstance(judged, Unknown):
        return judged
    floats = [gain for one in judged if (gain := _gain(one)) is not None]
    return Gain(
        max((one.amplification for one in floats), default=1.0),
        max((one.permitted for one in floats), default=0.0),
    )


def excess_of(checked: Checked) -> float | None:
    """How many times what the contract allows; None where it has no limit for this output."""
    if checked.verdict not in (Verdict.PASS, Verdict.FAIL):
        return None
    values = checked.values
    factors = [values.get("worst", 0.0)]
    for name in ("rms", "scale", "shift", "share"):
        if name in values and f"permitted_{name}" in values:
            factors.append(_ratio(abs(values[name]), values[f"permitted_{name}"]))
    if "largest" in values:  # quantised numbers may be off by one
        factors.append(values["largest"])
    factor = max(factors)
    if checked.verdict is Verdict.PASS:
        return min(factor, 1.0)
    # Bits that are moved may not change at all, and what is not finite has no size.
    return factor if 1 < factor < math.inf else math.inf


def _introduced(judged: Judged, output: Output, index: int, name: str) -> Introduced:
    values = judged.checked.values
    if judged.checked.verdict is Verdict.PASS:
        return Introduced(values.get("error", 0.0), excess_of(judged.checked) or 0.0, index, name)
    exact, mine = _exact_and_mine(output)
    both = mine.isfinite() & exact.isfinite() & output.golden.isfinite()
    broken = ~both & ~((mine == output.golden) | (mine.isnan() & output.golden.isnan()))
    strange = bool(broken.any())
    apart = (mine - exact).where(both, exact.new_zeros(()))
    size = float(exact.where(both, exact.new_zeros(())).norm())
    place = _place(output, broken if strange else None)
    return Introduced(
        error=math.inf if strange else _ratio(float(apart.norm()), size),
        excess=excess_of(judged.checked) or 0.0,
        output=index,
        name=name,
        is_wrong=not _is_usual(output),
        worst=place,
        mine=float(mine[place]) if mine.numel() else 0.0,
        right=float(exact[place]) if mine.numel() else 0.0,
        reason=judged.checked.reason.partition("; first at")[0],
        permitted=values.get("permitted_error", 0.0),
    )


def _exact_and_mine(output: Output) -> tuple[Tensor, Tensor]:
    from ait_llm.judge.standards.rounding import exact_of

    exact = exact_of(output).reshape(output.golden.shape)
    mine = output.mine.double()
    if output.defined is not None:  # what the operator leaves as it was is not its error
        mine = mine.where(output.defined, output.golden.double())
    return exact, mine


def _place(output: Output, broken: Tensor | None) -> tuple[int, ...]:
    """Where an output is off most."""
    from ait_llm.judge.outputs import index_of
    from ait_llm.judge.standards.contract import worst_element

    if not output.golden.numel():
        return ()
    flat = worst_element(output) if broken is None else int(broken.reshape(-1).int().argmax())
    return index_of(flat, output.golden.shape)


def _is_usual(output: Output) -> bool:
    """True where a kernel with roundings on the way, as fast ones have them, explains the error."""
    from ait_llm.judge.standards.contract import usual

    return usual(output).passed


def _gain(judged: Judged) -> Gain | None:
    from ait_llm.judge.standards.rounding import amplification_of

    output = judged.output
    if output is None or not output.golden.is_floating_point() or not output.golden.numel():
        return None
    return Gain(amplification_of(output), judged.checked.values.get("permitted_error", 0.0))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if part == 0 else math.inf
