"""What a golden operator is: plain functions of tensors and parameters, in one registry.

A golden operator is one :class:`GoldenOp`. ``compute`` gets the operator's input tensors (CPU
torch tensors in their own dtype, None for an absent optional one), its parameters as the JSON
object that the acceleration library prints, and the :class:`Arithmetic` to use. It never changes
its inputs: what an operator does in place is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from ait_llm.core import Registry, TensorDesc
from ait_llm.errors import OperationError

Params = Mapping[str, Any]


class Refusal(IntEnum):
    """Why the acceleration library refuses inputs, as its status codes (``atb::ErrorType``)."""

    PARAM = 1
    TENSOR_COUNT = 5
    DTYPE = 6
    FORMAT = 7
    DIM = 8
    SIZE = 9
    OPERATOR_TABLE = 13
    DIM_COUNT = 16
    COMM_EMPTY = 28


class RefusedError(OperationError):
    """An operator does not take these inputs or parameters.

    Attributes:
        status: what the acceleration library returns for them.
    """

    def __init__(self, message: str, status: Refusal) -> None:
        super().__init__(message)
        self.status = status


class UnverifiableError(OperationError):
    """What is known does not determine what the operator produced.

    Tensors of other ranks are absent, a parameter was never dumped, or a format is not published.
    A checker reports SKIPPED, with this error's text as the reason.
    """


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The precision in which an operator is evaluated.

    GOLDEN computes 16-bit floats in float32 and float32 in float64, as the reference does.
    DEVICE computes every float in float32, as an accelerator accumulates, and rounds once to the
    output dtype.

    Attributes:
        float32_compute: dtype in which float32 inputs are computed.
        half_compute: dtype in which float16 and bfloat16 inputs are computed.
        round_output: round results to the output dtype; False keeps the compute dtype, for
            tolerance standards that need the unrounded value.
        int8_min: lowest int8 that quantisation produces; -127 where the run had
            ``ASDOPS_QUANT_MIN_NEG_127=1`` in its environment.
        move: by how much each value on the way is moved, relative to it, to sample what rounding
            does; 0 for results. Operators of one step have no value on the way.
        sample: which sample.
    """

    float32_compute: torch.dtype = torch.float64
    half_compute: torch.dtype = torch.float32
    round_output: bool = True
    int8_min: int = -128
    move: float = 0.0
    sample: int = 0

    def widen(self, tensor: Tensor) -> Tensor:
        """Cast a floating tensor to the dtype it is computed in; integers pass unchanged."""
        if tensor.dtype in (torch.float16, torch.bfloat16):
            return tensor.to(self.half_compute)
        if tensor.dtype == torch.float32:
            return tensor.to(self.float32_compute)
        return tensor

    def round(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Round a result to its output dtype (nearest even), unless results stay wide."""
        return tensor.to(dtype) if self.round_output else tensor


GOLDEN = Arithmetic()
DEVICE = Arithmetic(float32_compute=torch.float32)
# What no kernel computes: the reference of error bounds.
EXACT = Arithmetic(half_compute=torch.float64, round_output=False)
# GOLDEN before it rounds: what 16-bit inputs make is known to far more digits than they have.
UNROUNDED = Arithmetic(round_output=False)


@dataclass(frozen=True, slots=True)
class Noting(Arithmetic):
    """UNROUNDED, which notes what results would be rounded to.

    Attributes:
        noted: each tensor that ``round`` got, with the type.
        felt: results are asked for their sensitivity, which may cost as much again.
    """

    felt: bool = True
    noted: list[tuple[Tensor, torch.dtype]] = field(default_factory=list, compare=False)

    def round(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor as it is."""
        self.noted.append((tensor, dtype))
        return tensor

    def rounded(self, result: Result) -> Result | None:
        """The result as GOLDEN has it; None where an operator rounds before its end."""
        kinds = {id(tensor): (tensor, dtype) for tensor, dtype in self.noted}
        made = [*result.outputs, *result.updated_inputs.values()]
        own = {id(tensor) for tensor in made}
        if len(self.noted) != len(own) or own != kinds.keys():
            return None
        if any(tensor.dtype == kinds[id(tensor)][1] for tensor in made):
            return None  # nothing was left to round, or a step did it
        found = {key: tensor.to(dtype) for key, (tensor, dtype) in kinds.items()}
        return replace(
            result,
            outputs=tuple(found[id(tensor)] for tensor in result.outputs),
            updated_inputs={i: found[id(one)] for i, one in result.updated_inputs.items()},
        )


@dataclass(frozen=True, slots=True)
class KernelArithmetic:
    """How a correct kernel of an operator computes: what its contract permits, and nothing more.

    Unless it says otherwise, a kernel adds up in float32, in any order, and rounds once to the
    output's data type, to nearest.

    Attributes:
        moves: it copies, selects or orders bits and computes nothing.
        any_nan: though its numbers are exact, they go through units that make a NaN of their own.
        quantises: its int8 outputs are rounded numbers, which may fall either way at a tie.
        roundings: how often values on the way to the output are stored in the input's 16 bits.
        shared: what is rounded on the way enters all elements of a row.
        in_place: nothing else is stored in 16 bits than what the golden operator moves itself where
            ``Arithmetic.move`` is given; its inputs are not moved.
        products: it sums products of its floating inputs, linear in each. On absolute values the
            operator then is the bound of every partial sum.
        terms: of its longest sum; 0 to go by the shapes of its inputs.
        unknown: nobody has looked at its kernels. Any of its steps may be stored in 16 bits, also
            those that do not depend on the values of its inputs, and what is rounded may enter all
            elements.
        alike: values on the way may be alike in all rows, as probabilities of keys that score
            alike; they then all round alike, and the result has their error as a scale. By so much
            of the unit of 16 bits: all of it where every value may be alike, less where some are.
        once: one operation on each pair of elements, which leaves nothing to round on the way.
        lost: float32 roundings of what cancels on the way, which its result keeps: of an element of
            its first input, or of one where ``near_one``.
        near_one: see ``lost``.
        by_rows: it quantises rows by ranges and offsets that are kept in the input's 16 bits. Where
            rounding lets one of them fall the other way, the row follows it.
        half_sums: from float16 inputs it keeps everything in float16, sums too.
        short_sums: so many terms of its sums may be added up in 14 bits, as units for products of
            floats of 8 bits do, before they are added to others in float32.
    """

    moves: bool = False
    any_nan: bool = False
    quantises: bool = False
    roundings: int = 0
    shared: bool = False
    in_place: bool = False
    products: bool = False
    terms: int = 0
    unknown: bool = False
    alike: float = 0.0
    once: bool = False
    lost: int = 0
    near_one: bool = False
    by_rows: bool = False
    half_sums: bool = False
    short_sums: int = 0

    @property
    def keeps_nan(self) -> bool:
        """True if the bits of a NaN are data like any other, but for its sign."""
        return self.moves and not self.any_nan


FLOAT32_KERNEL = KernelArithmetic()
# How many terms: all, or as many as kernels take at most that hand sums on between.
ALL_SHORT, SOME_SHORT = 1 << 30, 128
MOVES = KernelArithmetic(moves=True)
QUANTISES = KernelArithmetic(quantises=True)
PRODUCTS = KernelArithmetic(products=True)
# Scores and probabilities in 16 bits, as the fast attention kernels keep them. The one is like
# rounding query and key, the other like rounding value: together one rounding of all inputs.
ATTENTION = KernelArithmetic(roundings=1, shared=True)
# Those that round the factor of their scores to float16, too: the same error at all scores, and a
# scale that all elements have in common, by about as much.
HALF_FACTOR = replace(ATTENTION, alike=1.5)
# Kernels that leave all in float32 but probabilities, for the product that they enter.
PROBABILITIES = KernelArithmetic(roundings=1, shared=True, in_place=True)


@dataclass(frozen=True, slots=True)
class Result:
    """What an operator produced.

    Attributes:
        outputs: the formal outputs, in order.
        updated_inputs: inputs that the operator overwrites, by index, with their new values.
        undefined: outputs with elements that the operator leaves as they happen to be, by index;
            a boolean tensor that broadcasts to the output, true at those elements. A checker does
            not compare them.
        dtypes: what the outputs are rounded to, if they are; for operators that round last.
        sensitivity: of outputs, by index, at least how much a relative change of each input by
            chance changes the elements of a row, in the root mean square; ``[..., 1]``. Only where
            it costs no more than the output.
    """

    outputs: tuple[Tensor, ...]
    updated_inputs: Mapping[int, Tensor] = field(default_factory=dict)
    undefined: Mapping[int, Tensor] = field(default_factory=dict)
    dtypes: tuple[torch.dtype, ...] = ()
    sensitivity: Mapping[int, Tensor] = field(default_factory=dict)


Compute = Callable[[Sequence[Tensor | None], Params, Arithmetic], Result]
InferShape = Callable[[Sequence[TensorDesc], Params], tuple[TensorDesc, ...]]
ComputeRanks = Callable[
    [Sequence[Sequence[Tensor | None]], Sequence[Params], Arithmetic], tuple[Result, ...]
]
Recover = Callable[[Sequence[Tensor | None], Sequence[Tensor | None], Params], Params]
Accepts = Callable[[Sequence[Tensor | None], Sequence[Tensor], Params], bool]
Alternatives = Callable[[Params], tuple[Params, ...]]
Kernel = Callable[[Params], KernelArithmetic]
Plain = Callable[[Sequence[Tensor | None], Params], Sequence[Tensor]]


def _as_given(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    return params


def _none(params: Params) -> tuple[Params, ...]:
    return ()


def _float32_kernel(params: Params) -> KernelArithmetic:
    return FLOAT32_KERNEL


def _declared(kernel: KernelArithmetic | Kernel) -> Kernel:
    return (lambda params: kernel) if isinstance(kernel, KernelArithmetic) else kernel


@dataclass(frozen=True, slots=True)
class GoldenOp:
    """A golden operator.

    Attributes:
        name: class name in dumps, such as ``LinearOperation``.
        compute: the definition. It raises UnverifiableError where the inputs do not determine the
            outputs.
        infer_shape: output descriptions from input descriptions; raises OperationError for
            inputs that the real library refuses.
        compute_ranks: for a collective operator, the definition over all ranks: inputs and
            parameters of every rank in rank order give the results of every rank. None for other
            operators.
        recover: adds to the parameters those that the library computes with but never prints, as
            far as the number, shape and dtype of dumped inputs and outputs tell them; given ones
            stay. Values of outputs are used only where nothing else tells, and where the
            operator's documentation says so. It raises OperationError as ``compute`` does.
        alternatives: other parameters with which the same dump may have been computed, because the
            library does not print what differs. A checker tries them where the first do not fit,
            and says which do.
        accepts: for operators that draw at random, order equal values, look a function up or cut
            instead of rounding, whether outputs that are not the golden ones are legal all the
            same. It looks at all outputs. None where only the golden ones are.
        kernel: how a correct kernel computes with given parameters.
        rounds_last: it overwrites no input, and in any arithmetic it rounds its results only at the
            end, to the types that results name.
        schema: of an operator of torch that is not torch's own, as its library defines it:
            ``(Tensor! result, Tensor input, float epsilon) -> ()``. Its inputs are the tensors
            among the arguments, in order, None for absent ones; its parameters the others, by
            name. What it writes to an argument is in ``updated_inputs``. Empty for others.
        fills: names of arguments in the schema that it writes and does not read; None stands for
            their memory, which nobody has written yet.
        steps: the definition as a plain function of its inputs for given parameters, which returns
            what is returned and then what is written, in order. Bounds then follow from its steps.
        plain: the operator itself on its inputs as they are, on this machine; None where it has
            none, or results could be larger than the inputs are. It may raise anything.
        tolerance: relative and absolute error that each element may have, in place of what follows
            from the arithmetic; None to go by that.
        by_soc: kernels of some chips compute differently; see :mod:`ait_llm.opcheck.golden.soc`.
    """

    name: str
    compute: Compute
    infer_shape: InferShape
    compute_ranks: ComputeRanks | None = None
    recover: Recover = _as_given
    alternatives: Alternatives = _none
    accepts: Accepts | None = None
    kernel: Kernel = _float32_kernel
    rounds_last: bool = False
    plain: Plain | None = None
    schema: str = ""
    fills: tuple[str, ...] = ()
    steps: Callable[[Params], Callable[[Sequence[Tensor | None]], Any]] | None = None
    tolerance: tuple[float, float] | None = None
    by_soc: bool = False

    @property
    def recovers(self) -> bool:
        """True if ``recover`` may add parameters."""
        return self.recover is not _as_given


golden_ops: Registry[GoldenOp] = Registry("operator")


def golden_op(
    name: str,
    *aliases: str,
    infer_shape: InferShape,
    recover: Recover = _as_given,
    alternatives: Alternatives = _none,
    accepts: Accepts | None = None,
    kernel: KernelArithmetic | Kernel = FLOAT32_KERNEL,
    schema: str = "",
    fills: tuple[str, ...] = (),
    by_soc: bool = False,
) -> Callable[[Compute], Compute]:
    """Decorate a compute function to register it as the golden operator ``name``.

    ``kernel`` declares how correct kernels compute, once for all parameters or as a function of
    them; error bounds follow from it. ``schema`` says what the arguments of an operator of torch
    mean: dumps have them by place. For ``fills`` and ``by_soc`` see :class:`GoldenOp`.
    """

    def add(compute: Compute) -> Compute:
        golden_ops.register(name, *aliases)(
            GoldenOp(
                name,
                compute,
                infer_shape,
                None,
                recover,
                alternatives,
                accepts,
                _declared(kernel),
                schema=schema,
                fills=fills,
                by_soc=by_soc,
            )
        )
        return compute

    return add


def _has_peers(params: Params) -> bool:
    return bool(params.get("rankSize", 0) > 1)


def collective_op(
    name: str,
    *aliases: str,
    infer_shape: InferShape,
    recover: Recover = _as_given,
    needs_peers: Callable[[Params], bool] = _has_peers,
    kernel: KernelArithmetic | Kernel = FLOAT32_KERNEL,
) -> Callable[[ComputeRanks], ComputeRanks]:
    """Decorate a function over all ranks to register it as the collective operator ``name``.

    Its ``compute`` raises UnverifiableError where ``needs_peers``, which is for every group of more
    than one rank unless given.
    """

    def add(compute_ranks: ComputeRanks) -> ComputeRanks:
        def compute(
            inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
        ) -> Result:
            if needs_peers(params):
                raise UnverifiableError(
                    f"{name}: its result depends on the tensors of all {params['rankSize']} ranks; "
                    "give the dumps of every rank"
                )
            return compute_ranks([inputs], [params], arithmetic)[0]

        golden_ops.register(name, *aliases)(
            GoldenOp(name, compute, infer_shape, compute_ranks, recover, kernel=_declared(kernel))
        )
        return compute_ranks

    return add
