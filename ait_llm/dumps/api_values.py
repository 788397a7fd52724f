"""What API dumps say about each argument and result of a call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.tensors import Described, Identity, Role, Source, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, load
from ait_llm.formats.elements import Array
from ait_llm.formats.locate import locate
from ait_llm.formats.opening import contained_file, open_regular
from ait_llm.formats.payload import Payload

Section = Literal["input", "parameters", "output", "parameters_grad", "debug"]
MAX_DEPTH = 400  # captures nest no deeper
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ApiValue:
    """One argument, parameter or result: a leaf of the containers that a call was given.

    Attributes:
        record_name: of the call, ``Torch.cat.0.forward``.
        section: which part of the record.
        keys: place within it: positions as int, keywords and fields as str.
        role: what goes into the call or comes out of it.
        recorded: what the file says: a mapping with ``type`` (``class_type`` for an operation
            between two ranks), an empty list or mapping, or None for a value that was None or that
            the tool cannot describe.
        file: its own file, None if no values were saved.
        keyword: True for a keyword argument.
    """

    record_name: str
    section: Section
    keys: tuple[int | str, ...]
    role: Role
    recorded: Any = field(repr=False)
    file: str | None = None
    keyword: bool = False

    @property
    def item(self) -> str:
        """Name in tables: ``Torch.cat.0.forward.input.0.1``, ``….forward.input.min``."""
        return f"{self.record_name}.{self.label}" if self.label else self.record_name

    @property
    def label(self) -> str:
        """The item's name without that of the call: ``input.0.1``, ``parameters.weight``."""
        keys = [str(key) for key in self.keys]
        if self.section not in ("debug", "parameters_grad"):
            keys.insert(0, self.section)
        return ".".join(keys)

    @property
    def type(self) -> str | None:
        """``torch.Tensor``, ``int``, ``torch.Size``; None for None and for empty containers."""
        if not isinstance(self.recorded, Mapping):
            return None
        found = self.recorded.get("type", self.recorded.get("class_type"))
        return found if isinstance(found, str) else None

    @property
    def value(self) -> Any:
        """The value of a scalar, string, size, dtype and the like; None for anything else."""
        if not isinstance(self.recorded, Mapping):
            return None
        for key in ("value", "format", "group_ranks"):
            if key in self.recorded:
                return self.recorded[key]
        return None

    @property
    def array(self) -> Mapping[str, Any]:
        """What the file says about a tensor or array; of an operation between ranks, its tensor."""
        if not isinstance(self.recorded, Mapping):
            return _NOTHING
        inner = self.recorded.get("tensor") if "class_type" in self.recorded else self.recorded
        return inner if isinstance(inner, Mapping) else _NOTHING

    @property
    def requires_grad(self) -> bool | None:
        """As recorded; None if it was not."""
        found = self.array.get("requires_grad")
        return found if isinstance(found, bool) else None

    @property
    def md5(self) -> str | None:
        """Checksum (CRC-32 or xor of the bytes, in hexadecimal digits); None if none was taken."""
        found = self.array.get("md5")
        return found if isinstance(found, str) else None

    @property
    def data_name(self) -> str | None:
        """Name of the file with the values, as recorded."""
        found = self.array.get("data_name")
        return found if isinstance(found, str) and found != "-1" else None

    @property
    def recorded_dtype(self) -> str:
        """``torch.float16``, ``int64``, ``<U1``; "" for a value that is no array."""
        found = self.array.get("dtype")
        return found if isinstance(found, str) else ""

    @property
    def is_tensor(self) -> bool:
        """True for tensors and arrays of numbers."""
        is_text = self.recorded_dtype[1:2] in ("U", "S")  # as of "<U1"
        return isinstance(self.array.get("shape"), list) and not is_text

    def texts(self, root: Path) -> Array:
        """The values of an array of strings, which is no tensor.

        Raises:
            FormatError: there is no file, or it does not hold such an array.
        """
        if self.file is None:
            raise FormatError(self.item, "has no file of values")
        path = Path(contained_file(self.file, root))
        with open_regular(path) as file:
            try:
                array = np.lib.format.read_array(file, allow_pickle=False)
            except (ValueError, EOFError, MemoryError, OverflowError) as error:
                raise FormatError(path, f"is not an array of strings: {error}") from None
        if array.dtype.kind not in "US":
            raise FormatError(path, f"holds {array.dtype} elements, not strings")
        return array


class ApiSource(Source):
    """Reads one tensor of an API dump.

    Args:
        described: what the file of the call says about it.
        root: folder that no link may leave.
    """

    __slots__ = ("_described", "_root")

    def __init__(self, described: ApiValue, root: Path) -> None:
        self._described = described
        self._root = root

    def header(self, tensor: Tensor) -> Described:
        """As recorded; UNDEFINED for a type that has no counterpart here.

        Raises:
            FormatError: the record's shape is not a list of sizes.
        """
        sizes = self._described.array["shape"]
        if not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
            raise FormatError(
                self._root, f"the shape of {self._described.item} is not a list of sizes"
            )
        dtype = dtype_named(self._described.recorded_dtype)
        return Described(TensorDesc(dtype, tuple(sizes)))

    def has_data(self, tensor: Tensor) -> bool:
        """True if the file of the values is there."""
        file = self._described.file
        return file is not None and os.path.lexists(file)

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        """Those of the tool: all NaN if an element is NaN, infinite where an element is."""
        found = self._described.array
        return statistics_named(*(found.get(name) for name in ("Max", "Min", "Mean", "Norm")))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values."""
        return self.loaded(tensor).array

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their type."""
        return load(Path(contained_file(self._file(), self._root)))

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if none were saved or only :meth:`values` can read them."""
        if not self.has_data(tensor):
            return None
        found = locate(Path(contained_file(self._file(), self._root)))
        return found.get("") if found is not None and len(found) == 1 else None

    def _file(self) -> str:
        if self._described.file is None:
            raise FormatError(
                self._root,
                f"holds no values of {self._described.item}",
                "Capture with the task tensor",
            )
        return self._described.file


def tensor_of(
    value: ApiValue,
    index: int,
    root: Path,
    source: ApiSource | None = None,
    identity: Identity | None = None,
) -> Tensor:
    """The tensor that a value is; inputs are captured before the call, outputs after it.

    Args:
        value: a leaf that is a tensor.
        index: position among the inputs or outputs.
        root: folder of the dump.
        source: reads it, if not as a file of its own.
        identity: which value it is, where the capture says so.
    """
    return Tensor(
        value.role,
        index,
        value.file or value.item,
        "" if value.file else str(root),
        source or ApiSource(value, root),
        "before" if value.role == "in" else "after",
        ir_name=value.label,
        identity=identity,
    )


@lru_cache(maxsize=256)
def dtype_named(name: str) -> DType:
    """The type that a capture calls ``torch.float16``, ``Float16`` or ``float16``."""
    return DType.of_torch(name.rpartition(".")[2].lower()) or DType.UNDEFINED


def statistics_named(high: Any, low: Any, mean: Any, norm: Any) -> Statistics | None:
    """Recorded statistics as numbers; None where none was recorded."""
    found = tuple(_number(each) for each in (low, high, mean, norm))
    if all(each is None for each in found):
        return None
    return Statistics(found[0], found[1], found[2], found[3])


def _number(value: Any) -> float | None:
    """A statistic as a number: captures write true and false for booleans, and texts for NaN."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None
