"""What the library accepts, and the status of what it does not, in the order in which it looks.

Creating an operation looks at its parameters. Inferring shapes looks at the number of inputs, their
sizes, the row of the operator table that their types and formats are in, then at what the operator
itself asks. Setup looks at the same of inputs and outputs together. Order and rules are those of
the public sources of the acceleration library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.core import Registry, TensorDesc
from ait_llm.hostatb.acceptance.table import Section, section
from ait_llm.opcheck.golden.base import Refusal, RefusedError

Params = Mapping[str, Any]
Descs = Sequence[TensorDesc]
Outputs = Callable[[Params, Descs, Descs, Descs], None]

MOST_BYTES = 256 << 30  # of a tensor; the library takes no larger one
MOST_DIMS = 8


def _nothing(params: Params) -> None:
    return None


def _no_inputs(params: Params, inputs: Descs) -> None:
    return None


def as_inferred(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """The usual look at outputs: numbers of dimensions, then dimensions, one output by another.

    Raises:
        RefusedError: they are not those of ``inferred``.
    """
    for index, (got, wanted) in enumerate(zip(outputs, inferred, strict=True)):
        require_output(index, got, wanted)


def counted_as(count: Refusal, dim: Refusal = Refusal.DIM) -> Outputs:
    """The usual look at outputs, with other statuses; see :func:`require_output`."""

    def look(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
        for index, (got, wanted) in enumerate(zip(outputs, inferred, strict=True)):
            require_output(index, got, wanted, count, dim)

    return look


def require_output(
    index: int,
    got: TensorDesc,
    wanted: TensorDesc,
    count: Refusal = Refusal.DIM_COUNT,
    dim: Refusal = Refusal.DIM,
) -> None:
    """Refuse an output of another shape; one that is inferred to be empty is not looked at.

    Args:
        index: of the output.
        got: the output.
        wanted: what is inferred.
        count: the status for another number of dimensions.
        dim: the status for another dimension.

    Raises:
        RefusedError: its shape is another.
    """
    if wanted.is_absent or got.shape == wanted.shape:
        return
    status = dim if len(got.shape) == len(wanted.shape) else count
    place, shape, limit = (str(one) for one in (index, list(got.shape), list(wanted.shape)))
    raise RefusedError(f"output {place} has shape {shape}, not {limit}", status)


def require_output_kind(index: int, got: TensorDesc, wanted: TensorDesc) -> None:
    """Refuse an output of another type, or else of another format, with the status of its own.

    Raises:
        RefusedError: its type or format is another.
    """
    if (got.dtype, got.format) == (wanted.dtype, wanted.format):
        return
    kind, limit = (f"{desc.dtype.label} (format {desc.format})" for desc in (got, wanted))
    status = Refusal.FORMAT if got.dtype is wanted.dtype else Refusal.DTYPE
    raise RefusedError(f"output {index} is {kind}, not {limit}", status)


def require_param(
    holds: bool, name: str, value: object, wanted: str, status: Refusal = Refusal.PARAM
) -> None:
    """Refuse a parameter unless a condition holds.

    Args:
        holds: the condition.
        name: of the parameter.
        value: of it.
        wanted: a formula such as ``> 0`` or ``0, 1``.
        status: the status of the refusal.

    Raises:
        RefusedError: it does not hold.
    """
    if not holds:
        # One text for all parameters: callers' words are values here, not parts of it.
        parameter, found, limit = (str(one) for one in (name, value, wanted))
        text = f"parameter {parameter} is {found}; the library takes {limit}"
        raise RefusedError(text, status)


def require_input(
    holds: bool, index: int, desc: TensorDesc, wanted: str, status: Refusal = Refusal.DIM
) -> None:
    """Refuse an input for its shape unless a condition holds.

    Args:
        holds: the condition.
        index: of the input.
        desc: of it.
        wanted: a formula such as ``[batch, 1, heads * 128]``, or ``2 dimensions``.
        status: the status of the refusal.

    Raises:
        RefusedError: it does not hold.
    """
    if not holds:
        place, shape, limit = (str(one) for one in (index, list(desc.shape), wanted))
        raise RefusedError(f"input {place} has shape {shape}; the library takes {limit}", status)


def require_kind(
    holds: bool, index: int, desc: TensorDesc, wanted: str, status: Refusal = Refusal.DTYPE
) -> None:
    """Refuse an input for its type or format unless a condition holds.

    Args:
        holds: the condition.
        index: of the input.
        desc: of it.
        wanted: what it may be.
        status: the status of the refusal.

    Raises:
        RefusedError: it does not hold.
    """
    if not holds:
        kind = f"{desc.dtype.label} (format {desc.format})"
        place, found, limit = (str(one) for one in (index, kind, wanted))
        raise RefusedError(f"input {place} is {found}; the library takes {limit}", status)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What one operator accepts. Functions raise :class:`RefusedError` and get the parameter JSON.

    Attributes:
        name: operation type.
        table: name of the section of the operator table for these parameters; empty for none.
        create: looks at the parameters, when the operation is created.
        inputs: looks at the inputs.
        outputs: looks at outputs at Setup, given the inputs and the inferred outputs.
        setup_inputs: looks at the inputs at Setup, before the outputs.
        optional: the inputs that may be empty; None goes by the operator table.
        free: the outputs whose shape the library does not look at. Kernels write those that have
            room for all elements.
    """

    name: str
    table: Callable[[Params], str] = lambda _: ""
    create: Callable[[Params], None] = _nothing
    inputs: Callable[[Params, Descs], None] = _no_inputs
    outputs: Outputs = as_inferred
    setup_inputs: Callable[[Params, Descs], None] = _no_inputs
    optional: Callable[[Params], Sequence[int]] | None = None
    free: tuple[int, ...] = ()


acceptances: Registry[Acceptance] = Registry("operator")


def accept(rules: Acceptance) -> Acceptance:
    """Enter the rules of an operator."""
    acceptances.register(rules.name)(rules)
    return rules


class Gate:
    """The rules of one operation.

    Args:
        name: operation type; one without rules accepts everything here.
        params: its parameters.
        count: of its inputs.

    Raises:
        RefusedError: the parameters are refused.
    """

    def __init__(self, name: str, params: Params, count: int) -> None:
        self._rules = acceptances.get(name) if name in acceptances else Acceptance(name)
        self._params = params
        self._count = count
        self._rules.create(params)
        found = self._rules.table(params)
        self._section: Section | None = section(found) if found else None

    def check_inputs(self, inputs: Descs) -> None:
        """Look at inputs, when shapes are inferred.

        Raises:
            RefusedError: they are refused.
        """
        self._check_count(inputs)
        self._check_sizes(inputs, self._optional_inputs(), "input")
        if self._section is not None and not self._section.has_inputs(inputs):
            raise _outside(inputs)
        self._rules.inputs(self._params, inputs)

    def check_setup(self, inputs: Descs, outputs: Descs, inferred: Callable[[], Descs]) -> None:
        """Look at the tensors of a Setup.

        Args:
            inputs: as given.
            outputs: as given.
            inferred: makes the outputs that the inputs lead to.

        Raises:
            RefusedError: they are refused.
        """
        self._check_count(inputs)
        self._check_sizes(inputs, self._optional_inputs(), "input")
        optional = self._section.optional_outputs if self._section is not None else ()
        self._check_sizes(outputs, optional, "output")
        if self._section is not None and not self._section.has(inputs, outputs):
            raise _outside([*inputs, *outputs])
        self._rules.setup_inputs(self._params, inputs)
        self._rules.outputs(self._params, inputs, outputs, inferred())

    @property
    def free(self) -> tuple[int, ...]:
        """The outputs of any shape; see :class:`Acceptance`."""
        return self._rules.free

    def _optional_inputs(self) -> Sequence[int]:
        if self._rules.optional is not None:
            return self._rules.optional(self._params)
        return self._section.optional_inputs if self._section is not None else ()

    def _check_count(self, inputs: Descs) -> None:
        if len(inputs) != self._count:
            text = f"it takes {self._count} inputs, not {len(inputs)}"
            raise RefusedError(text, Refusal.TENSOR_COUNT)

    def _check_sizes(self, descs: Descs, optional: Sequence[int], what: str) -> None:
        if self._rules.name not in acceptances:
            return
        for index, desc in enumerate(descs):
            if index in optional and desc.is_absent:
                continue
            if not 0 < len(desc.shape) <= MOST_DIMS:
                text = f"{what} {index} has {len(desc.shape)} dimensions; the library takes 1 to 8"
                raise RefusedError(text, Refusal.DIM)
            size = math.prod(desc.shape) * desc.dtype.bits // 8
            if not 0 < size <= MOST_BYTES:
                text = f"{what} {index} has {size} bytes; the library takes 1 to {MOST_BYTES}"
                raise RefusedError(text, Refusal.SIZE)


def _outside(descs: Descs) -> RefusedError:
    found = ", ".join(f"{desc.dtype.label} (format {desc.format})" for desc in descs)
    return RefusedError(f"no row of the operator table has {found}", Refusal.OPERATOR_TABLE)
