"""The text header of ATB tensor files: what a tensor is and where its bytes lie.

``name=value`` lines from ``$Version=`` to ``$End=``, then the data (docs/formats.md). libmki, which
defined the format, allows several named objects behind one header and unknown ``$`` fields; the
tensor is the object called ``data``. A header is trusted in nothing: every number is checked
against the file before it is used.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats.elements import stored_byte_counts
from ait_llm.formats.names import PLAIN_FORMATS
from ait_llm.formats.opening import open_regular
from ait_llm.formats.statistics import Statistics

MAGIC = b"$Version="
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADER_LINES = 8000  # libmki's own limit
MAX_RANK = 32  # of a NumPy array; ATB itself stops at 8
_MAX_BYTES = 2**63 - 1
_SHORT_HEADER_BYTES = 1024  # of headers that are remembered
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DUMP_AGAIN = "The run may have been killed while writing; dump this operation again"


@dataclass(frozen=True, slots=True)
class AtbHeader:
    """What the header of a tensor file says.

    Attributes:
        desc: element type, storage format and storage shape.
        offset: position of the tensor's bytes in the file.
        length: number of those bytes; 0 for a description without data.
        attributes: all attributes that do not start with ``$``, except format, dtype and dims.
        alias: file that holds the bytes instead, as written (``data=``), or None.
    """

    desc: TensorDesc
    offset: int
    length: int
    attributes: Mapping[str, str]
    alias: str | None = None

    @property
    def has_data(self) -> bool:
        """True if the values lie in this very file; a tensor without elements needs no bytes."""
        return self.length > 0 or self.desc.elements == 0

    @property
    def statistics(self) -> Statistics | None:
        """The statistics that the capture put into the header, or None."""
        present = {name for name in ("min", "max", "mean", "l2norm") if name in self.attributes}
        if not present:
            return None
        return Statistics(
            min=_number(self.attributes.get("min")),
            max=_number(self.attributes.get("max")),
            mean=_number(self.attributes.get("mean")),
            l2norm=_number(self.attributes.get("l2norm")),
            nan=_count(self.attributes.get("nan")),
            inf=_count(self.attributes.get("inf")),
        )


def parse_header(path: Path | str, head: bytes, file_size: int) -> AtbHeader:
    """Parse and check a header.

    Args:
        path: the file, for messages.
        head: the first ``MAX_HEADER_BYTES`` bytes of the file, or all of them if it is smaller.
        file_size: size of the whole file in bytes.

    Raises:
        FormatError: the file is not a tensor file, or header and file contradict each other.
    """
    last_line = head.find(b"\n$End=") + 1
    end = head.find(b"\n", last_line) + 1 if last_line else 0
    header, declared = _header_of(path, head[:end] if end else head)
    stored = file_size - end
    if stored < declared:
        raise FormatError(
            path, f"header says {declared} bytes of data, the file has {stored}", _DUMP_AGAIN
        )
    if stored > declared:
        raise FormatError(path, _trailing_reason(path, end + declared, stored - declared, head))
    _check_length(path, header.desc, header.length)
    return header


def _header_of(path: Path | str, text: bytes) -> tuple[AtbHeader, int]:
    """What the header alone says, and how many bytes of data it announces."""
    if len(text) <= _SHORT_HEADER_BYTES:
        with contextlib.suppress(FormatError):  # raised again with the name of the file
            return _known_header(text)
    return _read_header(path, text)


@functools.lru_cache(maxsize=1024)
def _known_header(text: bytes) -> tuple[AtbHeader, int]:
    """Files of tensors of one type and shape begin with the same bytes."""
    return _read_header("", text)


def _read_header(path: Path | str, text: bytes) -> tuple[AtbHeader, int]:
    lines, end = _header_lines(path, text)
    fields = _Fields.parse(path, lines)
    desc = TensorDesc(fields.dtype(), fields.dims(), fields.integer("format"))
    declared = fields.data_bytes
    offset, length = fields.tensor_object()
    attributes = {
        name: value
        for name, value in fields.attributes.items()
        if name not in ("format", "dtype", "dims", "data")
    }
    alias = fields.attributes.get("data")
    if alias is not None and declared:
        raise FormatError(path, f"both holds data and refers to {alias!r} for it")
    return AtbHeader(desc, end + offset, length, MappingProxyType(attributes), alias), declared


def _header_lines(path: Path | str, head: bytes) -> tuple[list[bytes], int]:
    """The lines before ``$End`` and the position of the first byte after the header."""
    if not head:
        raise FormatError(path, "is empty", _DUMP_AGAIN)
    if not head.startswith(MAGIC[: len(head)]):
        raise FormatError(path, f"is not an ATB tensor file, it does not start with {MAGIC!r}")
    lines: list[bytes] = []
    position = 0
    while True:
        newline = head.find(b"\n", position)
        if newline < 0:
            break
        line = head[position:newline]
        position = newline + 1
        if line.startswith(b"$End="):
            return lines, position
        if len(lines) == MAX_HEADER_LINES:
            raise FormatError(path, f"header has more than {MAX_HEADER_LINES} lines")
        lines.append(line)
    if len(head) >= MAX_HEADER_BYTES:
        raise FormatError(path, f"header does not end within {MAX_HEADER_BYTES} bytes")
    raise FormatError(path, "header is cut off, it has no $End line", _DUMP_AGAIN)


def _trailing_reason(path: Path | str, data_end: int, surplus: int, head: bytes) -> str:
    if data_end < len(head):
        following = head[data_end : data_end + len(MAGIC)]
    else:
        with open_regular(path) as file:
            file.seek(data_end)
            following = file.read(len(MAGIC))
    if following == MAGIC:
        return "holds a second record behind the first; two runs were appended to one file"
    return f"has {surplus} bytes more than its header says"


def _check_length(path: Path | str, desc: TensorDesc, length: int) -> None:
    if length == 0 or desc.dtype.bits == 0:
        return
    expected = stored_byte_counts(desc.dtype, desc.elements)
    if length in expected:
        return
    if desc.format not in PLAIN_FORMATS and length > expected[0]:
        return  # private formats pad their last axes; dims may be the logical ones
    shape = ",".join(map(str, desc.shape))
    raise FormatError(
        path,
        f"{desc.dtype.label} of shape [{shape}] takes {expected[0]} bytes, "
        f"the header says {length}",
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None  # tools write "N/A" where a value is not defined


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,19}", text) else None


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a header, split but not yet interpreted."""

    path: Path | str
    attributes: dict[str, str]
    objects: dict[str, tuple[int, int]]
    data_bytes: int

    @classmethod
    def parse(cls, path: Path | str, lines: list[bytes]) -> _Fields:
        attributes: dict[str, str] = {}
        objects: dict[str, tuple[int, int]] = {}
        system: dict[str, str] = {}
        seen: set[str] = set()
        for number, raw in enumerate(lines, start=1):
            try:
                name, equals, value = raw.decode("utf-8").partition("=")
            except UnicodeDecodeError:
                raise FormatError(path, f"header line {number} is not text") from None
            if not equals or not name:
                raise FormatError(path, f"header line {number} is not name=value")
            if name in seen:
                raise FormatError(path, f"header gives {name!r} twice")
            seen.add(name)
            if not name.startswith("$"):
                attributes[name] = value
            elif not name.startswith("$Object.") or name in ("$Object.Count", "$Object.Length"):
                system[name] = value
            elif "$Object.Length" not in system:
                raise FormatError(path, f"header gives {name!r} before $Object.Length")
            else:
                objects[name.removeprefix("$Object.")] = _offset_and_length(path, name, value)
        if not re.fullmatch(r"1(\.[0-9]+)?", system["$Version"]):
            raise FormatError(path, f"has header version {system['$Version']!r}, this reads 1.0")
        data_bytes = _integer(path, "$Object.Length", system.get("$Object.Length"))
        count = _integer(path, "$Object.Count", system.get("$Object.Count"))
        _check_objects(path, objects, count, data_bytes)
        return cls(path, attributes, objects, data_bytes)

    def integer(self, name: str) -> int:
        return _integer(self.path, name, self.attributes.get(name))

    def dtype(self) -> DType:
        code = self.integer("dtype")
        try:
            return DType.from_code(code)
        except ValueError as error:
            raise FormatError(self.path, f"has an {error}") from None

    def dims(self) -> tuple[int, ...]:
        text = self.attributes.get("dims")
        if text is None:
            raise FormatError(self.path, "header has no 'dims' line")
        if not text:
            return ()
        fields = text.split(",")
        if len(fields) > MAX_RANK:
            raise FormatError(self.path, f"header gives {len(fields)} dims, at most {MAX_RANK} fit")
        dims = tuple(_integer(self.path, "dims", field) for field in fields)
        elements = 1
        for dim in dims:
            if dim < 0:
                raise FormatError(self.path, f"header gives the negative dim {dim}")
            elements *= dim
        if max(elements, *dims) * 16 > _MAX_BYTES:  # 16 bytes: the widest element type
            raise FormatError(self.path, f"header gives dims {text} that no file can hold")
        return dims

    def tensor_object(self) -> tuple[int, int]:
        """Offset from the end of the header, and length, of the object called ``data``."""
        if not self.objects:
            return 0, self.data_bytes
        if "data" in self.objects:
            return self.objects["data"]
        known = ", ".join(sorted(self.objects))
        raise FormatError(self.path, f"holds no object called 'data', only {known}")


def _integer(path: Path | str, name: str, text: str | None) -> int:
    if text is None:
        raise FormatError(path, f"header has no {name!r} line")
    if not _INTEGER.fullmatch(text):
        raise FormatError(path, f"header gives {name!r} the value {text[:40]!r}, not a number")
    return int(text)


def _offset_and_length(path: Path | str, name: str, value: str) -> tuple[int, int]:
    offset_text, comma, length_text = value.partition(",")
    if not comma:
        raise FormatError(path, f"header gives {name!r} no offset and length")
    offset, length = _integer(path, name, offset_text), _integer(path, name, length_text)
    if offset < 0 or length < 0:
        raise FormatError(path, f"header gives {name!r} a negative offset or length")
    return offset, length


def _check_objects(
    path: Path | str, objects: Mapping[str, tuple[int, int]], count: int, data_bytes: int
) -> None:
    if data_bytes < 0 or data_bytes > _MAX_BYTES or count < 0:
        raise FormatError(path, f"header gives {count} objects of {data_bytes} bytes in total")
    if not objects:
        if data_bytes and not count:
            raise FormatError(path, f"header announces no object for {data_bytes} bytes of data")
        return  # without a place the data is all there is
    if count != len(objects):
        raise FormatError(path, f"header announces {count} objects and places {len(objects)}")
    for name, (offset, length) in objects.items():
        if offset + length > data_bytes:
            raise FormatError(
                path,
                f"object {name!r} ends at byte {offset + length} of {data_bytes} bytes of data",
            )
    total = sum(length for _, length in objects.values())
    if total != data_bytes:
        raise FormatError(path, f"the objects take {total} bytes, the header says {data_bytes}")
