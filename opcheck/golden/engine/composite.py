"""What several operators of the graph engine make together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import DType
from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, is_result, part_function
from ait_llm.topology.ge_graph import GeOp, GeTensor

TensorId = tuple[str, int]


@dataclass(frozen=True)
class Composite:
    """Operators of a graph as one function of the tensors that come from outside of them.

    Attributes:
        parts: the operators, each with what it computes.
        inputs: names of the tensors that it is given, in their order.
        outputs: names of the tensors that it makes.
        constants: operators that hold a constant, by name.
    """

    parts: Mapping[str, tuple[GeOp, Compute]]
    inputs: Sequence[TensorId]
    outputs: Sequence[TensorId]
    constants: Mapping[str, GeOp]

    @classmethod
    def of(
        cls,
        parts: Sequence[tuple[GeOp, Part]],
        inputs: Sequence[TensorId],
        outputs: Sequence[TensorId],
        constants: Mapping[str, GeOp],
    ) -> Composite | str:
        """The function, or why there is none: the type of an operator without a definition.

        Outputs that a definition does not have are left out.
        """
        found = {}
        for op, part in parts:
            compute = part_function(part)
            if compute is None:
                return part.type
            found[op.name] = op, compute
        types = {op.name: part.type for op, part in parts}
        kept = [one for one in outputs if is_result(types.get(one[0], ""), one[1])]
        return cls(found, inputs, kept, constants)

    def __call__(self, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Its outputs.

        Raises:
            UnverifiableError: a tensor that it reads is not there.
        """
        known = {
            name: tensor
            for name, tensor in zip(self.inputs, tensors, strict=True)
            if tensor is not None
        }
        return tuple(self._value(name, known) for name in self.outputs)

    def _value(self, name: TensorId, known: dict[TensorId, Tensor]) -> Tensor:
        waiting = [name]
        while waiting:
            current = waiting[-1]
            if current in known:
                waiting.pop()
                continue
            if current[0] in self.constants:
                known[current] = constant(self.constants[current[0]])
                continue
            if current[0] not in self.parts:
                raise UnverifiableError(f"{current[0]}, which it reads, is not in the dump")
            op, compute = self.parts[current[0]]
            missing = [one for one in op.inputs if one not in known]
            if missing:
                if len(waiting) > len(self.parts) + len(op.inputs):
                    raise UnverifiableError("its graph goes round in a circle")
                waiting.append(missing[0])
                continue
            self._run(op, compute, known)
            if current not in known:
                raise UnverifiableError(f"{op.name} has no result of that number")
        return known[name]

    def _run(self, op: GeOp, compute: Compute, known: dict[TensorId, Tensor]) -> None:
        given: list[Tensor | None] = [None] * (max(op.slots, default=-1) + 1)
        for slot, name in zip(op.slots, op.inputs, strict=True):
            given[slot] = known[name]
        found = compute(*given)
        results = (found,) if isinstance(found, Tensor) else found
        numbered = results.items() if isinstance(results, Mapping) else enumerate(results)
        for index, result in numbered:
            known[op.name, index] = result


def constant(op: GeOp) -> Tensor:
    """The value of a constant that the graph spells out.

    Raises:
        UnverifiableError: it does not.
    """
    described, text = op.attrs.get("value"), op.attrs.get("_readable_value")
    dtype = described.dtype if isinstance(described, GeTensor) else None
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        value = None
    if value is None or dtype is None:
        raise UnverifiableError(f"the constant {op.name} is not in the dump")
    return torch.tensor(value, dtype=_torch_type(dtype))


def _torch_type(dtype: DType) -> torch.dtype:
    found = getattr(torch, dtype.torch_name or "", None)
    if not isinstance(found, torch.dtype):
        raise UnverifiableError(f"torch has no {dtype.label}")
    return found
