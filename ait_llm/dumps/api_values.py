"""What API dumps say about each argument and result of a call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ait_llm.core import FORMAT_ND, DType
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics, load, measure
from ait_llm.formats.elements import Array
from ait_llm.formats.locate import locate
from ait_llm.formats.opening import contained_file, open_regular
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    import torch

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


@dataclass(frozen=True, slots=True)
class ApiTensor:
    """A tensor of an API dump; see :class:`ait_llm.dumps.model.Tensor`.

    Attributes:
        described: what the file of the call says about it.
    """

    described: ApiValue
    index: int
    root: Path = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """``intensor0``, ``outtensor1``: position among the inputs or outputs."""
        return f"{self.role}tensor{self.index}"

    @property
    def role(self) -> Role:
        """Arguments and parameters go in, results and gradients of parameters come out."""
        return self.described.role

    @property
    def ir_name(self) -> str:
        """Place in the call: ``input.0``, ``input.mask``, ``parameters.weight``, ``output.1``."""
        return self.described.label

    @property
    def item(self) -> str:
        """Name in tables: ``Functional.linear.0.forward.input.0``."""
        return self.described.item

    @property
    def phase(self) -> Phase:
        """Inputs are captured before the call, outputs after it."""
        return "before" if self.role == "in" else "after"

    @property
    def path(self) -> Path:
        """The file of the values; the name that it would have if none were saved."""
        return Path(self.described.file or self.root / self.item)

    @property
    def dtype(self) -> DType:
        """Logical element type; UNDEFINED for one that has no counterpart here."""
        return dtype_named(self.described.recorded_dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as recorded.

        Raises:
            FormatError: the record's shape is not a list of sizes.
        """
        sizes = self.described.array["shape"]
        if not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
            raise FormatError(self.root, f"the shape of {self.item} is not a list of sizes")
        return tuple(sizes)

    @property
    def format(self) -> int:
        """Always row-major."""
        return FORMAT_ND

    @property
    def requires_grad(self) -> bool | None:
        """As recorded; None if it was not."""
        return self.described.requires_grad

    @property
    def md5(self) -> str | None:
        """Checksum of the bytes; None if none was taken."""
        return self.described.md5

    @property
    def data_name(self) -> str | None:
        """Name of the file with the values, as recorded."""
        return self.described.data_name

    @property
    def has_data(self) -> bool:
        """True if the file of the values is there."""
        return self.described.file is not None and os.path.lexists(self.described.file)

    @property
    def statistics(self) -> Statistics | None:
        """Recorded statistics, else computed from the values; None if there is neither.

        Recorded ones are those of the tool: NaN in all four if any element is NaN, infinite where
        an element is.

        Raises:
            FormatError: the file of the values is damaged.
        """
        found = self.described.array
        names = ("Min", "Max", "Mean", "Norm")
        if any(found.get(name) is not None for name in names):
            low, high, mean, norm = (_number(found.get(name)) for name in names)
            return Statistics(low, high, mean, norm)
        if not self.has_data:
            return None
        array = self.numpy()
        return None if array.dtype.kind in "cUS" else measure(array)

    def numpy(self, *, mmap: bool | None = None) -> Array:
        """The values.

        Raises:
            FormatError: no values were saved, or the file is damaged.
        """
        return self._load().array

    def nd(self) -> Array:
        """The values, which are row-major already."""
        return self.numpy()

    def torch(self) -> torch.Tensor:
        """The values as a CPU tensor of the same element type."""
        return self._load().torch()

    def payload(self) -> Payload | None:
        """Where the values lie; None if none were saved or only :meth:`numpy` can read them.

        Raises:
            FormatError: the file cannot be opened, or is a link that leaves the dump.
        """
        if not self.has_data:
            return None
        found = locate(Path(contained_file(self._file(), self.root)))
        return found.get("") if found is not None and len(found) == 1 else None

    def _file(self) -> str:
        if self.described.file is None:
            raise FormatError(
                self.root, f"holds no values of {self.item}", "Capture with the task tensor"
            )
        return self.described.file

    def _load(self) -> LoadedTensor:
        return load(Path(contained_file(self._file(), self.root)))


@lru_cache(maxsize=256)
def dtype_named(name: str) -> DType:
    """The type that a capture calls ``torch.float16``, ``Float16`` or ``float16``."""
    plain = name.rpartition(".")[2].lower()
    for member in DType:
        if plain and member.torch_name == plain:
            return member
    return DType.UNDEFINED


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
