"""What one operation adds to the error: its outputs against those that its own inputs demand.

The golden operator of my operation's type is evaluated on my dumped inputs with my dumped
parameters. What is left between its result and my dumped outputs arose in this operation, however
wrong its inputs already were. No golden dump is needed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from ait_llm.compare.introduced_limits import Excess, excess
from ait_llm.core.optional import import_optional
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError, MissingDependencyError
from ait_llm.formats.elements import Array
from ait_llm.opcheck.cases import (
    REFUSALS,
    evaluate,
    first_line,
    golden_of,
    inputs_of,
    needs_state_before,
)
from ait_llm.opcheck.standards.rounding import TYPICAL_MOVE, terms_of, unit_of

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import GoldenOp

# Their results are drawn, or depend on what they are not told.
_RANDOM = frozenset({"MultinomialOperation", "ToppsampleOperation", "TopkToppSamplingOperation"})
_SEED = 20240229
# Larger inputs are not recomputed: they would be widened, and more than once.
MOST_BYTES = 256 << 20
_TIES = 0.01  # share of quantised numbers that may be off by one


@dataclass(frozen=True, slots=True)
class Introduced:
    """The error that one operation adds itself.

    Attributes:
        error: Euclidean norm of the error over that of the right result; of the worst output.
        permitted: what rounding of the operator's data types lets ``error`` be.
        excess: how many times the error is beyond what any usual kernel may do; above 1 is wrong.
        strict_excess: the same against float32 sums with one rounding at the end.
        output: index of the output that these numbers are of.
        worst: index of the element that is furthest off.
        mine, right: its values.
        overflow: the right result is finite and outside the output's data type.
        errors: ``error`` of each output by its index.
        amplification: by what factor a relative error of the inputs becomes one of an output; the
            largest of all outputs.
    """

    error: float
    permitted: float
    excess: float
    strict_excess: float
    output: int
    worst: tuple[int, ...]
    mine: float
    right: float
    overflow: bool = False
    errors: Mapping[int, float] = field(default_factory=dict)
    amplification: float = 1.0

    @property
    def is_wrong(self) -> bool:
        """True if no usual arithmetic explains the error."""
        return not self.excess <= 1

    @property
    def is_suspect(self) -> bool:
        """True if float32 sums rounded once do not explain the error."""
        return not self.strict_excess <= 1


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operation that could not be evaluated.

    Attributes:
        reason: why, as a clause.
    """

    reason: str


def introduced_error(operation: Operation, *, in_place: bool = False) -> Introduced | Unknown:
    """Evaluate an operation of mine on its own inputs and measure what its outputs add.

    Args:
        operation: an operator, no graph, with dumped inputs and outputs.
        in_place: an output of it is the memory of one of its inputs.
    """
    try:
        import_optional("torch", "recomputing an operation")
    except MissingDependencyError as error:
        return Unknown(str(error))
    golden = golden_of(operation.type)
    if golden is None:
        return Unknown(f"there is no golden {operation.type}")
    if operation.type in _RANDOM:
        return Unknown(f"{operation.type} draws its result")
    try:
        return _measure(operation, golden, in_place)
    except AitError as error:
        return Unknown(str(error))
    except REFUSALS as error:
        return Unknown(f"the golden {operation.type} refuses its inputs ({first_line(error)})")


def _measure(operation: Operation, golden: GoldenOp, in_place: bool) -> Introduced | Unknown:
    from ait_llm.opcheck.golden import Arithmetic

    size = sum(tensor.dtype.byte_count(prod(tensor.shape)) for tensor in operation.inputs)
    if size > MOST_BYTES:
        return Unknown(
            f"its inputs take {size >> 20} MiB, and at most {MOST_BYTES >> 20} are recomputed"
        )
    inputs, params = inputs_of(operation), operation.params
    unrounded = Arithmetic(round_output=False)
    result = evaluate(golden, inputs, params, unrounded)
    if needs_state_before(operation, bool(result.updated_inputs) or in_place):
        return Unknown(
            f"{operation.type} works in place and its inputs were only saved after it ran; "
            "dump with -time 2"
        )
    mine = {tensor.index: tensor for tensor in operation.outputs}
    if not mine:
        return Unknown("none of its outputs were saved")
    exact = rounded = result.outputs
    moved = evaluate(golden, [_moved(tensor) for tensor in inputs], params, unrounded).outputs
    if any(not tensor.dtype.is_floating for tensor in mine.values()):
        rounded = evaluate(golden, inputs, params).outputs
    unit, terms = unit_of(inputs), terms_of(inputs)
    found: list[Introduced] = []
    for index, tensor in sorted(mine.items()):
        if index >= len(exact):
            return Unknown(f"the golden {operation.type} has {len(exact)} outputs")
        values, right = tensor.torch(), exact[index]
        if values.numel() != right.numel():
            return Unknown(
                f"the golden {operation.type} makes {list(right.shape)} of its inputs where "
                f"{list(values.shape)} was dumped"
            )
        if values.numel() and values.is_floating_point():
            got = values.reshape(right.shape)
            found.append(_floats(index, got, right, moved[index], unit, terms))
        elif values.numel():
            found.append(_integers(index, values.reshape(right.shape), rounded[index]))
    if not found:
        return Unknown("its outputs are empty")
    worst = max(found, key=lambda one: (one.excess, one.strict_excess))
    return replace(
        worst,
        errors={one.output: one.error for one in found},
        amplification=max(one.amplification for one in found),
    )


def right_outputs(operation: Operation) -> list[Array] | None:
    """What an operation should have made of its own inputs, rounded, as float64.

    Returns:
        None where there is no golden operator of its type or it refuses the inputs.
    """
    golden = golden_of(operation.type)
    if golden is None:
        return None
    try:
        outputs = evaluate(golden, inputs_of(operation), operation.params).outputs
    except (AitError, *REFUSALS):
        return None
    return [output.detach().double().numpy() for output in outputs]


def _floats(
    index: int,
    mine: torch.Tensor,
    exact: torch.Tensor,
    moved: torch.Tensor,
    unit: float,
    terms: int,
) -> Introduced:
    """One output of mine against the exact one."""
    import torch

    got, wide = mine.double(), exact.double()
    fits = exact.to(mine.dtype).double()
    finite = torch.isfinite(got) & torch.isfinite(fits) & torch.isfinite(wide)
    same = (got == fits) | (torch.isnan(got) & torch.isnan(fits))
    broken = ~finite & ~same
    if bool(broken.any()):
        place = int(broken.flatten().to(torch.uint8).argmax())
        endless = float("inf")
        return _introduced(index, got, wide, Excess(endless, endless, endless, 0.0, place))
    zero = torch.zeros((), dtype=torch.float64)
    change = (moved.double() - wide).abs() / (TYPICAL_MOVE * unit)
    change = torch.where(torch.isfinite(change) & finite, change, zero)
    numbers = excess(
        torch.where(finite, wide, zero),
        torch.where(finite, got, zero),
        change,
        mine.dtype,
        unit,
        terms,
    )
    overflow = bool((torch.isfinite(wide) & torch.isinf(fits) & same).any())
    return replace(_introduced(index, got, wide, numbers), overflow=overflow)


def _integers(index: int, mine: torch.Tensor, right: torch.Tensor) -> Introduced:
    """One output of whole numbers; quantised ones may be off by one where they are rounded."""
    got, wide = mine.double(), right.double()
    distance = (got - wide).abs()
    off, share = float(distance.max()), float((distance > 0).double().mean())
    factor = off if off > 1 else share / _TIES
    return _introduced(
        index, got, wide, Excess(factor, factor, share, _TIES, int(distance.argmax()))
    )


def _introduced(index: int, got: torch.Tensor, exact: torch.Tensor, numbers: Excess) -> Introduced:
    place = numbers.worst
    worst, rest = [], place
    for size in reversed(got.shape):
        rest, at = divmod(rest, size)
        worst.append(at)
    return Introduced(
        error=numbers.error,
        permitted=numbers.permitted,
        excess=numbers.loose,
        strict_excess=numbers.strict,
        output=index,
        worst=tuple(reversed(worst)),
        mine=float(got.flatten()[place]),
        right=float(exact.flatten()[place]),
        amplification=numbers.amplification,
    )


def _moved(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A floating input with each element replaced by a neighbour, above or below by chance.

    Zeros, the largest values and those that are not finite stay.
    """
    import torch

    if tensor is None or not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        return tensor
    generator = torch.Generator()
    generator.manual_seed(_SEED + tensor.numel())
    # Of two bit patterns that differ by one, the larger one has the larger magnitude.
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    step = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
    size = tensor.abs()
    step[(size == 0) | ~(size < torch.finfo(tensor.dtype).max)] = 0
    return tensor.contiguous().view(whole).add(step).view(tensor.dtype)
