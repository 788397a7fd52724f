"""A dump as rows of text, for commands that print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ait_llm.dumps.api_records import ApiCall
from ait_llm.dumps.fx_records import FxOperation
from ait_llm.dumps.ge_records import GeOperation
from ait_llm.dumps.ge_tensors import GeDumpTensor
from ait_llm.dumps.model import Dump, Operation, Tensor
from ait_llm.dumps.ptdbg_records import PtdbgCall
from ait_llm.errors import FormatError
from ait_llm.formats import format_name

# Operations whose users know them by name.
_NAMED = (ApiCall, FxOperation, GeOperation, PtdbgCall)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, or one of its tensors.

    Attributes:
        process: ``{device}_{PID}``.
        step: execution count.
        op_id: ``0_1_0``.
        type: operation type.
        tensor: ``before/intensor0 (weight)``; empty in the row of an operation.
        dtype, format, shape: of the tensor; empty in the row of an operation.
        note: ``graph``, ``2 kernels``, ``no data``, or why the tensor cannot be read.
        name: of a node of an FX graph, ``mul_5``, or of an API call, ``Torch.add.0.forward``; empty
            for operations that their id names.
    """

    process: str
    step: int
    op_id: str
    type: str
    tensor: str = ""
    dtype: str = ""
    format: str = ""
    shape: str = ""
    note: str = ""
    name: str = ""


def describe(dump: Dump, *, tensors: bool = False, step: int | None = None) -> Iterator[Row]:
    """Rows in execution order; with ``tensors``, each operation is followed by its tensors.

    A tensor that cannot be read becomes a row that says so.

    Raises:
        FormatError: the dump cannot be listed.
    """
    for operation in dump.operations(step=step):
        note = "graph" if operation.is_graph else ""
        if operation.kernels:
            count = len(operation.kernels)
            note = "1 kernel" if count == 1 else f"{count} kernels"
        if isinstance(operation, GeOperation):
            note = operation.model_name
        yield _row(operation, note=note)
        if tensors:
            for tensor in operation.tensors:
                yield _tensor_row(operation, tensor)
            for value in getattr(operation, "not_captured", ()):
                yield _row(operation, tensor=str(value["name"]), note=str(value["reason"]))


def _row(operation: Operation, **fields: str) -> Row:
    return Row(
        process=f"{operation.device}_{operation.pid}",
        step=operation.step,
        op_id=str(operation.op_id),
        type=operation.type,
        name=operation.name if isinstance(operation, _NAMED) else "",
        **fields,
    )


def _tensor_row(operation: Operation, tensor: Tensor) -> Row:
    label = f"{tensor.phase}/{tensor.name}"
    if tensor.ir_name:
        label += f" ({tensor.ir_name})"
    try:
        dtype, format = _names(tensor)
        return _row(
            operation,
            tensor=label,
            dtype=dtype,
            format=format,
            shape=",".join(map(str, tensor.shape)),
            note=_note(tensor),
        )
    except FormatError as error:
        return _row(operation, tensor=label, note=error.reason)


def _names(tensor: Tensor) -> tuple[str, str]:
    """Names of the element type and the format; dumps of the graph engine have some of their own.

    Raises:
        FormatError: the tensor's header cannot be read.
    """
    if isinstance(tensor, GeDumpTensor):
        return tensor.type_name, tensor.format_name
    return tensor.dtype.label, format_name(tensor.format)


def _note(tensor: Tensor) -> str:
    if isinstance(tensor, GeDumpTensor):
        return tensor.problem or ""
    return "" if tensor.has_data else "no data"
