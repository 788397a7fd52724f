"""The case that a capsule holds: one call of one operator and one of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ait_llm.errors import AitError, UsageError
from ait_llm.judge.standards import Computation, Output
from ait_llm.opcheck.cases import REFUSALS, evaluate, first_line

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result


@dataclass(frozen=True, eq=False)
class Call:
    """What one rank gave to the operator.

    Attributes:
        inputs: CPU tensors, None for an absent one.
        params: as the golden operator takes them, recovered ones included.
    """

    inputs: Sequence[Tensor | None]
    params: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One output of one operator, as dumped.

    Attributes:
        title: what it is, in words.
        place: id, type, step and device, for the files.
        golden: the operator.
        calls: of all ranks for a collective operator, else one.
        rank: which of them is the dumped one.
        output: ``outtensor0``, or ``intensor2`` for an input that the operator overwrites.
        index: among the outputs or the inputs.
        is_input: it is an overwritten input.
        dumped: the output under test.
        again: runs the operator itself on ``(inputs, params, device)``; None where torch has it
            not.
        function: parameter that names a function of this package, ``package.module:function``,
            which the capsule must hold too; empty without one.
    """

    title: str
    place: Mapping[str, Any]
    golden: GoldenOp
    calls: Sequence[Call]
    rank: int
    output: str
    index: int
    is_input: bool
    dumped: Tensor
    again: Callable[..., Any] | None = None
    function: str = ""

    @property
    def call(self) -> Call:
        """The dumped call itself."""
        return self.calls[self.rank]

    @property
    def of_ranks(self) -> bool:
        """True where golden needs the inputs of several ranks."""
        return len(self.calls) > 1

    @property
    def byte_count(self) -> int:
        """Bytes of all inputs and the dumped output."""
        inputs = (tensor for call in self.calls for tensor in call.inputs)
        return sum(each.nbytes for each in (*inputs, self.dumped) if each is not None)

    @property
    def definition(self) -> Callable[..., Any]:
        """The function that defines the operator."""
        if self.golden.compute_ranks is not None:
            return self.golden.compute_ranks
        return self.golden.compute

    def with_call(self, call: Call, dumped: Tensor) -> Case:
        """The same case with other values."""
        calls = [*self.calls]
        calls[self.rank] = call
        return replace(self, calls=calls, dumped=dumped)

    def is_accepted(self) -> bool:
        """Whether the acceleration library takes tensors of these shapes and types."""
        from ait_llm.core import DType, TensorDesc
        from ait_llm.opcheck.golden.support import desc_of

        absent = TensorDesc(DType.UNDEFINED, ())
        descs = [absent if each is None else desc_of(each) for each in self.call.inputs]
        try:
            self.golden.infer_shape(descs, self.call.params)
        except (AitError, *REFUSALS):
            return False
        return True

    def evaluated(self) -> Output:
        """Golden beside the dumped output, for standards to judge.

        Raises:
            AitError: golden cannot be computed.
        """
        from ait_llm.opcheck.golden import GOLDEN

        computation = Computation(
            self.golden, list(self.call.inputs), self.call.params, self._compute
        )
        try:
            result = computation.result(GOLDEN)
            golden = (result.updated_inputs if self.is_input else result.outputs)[self.index]
        except REFUSALS as error:
            raise UsageError(
                f"{self.title}: golden refuses its inputs ({first_line(error)})"
            ) from error
        undefined = None if self.is_input else result.undefined.get(self.index)
        defined = None if undefined is None else ~undefined.broadcast_to(golden.shape)
        if golden.numel() != self.dumped.numel():
            raise UsageError(
                f"{self.title}: the dumped shape is {list(self.dumped.shape)} and golden's is "
                f"{list(golden.shape)}; a capsule holds outputs of the same size"
            )
        mine = self.dumped.reshape(golden.shape)
        return Output(self.output, self.index, self.is_input, golden, mine, defined, computation)

    def _compute(self, arithmetic: Arithmetic) -> Result:
        import torch

        if not self.of_ranks:
            return evaluate(self.golden, self.call.inputs, self.call.params, arithmetic)
        assert self.golden.compute_ranks is not None
        with torch.no_grad():
            return self.golden.compute_ranks(
                [call.inputs for call in self.calls],
                [call.params for call in self.calls],
                arithmetic,
            )[self.rank]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a case comes from.

    Attributes:
        case: the case.
        environment: facts of the capture, without paths.
        library: how ``torch_atb`` is called, None where it cannot be.
    """

    case: Case
    environment: Mapping[str, Any] = field(default_factory=dict)
    library: Mapping[str, Any] | None = None
