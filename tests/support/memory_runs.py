"""Runs made of arrays, for tests of matchers that need no dump on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import DType, OpId
from ait_llm.formats import LoadedTensor, dtype_of
from ait_llm.program.run import Run


@dataclass(frozen=True, eq=False)
class ArrayTensor:
    """A tensor with its values at hand."""

    role: Literal["in", "out"]
    index: int
    array: NDArray[Any]
    stem: str | None = None
    file: str = ""
    format: int = 2
    ir_name: str | None = None
    phase: Literal["before", "after"] = "after"
    has_data: bool = True
    statistics: None = None

    @property
    def name(self) -> str:
        return f"{self.role}tensor{self.index}"

    @property
    def path(self) -> Path:
        return Path(self.file)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def numpy(self, *, mmap: bool | None = None) -> NDArray[Any]:
        return self.array

    def nd(self) -> NDArray[Any]:
        return self.array

    def torch(self) -> Any:  # tests of matchers need no torch
        return LoadedTensor(self.array, self.dtype, self.format).torch()


@dataclass(frozen=True, eq=False)
class MemoryOperation:
    """An operation with its tensors at hand."""

    type: str
    ids: tuple[int, ...]
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    is_graph: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)
    given_name: str = ""
    step: int = 0
    call: int = 0
    device: int = 0
    pid: int = 1
    kernels: tuple[()] = ()
    phases: tuple[str, ...] = ("after",)

    @property
    def op_id(self) -> OpId:
        return OpId(self.ids)

    @property
    def name(self) -> str:
        return self.given_name or f"{self.type}_{self.op_id}"

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def tensors(self) -> list[Any]:
        return [*self.inputs, *self.outputs]


def operation(
    type: str,
    ids: tuple[int, ...],
    inputs: Sequence[NDArray[Any]] = (),
    outputs: Sequence[NDArray[Any]] = (),
    **more: Any,
) -> MemoryOperation:
    """An ATB operation."""
    name = "_".join(map(str, ids))
    return MemoryOperation(
        type,
        ids,
        [ArrayTensor("in", i, a, file=f"{name}/in{i}") for i, a in enumerate(inputs)],
        [ArrayTensor("out", i, a, file=f"{name}/out{i}") for i, a in enumerate(outputs)],
        **more,
    )


def call(
    name: str,
    type: str,
    place: int,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    outputs: Mapping[str, NDArray[Any]] | None = None,
    **more: Any,
) -> MemoryOperation:
    """A call of a torch module; tensors by stem (``input_0``, ``output``)."""
    number = more.get("call", 0)
    sides: list[list[ArrayTensor]] = []
    for role, values in (("in", inputs or {}), ("out", outputs or {})):
        sides.append(
            [
                ArrayTensor(role, i, array, stem, f"{name}@{number}/{stem}")  # type: ignore[arg-type]
                for i, (stem, array) in enumerate(values.items())
            ]
        )
    return MemoryOperation(type, (place,), *sides, given_name=name, **more)


def run(kind: str, operations: Sequence[Any], step: int = 0) -> Run:
    """A pass."""
    return Run(kind, 0, 1, step, operations)


def ones(*shape: int) -> NDArray[np.float16]:
    return np.ones(shape, np.float16)
