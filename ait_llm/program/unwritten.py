"""Memory that was handed out and not written yet: what it holds means nothing."""

from __future__ import annotations

from ait_llm.dumps.model import Tensor
from ait_llm.program.operators import is_in_place, is_moving, is_uninitialised
from ait_llm.program.program import Program
from ait_llm.program.roles import Role


class Unwritten:
    """Which tensors of a program show memory that nobody may have written.

    What an operator reads for good has been written, or the program is wrong. What it only looks at
    in another shape, or overwrites, may hold anything.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._storages: set[int] = set()
        self._values: set[int] = set()
        for op, role in enumerate(program.roles):
            if role is not Role.OPERATOR:
                continue
            operation = program.operations[op]
            if is_uninitialised(operation):
                for tensor in operation.outputs:
                    identity = tensor.identity
                    if identity is not None:
                        self._storages.add(identity.storage)
                    self._add(op, tensor)
            elif is_moving(operation) and any(
                self._is_known(op, tensor) for tensor in operation.inputs[:1]
            ):
                for tensor in operation.outputs:
                    self._add(op, tensor)

    def holds(self, op: int, tensor: Tensor) -> bool:
        """True if a tensor of an operation may not have been written."""
        if not self._values and not self._storages:
            return False
        operation = self._program.operations[op]
        if self._program.roles[op] is not Role.OPERATOR:
            value = self._program.value(op, tensor)
            return value is not None and value.number in self._values
        if is_uninitialised(operation):
            return tensor.role == "out"
        if is_moving(operation) or (
            is_in_place(operation) and tensor.role == "in" and tensor.index == 0
        ):
            return self._is_known(op, tensor)
        return False

    def _is_known(self, op: int, tensor: Tensor) -> bool:
        identity = tensor.identity
        if identity is not None and identity.storage in self._storages:
            return True
        value = self._program.value(op, tensor)
        return value is not None and value.number in self._values

    def _add(self, op: int, tensor: Tensor) -> None:
        value = self._program.value(op, tensor)
        if value is not None:
            self._values.add(value.number)
