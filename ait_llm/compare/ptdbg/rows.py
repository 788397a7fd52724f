"""One pair of items to a row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ait_llm.compare.api.real_data import NOT_FINITE, compare_arrays
from ait_llm.dumps.ptdbg_records import PtdbgValue
from ait_llm.dumps.tensors import Tensor
from ait_llm.errors import AitError

COLUMNS = (
    "NPU Name",
    "Bench Name",
    "NPU Tensor Dtype",
    "Bench Tensor Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "Cosine",
    "MaxAbsErr",
    "NPU max",
    "NPU min",
    "NPU mean",
    "Bench max",
    "Bench min",
    "Bench mean",
    "Accuracy Reached or Not",
    "Err_message",
)
STACK_COLUMN = "NPU_Stack_Info"
REACHED, NOT_REACHED, UNCLEAR = "Yes", "No", "None"
MISSING = "Nan"  # cells of a side that has no such item
UNSUPPORTED = "unsupported"
_NO_FILE = "Dump file:{} not found"
_SHAPES = "Shape of NPU and bench Tensor do not match. Skipped."
_SCALAR = "This tensor is scalar."
_DTYPES = "Dtype of NPU and bench Tensor do not match."
_NO_BENCH = "No bench data matched."
_NO_NPU = "No NPU data matched."
_VALUES = "The values of the scalar differ."
# The two limits of the guide, and those that later releases added for errors that they let pass.
_COSINE, _ABSOLUTE = 0.99, 0.001
_LOW_COSINE, _HIGH_ABSOLUTE = 0.9, 1.0

Item = tuple[PtdbgValue, Tensor | None]
"""What a line says, and the tensor if it is one."""


@dataclass(slots=True)
class PtdbgRow:
    """A row of the table.

    Attributes:
        mine, golden: the items; None where a side has none.
        cosine, absolute: the two metrics, or a word for why there is none.
        accuracy: ``Yes``, ``No``, ``None`` (nothing was measured), ``Nan`` (nothing to compare).
        message: what must be known about it.
        stack: of the call, in its first row.
    """

    mine: PtdbgValue | None
    golden: PtdbgValue | None
    cosine: float | str = UNSUPPORTED
    absolute: float | str = UNSUPPORTED
    accuracy: str = UNCLEAR
    message: str = ""
    stack: str = "None"

    def cells(self, *, stack: bool) -> list[Any]:
        """Cells in the order of :data:`COLUMNS`."""
        mine, golden = _cells(self.mine), _cells(self.golden)
        both = [cell for pair in zip(mine[:3], golden[:3], strict=True) for cell in pair]
        found = [*both, self.cosine, self.absolute, *mine[3:], *golden[3:]]
        found += [self.accuracy, self.message]
        return [*found, self.stack] if stack else found


def make_row(mine: Item | None, golden: Item | None, stack: str = "None") -> PtdbgRow:
    """Measure two items.

    Args:
        mine, golden: None where a side has none.
        stack: cell of the call stack.
    """
    row = PtdbgRow(mine and mine[0], golden and golden[0], stack=stack)
    if mine is None or golden is None:
        row.cosine = row.absolute = row.accuracy = MISSING
        row.message = _NO_BENCH if golden is None else _NO_NPU
    elif mine[1] is not None and golden[1] is not None:
        if _measure(row, mine[1], golden[1]) and (
            mine[0].recorded_dtype != golden[0].recorded_dtype
        ):
            row.message = f"{row.message} {_DTYPES}".lstrip()
    else:
        same = _value(row.mine) == _value(row.golden)
        row.accuracy = REACHED if same else NOT_REACHED
        row.message = "" if same else _VALUES
    return row


def _measure(row: PtdbgRow, mine: Tensor, golden: Tensor) -> bool:
    """Fill in what two tensors are alike; False if they cannot be measured."""
    for tensor in (mine, golden):
        if not tensor.has_data:
            row.message = _NO_FILE.format(tensor.path)
            return False
    try:
        values = mine.numpy(), golden.numpy()
    except AitError as error:
        row.message = str(error)
        return False
    if values[0].shape != values[1].shape:
        row.message, row.accuracy = _SHAPES, NOT_REACHED
        return False
    found = compare_arrays(*values)
    cosine, _, absolute = found.cells[:3]
    row.cosine, row.absolute = cosine, absolute
    if not values[0].ndim:
        row.message = _SCALAR
    elif found.messages and found.messages[0] != _DTYPES:
        row.message = found.messages[0]
    row.accuracy = _accuracy(cosine, absolute)
    if found.messages and found.messages[0] == NOT_FINITE:
        row.accuracy = NOT_REACHED
    return True


def _accuracy(cosine: Any, absolute: Any) -> str:
    error = absolute if isinstance(absolute, float | int) else None
    similar = cosine if isinstance(cosine, float | int) else None
    if error is None:
        return UNCLEAR
    if similar is None:  # one element or all zero: only the error says something
        return NOT_REACHED if error > _ABSOLUTE else REACHED
    far = similar < _LOW_COSINE or error > _HIGH_ABSOLUTE
    return NOT_REACHED if far or (similar < _COSINE and error > _ABSOLUTE) else REACHED


def _cells(value: PtdbgValue | None) -> list[Any]:
    """Name, type, shape, maximum, minimum and mean."""
    if value is None:
        return [MISSING] * 6
    if value.type != "torch.Tensor":
        return [value.item, f"<class '{value.type}'>", "[]", *[value.value] * 3]
    found = value.array
    numbers = [found.get(name) for name in ("Max", "Min", "Mean")]
    shown = ["" if each in (None, []) else each for each in numbers]
    return [value.item, value.recorded_dtype, str(found.get("shape")), *shown]


def _value(value: PtdbgValue | None) -> Any:
    if value is None:
        return None
    return repr(value.value) if value.type != "torch.Tensor" else value.array.get("shape")
