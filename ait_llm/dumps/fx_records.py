"""Reading the values of an FX dump: ``.npy`` files, one for each argument and result of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, load
from ait_llm.formats.elements import Array
from ait_llm.formats.npy import npy_payload, read_npy_header
from ait_llm.formats.opening import contained_file
from ait_llm.formats.payload import Payload


class InFewBits(NamedTuple):
    """How a weight is stored whose real numbers a file has.

    Attributes:
        stored_as: for people.
        rounding: relative Euclidean distance that rounding to what can be stored has cost.
    """

    stored_as: str
    rounding: float


class FxFiles(Source):
    """Reads ``.npy`` files; shared by all tensors of a dump that have one logical type.

    Plain numbers and lists of numbers among the arguments are arrays of rank 0 and 1.

    Args:
        root: folder that no link may leave.
        logical: element type in the program where the files hold a wider one: ``.npy`` files have
            no bf16, so such values lie in them as float32. None: as the file says.
        few_bits: of a weight that the program keeps in few bits.
    """

    __slots__ = ("_few_bits", "_logical", "_root")

    def __init__(
        self, root: Path, logical: DType | None = None, few_bits: InFewBits | None = None
    ) -> None:
        self._root = root
        self._logical = logical
        self._few_bits = few_bits

    def header(self, tensor: Tensor) -> Described:
        """Logical type and shape."""
        found = read_npy_header(Path(contained_file(tensor.file, self._root)))
        return Described(TensorDesc(self._narrowed(found.dtype), found.shape))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values, in the logical element type."""
        return self.loaded(tensor).array

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if they must be converted."""
        if self._logical is not None and tensor.dtype is self._logical:
            return None
        return npy_payload(Path(contained_file(tensor.file, self._root)))

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values with their logical type."""
        loaded = load(Path(contained_file(tensor.file, self._root)))
        dtype = self._narrowed(loaded.dtype)
        if dtype is loaded.dtype or dtype.numpy_type is None:
            return loaded
        return LoadedTensor(loaded.array.astype(dtype.numpy_type), dtype)

    def stored_as(self, tensor: Tensor) -> str:
        """How the program keeps a weight of few bits."""
        return "" if self._few_bits is None else self._few_bits.stored_as

    def rounding(self, tensor: Tensor) -> float:
        """What rounding to few bits has cost, as the capture worked it out."""
        return 0.0 if self._few_bits is None else self._few_bits.rounding

    def _narrowed(self, stored: DType) -> DType:
        """The logical type where the file holds float32 in its place."""
        logical = self._logical
        return logical if logical is not None and stored is DType.FLOAT32 else stored


def tensors_among(values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Arguments and results that hold numbers; a damaged file counts as one."""
    others = {each["name"] for each in others_among(values)}
    return tuple(value for value in values if value.stem not in others)


def others_among(values: Sequence[Tensor]) -> tuple[Mapping[str, str], ...]:
    """Names and reasons of values that hold no numbers: None, a dtype, text, empty tensors."""
    found = []
    for value in values:
        try:
            reason = ""
            if value.dtype is DType.UNDEFINED:
                reason = "is no tensor but another object"
            elif 0 in value.shape:
                reason = f"has no elements: [{','.join(map(str, value.shape))}]"
            if reason:
                found.append({"name": value.stem, "reason": reason})
        except FormatError:
            continue  # reading its values says what is wrong with it
    return tuple(found)
