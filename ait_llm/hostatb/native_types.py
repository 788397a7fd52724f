"""What crosses the boundary to the graph runtime: tensors, statuses and leaf operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.spec import Plan


class Status(IntEnum):
    """Values of ``atb::Status`` that the runtime returns."""

    NO_ERROR = 0
    INVALID_PARAM = 1
    INVALID_GRAPH = 2
    INTERNAL_ERROR = 3
    RT_FAIL = 4
    INVALID_IN_TENSOR_NUM = 5
    INVALID_TENSOR_DTYPE = 6
    INVALID_TENSOR_FORMAT = 7
    INVALID_TENSOR_DIM = 8
    INVALID_TENSOR_SIZE = 9
    INVALID_TENSOR_INI_MATCH = 13
    INVALID_TENSOR_DIM_NUM = 16
    OUT_OF_HOST_MEMORY = 27
    COMM_EMPTY = 28


class NativeStatusError(OperationError):
    """A call into the runtime failed.

    Attributes:
        status: the ``atb::Status``, see :class:`Status`.
    """

    def __init__(self, call: str, status: int, reason: str) -> None:
        self.status = status
        name = Status(status).name if status in Status.__members__.values() else "unknown"
        super().__init__(f"{call} failed with status {status} ({name}): {reason or 'no reason'}")


@dataclass(frozen=True, slots=True)
class NativeTensor:
    """A tensor in host memory.

    Attributes:
        desc: element type, format code and shape.
        pointer: address of the data; 0 for an empty tensor.
        size: bytes of the data.
    """

    desc: TensorDesc
    pointer: int
    size: int


EMPTY_TENSOR = NativeTensor(TensorDesc(DType.UNDEFINED, (), -1), 0, 0)
"""What ATB passes for an absent optional tensor."""


class LeafImplementation(Protocol):
    """What a leaf operator does. Errors raised here reach the caller of the failing call.

    A description with dtype UNDEFINED stands for an absent optional tensor. An implementation may
    also have ``accept(inputs, outputs)``, which is called first at Setup and refuses tensors.
    """

    def infer_shape(self, inputs: Sequence[TensorDesc]) -> Sequence[TensorDesc]:
        """Describe the outputs for these inputs."""

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        """Choose kernels; called at Setup when the shapes changed. No kernels is allowed."""

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        """Run kernel number ``kernel`` of the plan on the kernel's own tensors.

        With an empty plan this is called once, with 0 and the operation's tensors.
        """


Reshape = Callable[[int, TensorDesc], TensorDesc]
"""Gives input number N of a graph node another shape over the same data."""
