"""Computes the forward passes of one process with golden operators."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.io_table import IoRow
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.opcheck.cases import (
    IDEMPOTENT,
    REFUSALS,
    evaluate,
    first_line,
    is_filled,
    library_operator,
    values_of,
)
from ait_llm.replay.files import Files
from ait_llm.replay.memory import Memories
from ait_llm.replay.outcome import Mode, Outcome, Skipped, Start
from ait_llm.replay.parameters import Parameters
from ait_llm.replay.program import Key, Program, Unit
from ait_llm.replay.values import Value, Values, dumped, with_error

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import GoldenOp, Result

_NO_ERRORS: Mapping[str, Path] = MappingProxyType({})
# Their results are drawn; those of the dump are as good as any.
_RANDOM = frozenset({"MultinomialOperation", "ToppsampleOperation", "TopkToppSamplingOperation"})


class NotComputedError(AitError):
    """An operator cannot be computed; the message says why, as a clause."""


@dataclass(frozen=True, slots=True)
class Together:
    """A collective operator that waits for the other ranks.

    Attributes:
        golden: the operator.
        unit: the call of this rank.
        params: its parameters.
        inputs: its inputs.
    """

    golden: GoldenOp
    unit: Unit
    params: Mapping[str, Any]
    inputs: Sequence[torch.Tensor | None]


Steps = Generator[Together, "Result | str", None]
"""Yields collective calls and gets their results, or why there is none."""


class Execution:
    """One process.

    Args:
        mode: where operators get their inputs from.
        until: in hybrid mode the last operation that gets golden inputs.
        outcome: where results are counted.
        tables: shapes of operators that were not captured, by execution count and id.
        errors: numbers to add to outputs, see :func:`ait_llm.replay.replay`.
    """

    def __init__(
        self,
        mode: Mode,
        until: OpId | None,
        outcome: Outcome,
        tables: Mapping[tuple[int, OpId], IoRow],
        errors: Mapping[str, Path] = _NO_ERRORS,
    ) -> None:
        self._errors = errors
        self._mode = mode
        self._until = until
        self._outcome = outcome
        self._tables = tables
        self._memories = Memories()
        self._parameters = Parameters()
        self._from_dump = mode == "local"
        self.reached = False  # the operation after which dumped values are used

    def run(self, program: Program, files: Files) -> Steps:
        """Compute one forward pass and write it.

        Raises:
            FormatError: a tensor cannot be written.
        """
        values = Values(program)
        if not self._from_dump:
            self._continue(program, values)
        for unit in program.operators:
            self._switch(unit)
            self._outcome.operators += 1
            try:
                yield from self._compute(program, unit, values, files)
            except NotComputedError as error:
                self._take(program, unit, values, files, str(error))
            values.read(unit.inputs)
        files.finish()
        self._memories.take(program, values)

    def _switch(self, unit: Unit) -> None:
        """In hybrid mode, from the operation after the last golden one on take dumped values."""
        if self._until is None or self._from_dump:
            return
        inside = unit.op_id.is_within(self._until)
        if self.reached and not inside:
            self._from_dump = True
        self.reached = self.reached or inside

    def _continue(self, program: Program, values: Values) -> None:
        """Give a pass the caches that earlier passes left."""
        for key in self._memories.give(program, values):
            reason = "it does not hold what the pass before left there; something changed it since"
            self._outcome.started.append(Start(key[0], "", program.run.step, reason))

    def _compute(self, program: Program, unit: Unit, values: Values, files: Files) -> Steps:
        try:
            given = self._inputs(program, unit, values)
            files.inputs(unit, given)
            golden = self._golden(unit)
            inputs = [None if each is None else each.tensor for each in given]
            params = self._parameters.of(unit, golden, inputs)
            if params.get("rankSize", 0) > 1 and golden.compute_ranks is not None:
                answer = yield Together(golden, unit, params, inputs)
                if isinstance(answer, str):
                    raise NotComputedError(answer)
                result = answer
            else:
                result = evaluate(golden, inputs, params)
            if self._errors:
                result = self._with_errors(program, unit, result)
            outputs = self._outputs(unit, result)
        except NotComputedError:
            raise
        except AitError as error:
            raise NotComputedError(str(error)) from error
        except REFUSALS as error:
            reason = f"the golden {unit.type} refuses its inputs ({first_line(error)})"
            if unit.operation is None and (unit.step, unit.op_id) not in self._tables:
                reason += "; their shapes were not captured, dump with --type op as well"
            raise NotComputedError(reason) from error
        files.outputs(unit, outputs, self._keep(unit, result, outputs, values))
        self._outcome.computed += 1

    def _inputs(self, program: Program, unit: Unit, values: Values) -> list[Value | None]:
        given: list[Value | None] = []
        missing: NotComputedError | None = None
        for index, key in enumerate(unit.inputs):
            try:
                given.append(self._input(program, unit, index, key, values))
            except NotComputedError as error:  # further ones are to be named as well
                missing = missing or error
        if missing is not None:
            raise missing
        return given

    def _golden(self, unit: Unit) -> GoldenOp:
        golden = library_operator(unit.type)
        if golden is None:
            raise NotComputedError(f"there is no golden {unit.type}")
        if unit.type in _RANDOM:
            raise NotComputedError(f"{unit.type} draws its result")
        return golden

    def _input(
        self, program: Program, unit: Unit, index: int, key: Key | None, values: Values
    ) -> Value | None:
        """One input as the golden operator takes it; None for an absent optional one."""
        own = unit.captured("in", index)
        if own is not None and not is_filled(own):
            return None
        row = self._tables.get((unit.step, unit.op_id))
        listed = row.inputs[index] if row is not None and index < len(row.inputs) else None
        if listed is not None and (listed.dtype is DType.UNDEFINED or 0 in listed.shape):
            return None
        if key is None and own is None:
            return None
        found = self._find(program, unit, index, key, own, values)
        shape = own.shape if own is not None else listed.shape if listed is not None else None
        if (
            shape is not None
            and (own is None or found.source is not own)
            and tuple(found.tensor.shape) != shape
        ):
            if found.tensor.numel() != _count(shape):
                raise NotComputedError(
                    f"its intensor{index} has shape {list(shape)}, and the value that it holds "
                    f"{list(found.tensor.shape)}"
                )
            found = Value(found.tensor.reshape(shape), found.origin, found.source)
        return found

    def _find(
        self,
        program: Program,
        unit: Unit,
        index: int,
        key: Key | None,
        own: Tensor | None,
        values: Values,
    ) -> Value:
        computed = None if key is None else values.computed.get(key)
        if computed is not None and not self._from_dump:
            return Value(computed, "golden")
        read = self._read(program, unit, index, key, own)
        if read is None and computed is not None:
            return Value(computed, "golden")
        if read is None:
            raise NotComputedError(self._missing(program, unit, index, key))
        if not self._from_dump and key is not None and program.kinds.get(key) == "internal":
            reason = "what computes it was not captured"
            self._outcome.started.append(Start(key[0], unit.name, program.run.step, reason))
        return read

    def _read(
        self, program: Program, unit: Unit, index: int, key: Key | None, own: Tensor | None
    ) -> Value | None:
        """An input from the dump."""
        if key is not None:
            found = dumped(program, key, own)
            if found is not None:
                return found
        # A cache that was saved only after it was written: writing the same again changes nothing.
        changed = index in unit.overwritten and not unit.inputs_are_old
        if own is None or not own.has_data or (changed and unit.type not in IDEMPOTENT):
            return None
        return Value(values_of(own), "dump", own)

    def _missing(self, program: Program, unit: Unit, index: int, key: Key | None) -> str:
        """Why a value is nowhere; of the graph's own ones it is noted."""
        if key is None:
            return f"its intensor{index} was not captured"
        kind = program.kinds.get(key)
        if kind is None:
            return "it needs what an operator makes that was not computed"
        self._outcome.missing.setdefault(key[0], unit.name)
        return f"{'' if kind in ('unknown', 'internal') else kind + ' '}{key[0]} was not captured"

    def _outputs(self, unit: Unit, result: Result) -> list[torch.Tensor]:
        """The outputs with the dumped run's elements where the operator leaves them undefined."""
        import torch

        outputs = list(result.outputs)
        for index, undefined in result.undefined.items():
            own = unit.captured("out", index)
            if own is not None and own.has_data:
                golden = outputs[index]
                mine = values_of(own).reshape(golden.shape).to(golden.dtype)
                outputs[index] = torch.where(undefined.broadcast_to(golden.shape), mine, golden)
        return outputs

    def _with_errors(self, program: Program, unit: Unit, result: Result) -> Result:
        """What the operator made with the errors that it is to have."""
        process = f"{program.run.device}_{program.run.pid}"
        changed = {}
        for index, tensor in enumerate(result.outputs):
            own = unit.captured("out", index)
            name = f"outtensor{index}" if own is None else own.path.stem
            path = self._errors.get(f"{process}/{unit.step}/{unit.path}/after/{name}")
            if path is not None:
                changed[id(tensor)] = with_error(tensor, path)
        if not changed:
            return result
        updated = {i: changed.get(id(each), each) for i, each in result.updated_inputs.items()}
        outputs = tuple(changed.get(id(each), each) for each in result.outputs)
        return replace(result, outputs=outputs, updated_inputs=updated)

    def _keep(
        self, unit: Unit, result: Result, outputs: Sequence[torch.Tensor], values: Values
    ) -> dict[int, tuple[Key, torch.Tensor]]:
        """Remember what an operator made.

        Returns:
            What it left in inputs that it overwrites, by index, and which values these are.
        """
        for key, tensor in zip(unit.outputs, outputs, strict=False):
            if key is not None:
                values.keep(key, tensor)
        formal = {id(tensor): index for index, tensor in enumerate(result.outputs)}
        updated = {}
        for index, tensor in result.updated_inputs.items():
            before = unit.inputs[index] if index < len(unit.inputs) else None
            if before is None:
                continue
            after = unit.after[index] or before
            place = formal.get(id(tensor), len(unit.outputs))
            if after == before and place < len(unit.outputs):  # numbers gave it another name
                after = unit.outputs[place] or before
            values.update(before, after, tensor)
            updated[index] = (after, tensor)
        return updated

    def _take(
        self, program: Program, unit: Unit, values: Values, files: Files, reason: str
    ) -> None:
        """Let what follows use the dumped outputs of an operator that is not computed."""
        taken = True
        keys = [key for key in unit.outputs if key is not None]
        for key in keys:
            values.computed.pop(key, None)
            taken = taken and any(tensor.has_data for tensor in program.captured.get(key, ()))
        files.skipped(unit, len(keys), reason)
        run = program.run
        self._outcome.skipped.append(
            Skipped(unit.name, str(unit.op_id), unit.step, run.device, run.pid, reason, taken)
        )


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
