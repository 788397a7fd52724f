"""Runs made of arrays, for tests of matchers that need no dump on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import FORMAT_ND, OpId, TensorDesc
from ait_llm.dumps import ApiDump, AtbDump, FxDump, GeDump, TorchDump
from ait_llm.dumps.model import Operation, Phase, Role, Tensor
from ait_llm.dumps.tensors import Described, Source
from ait_llm.formats import Statistics, dtype_of
from ait_llm.program.one_pass import Pass

TRAITS = {each.kind: each.traits for each in (AtbDump, TorchDump, FxDump, GeDump, ApiDump)}
"""Of the dumps that are read from disk."""


class ArraySource(Source):
    """Values at hand."""

    def __init__(
        self, array: NDArray[Any], format: int = FORMAT_ND, statistics: Statistics | None = None
    ) -> None:
        self._array = array
        self._format = format
        self._statistics = statistics

    def header(self, tensor: Tensor) -> Described:
        return Described(TensorDesc(dtype_of(self._array), self._array.shape, self._format))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> NDArray[Any]:
        return self._array

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        return self._statistics


def array_tensor(
    role: Role,
    index: int,
    array: NDArray[Any],
    stem: str = "",
    file: str = "",
    format: int = FORMAT_ND,
    statistics: Statistics | None = None,
    phase: Phase = "after",
) -> Tensor:
    """A tensor with its values at hand."""
    return Tensor(role, index, file, "", ArraySource(array, format, statistics), phase, stem)


def memory_operation(
    type: str,
    ids: tuple[int, ...],
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
    *,
    given_name: str = "",
    device: int = 0,
    pid: int = 1,
    **more: Any,
) -> Operation:
    """An operation with its tensors at hand."""
    op_id = OpId(ids)
    name = given_name or f"{type}_{op_id}"
    tensors = (*inputs, *outputs)
    return Operation(
        name, op_id, type, device=device, pid=pid, location=name, tensors=tensors, **more
    )


def operation(
    type: str,
    ids: tuple[int, ...],
    inputs: Sequence[NDArray[Any]] = (),
    outputs: Sequence[NDArray[Any]] = (),
    **more: Any,
) -> Operation:
    """An ATB operation."""
    name = "_".join(map(str, ids))
    return memory_operation(
        type,
        ids,
        [array_tensor("in", i, a, file=f"{name}/in{i}") for i, a in enumerate(inputs)],
        [array_tensor("out", i, a, file=f"{name}/out{i}") for i, a in enumerate(outputs)],
        **more,
    )


def call(
    name: str,
    type: str,
    place: int,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    outputs: Mapping[str, NDArray[Any]] | None = None,
    **more: Any,
) -> Operation:
    """A call of a torch module; tensors by stem (``input_0``, ``output``)."""
    number = more.get("call", 0)
    sides: list[list[Tensor]] = []
    for role, values in (("in", inputs or {}), ("out", outputs or {})):
        sides.append(
            [
                array_tensor(role, i, array, stem, f"{name}@{number}/{stem}")  # type: ignore[arg-type]
                for i, (stem, array) in enumerate(values.items())
            ]
        )
    return memory_operation(type, (place,), *sides, given_name=name, **more)


def run(kind: str, operations: Sequence[Any], step: int = 0) -> Pass:
    """A pass."""
    return Pass(kind, 0, 1, step, operations, traits=TRAITS[kind])


def ones(*shape: int) -> NDArray[np.float16]:
    return np.ones(shape, np.float16)
