"""A dump as rows of text, for commands that print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dumps.model import Dump, Operation, Tensor
from ait_llm.dumps.tensor_files import TensorFile
from ait_llm.errors import FormatError


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
        name = operation.name if dump.traits.named else ""
        yield _row(operation, name, note=operation.model_name or note)
        if tensors:
            for tensor in operation.tensors:
                yield _tensor_row(operation, name, tensor)
            for value in operation.not_captured:
                yield _row(operation, name, tensor=str(value["name"]), note=str(value["reason"]))


def describe_file(path: Path) -> Iterator[Row]:
    """A row for each tensor of one file, which belongs to no process.

    Raises:
        FormatError: the file cannot be read.
    """
    file = TensorFile(path)
    for index, key in enumerate(file.keys):
        tensor = file.tensor(key, index)
        dtype, format = tensor.type_names
        shape = ",".join(map(str, tensor.shape))
        note = "" if file.has_data(tensor) else "no data"
        yield Row("", 0, "", "", key, dtype, format, shape, note)


def _row(operation: Operation, name: str, **fields: str) -> Row:
    return Row(
        process=f"{operation.device}_{operation.pid}",
        step=operation.step,
        op_id=str(operation.op_id),
        type=operation.type,
        name=name,
        **fields,
    )


def _tensor_row(operation: Operation, name: str, tensor: Tensor) -> Row:
    label = f"{tensor.phase}/{tensor.name}"
    if tensor.ir_name:
        label += f" ({tensor.ir_name})"
    try:
        dtype, format = tensor.type_names
        return _row(
            operation,
            name,
            tensor=label,
            dtype=dtype,
            format=format,
            shape=",".join(map(str, tensor.shape)),
            note=tensor.problem or "",
        )
    except FormatError as error:
        return _row(operation, name, tensor=label, note=error.reason)
