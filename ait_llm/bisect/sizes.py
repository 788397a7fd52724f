"""How many bytes tensors take on disk, known from their statistics."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ait_llm.dumps import Dump
from ait_llm.dumps.model import Operation, Role, Tensor
from ait_llm.errors import AitError

# What a file holds besides the data, and what tables and ledgers say of it.
_ATB_FILE, _TORCH_FILE = 700, 1300


def data_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; 0 if its header cannot be read."""
    try:
        return tensor.dtype.byte_count(prod(tensor.shape))
    except AitError:
        return 0


def file_bytes(tensor: Tensor) -> int:
    """Bytes of the file that would hold a tensor, and of what is written about it."""
    return data_bytes(tensor) + (_TORCH_FILE if str(tensor.path).endswith(".pth") else _ATB_FILE)


def operation_bytes(operation: Operation, roles: Iterable[Role], *, before: bool = False) -> int:
    """Bytes of an operation's tensors.

    Args:
        operation: the operation.
        roles: inputs, outputs or both.
        before: they are written in the states before and after it.
    """
    wanted = set(roles)
    tensors = [*operation.inputs, *operation.outputs]
    size = sum(file_bytes(tensor) for tensor in tensors if tensor.role in wanted)
    return 2 * size if before else size


def full_bytes(dump: Dump) -> int:
    """Bytes of a dump of the values of all operations and kernels, each file with its header."""
    total = 0
    for operation in dump.operations():
        kernels = (tensor for kernel in operation.kernels for tensor in kernel.tensors)
        for tensor in (*operation.tensors, *kernels):
            total += data_bytes(tensor) + _overhead(tensor)
    return total


def _overhead(tensor: Tensor) -> int:
    """Bytes of the header, as written without data; of a ``.pth`` file's records."""
    try:
        return tensor.path.stat().st_size
    except OSError:
        return 930 if str(tensor.path).endswith(".pth") else 0
