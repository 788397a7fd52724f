"""Reading one tensor of a dump file of the graph engine, or one row of a table."""

from __future__ import annotations

from ait_llm.core import TensorDesc
from ait_llm.dumps.ge_tables import Recorded
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats import LoadedTensor, Statistics
from ait_llm.formats.elements import Array
from ait_llm.formats.ge_file import GeFile, GeTensor
from ait_llm.formats.ge_types import ge_format_name, ge_type_name
from ait_llm.formats.ge_values import ge_payload, ge_stored, ge_values
from ait_llm.formats.payload import Payload


class GeStored(Source):
    """Reads one tensor. Its format is a code of ``formats.ge_types``.

    Its header has the logical dims where they were recorded, else the stored ones; the type is
    UNDEFINED for one that has no values.

    Args:
        file: the dump file; None for a row, and for a file that cannot be read.
        stored: the tensor in it.
        recorded: the row; None without one.
        failure: why the file cannot be read, None if it can.
    """

    __slots__ = ("_failure", "_file", "_recorded", "_stored")

    def __init__(
        self,
        file: GeFile | None,
        stored: GeTensor | None,
        recorded: Recorded | None = None,
        failure: FormatError | None = None,
    ) -> None:
        self._file = file
        self._stored = stored
        self._recorded = recorded
        self._failure = failure

    def header(self, tensor: Tensor) -> Described:
        """Type, dims and format, of the file or else of the row."""
        known = self._stored or self._recorded
        if known is None:
            raise self._refusal(tensor)
        return Described(TensorDesc(known.dtype, known.shape, known.format))

    def problem(self, tensor: Tensor) -> str | None:
        """Why there are no values."""
        if self._failure is not None:
            return self._failure.reason
        return (
            self._stored.problem if self._stored is not None else "only its statistics were saved"
        )

    def has_data(self, tensor: Tensor) -> bool:
        """True if the values can be read."""
        return self.problem(tensor) is None

    def recorded_statistics(self, tensor: Tensor) -> Statistics | None:
        """As in the table."""
        return None if self._recorded is None else self._recorded.statistics

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """The values in the dims in which they are stored; large ones are mapped where possible."""
        return ge_stored(*self._readable(tensor))

    def payload(self, tensor: Tensor) -> Payload | None:
        """Where the values lie; None if there are none."""
        if not self.has_data(tensor) or self._file is None or self._stored is None:
            return None
        return ge_payload(self._file, self._stored)

    def has_logical_dims(self, tensor: Tensor) -> bool:
        """True if the engine recorded dims of their own for a private layout."""
        return self._stored is not None and self._stored.described.shape != self._stored.shape

    def arranged(self, tensor: Tensor) -> Array:
        """The values in row-major order of the logical dims, private layouts restored."""
        return ge_values(*self._readable(tensor))

    def measured(self, tensor: Tensor) -> Array:
        """Without what a private layout pads."""
        return self.arranged(tensor)

    def loaded(self, tensor: Tensor) -> LoadedTensor:
        """The values in logical dims."""
        return LoadedTensor(self.arranged(tensor), tensor.dtype)

    def names(self, tensor: Tensor) -> tuple[str, str]:
        """The engine's own, also of types that have no values, such as ``hifloat4``."""
        desc = tensor.header.desc
        stored = self._stored
        label = desc.dtype.label if stored is None else ge_type_name(stored.described.type)
        return label, ge_format_name(desc.format)

    def _readable(self, tensor: Tensor) -> tuple[GeFile, GeTensor]:
        if self._file is None or self._stored is None:
            raise self._refusal(tensor)
        return self._file, self._stored

    def _refusal(self, tensor: Tensor) -> FormatError:
        return self._failure or FormatError(
            tensor.path, "holds only statistics", 'Dump with dump_data="tensor"'
        )


def address_of(tensor: Tensor) -> int:
    """Address of a tensor of such a file on the device; 0 if it was not recorded."""
    stored = tensor.source._stored if isinstance(tensor.source, GeStored) else None
    return 0 if stored is None else stored.described.address


def original_op(stored: GeTensor) -> tuple[str, int] | None:
    """Name and output of the operator before fusion that made a tensor; None if not recorded."""
    original = stored.described.original
    return (original.name, original.output) if original is not None and original.name else None
