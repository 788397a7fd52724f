"""The text of ptdbg's ``.pkl`` files: one JSON list for each line. They are never unpickled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ait_llm.core import whole_number
from ait_llm.dumps.api_json import UnfinishedError
from ait_llm.dumps.model import Role
from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular

SUFFIX = ".pkl"
OVERFLOW_MARK = 101  # in place of the step of calls that overflowed
_MAX_LINE = 64 << 20  # a stack line is a few kilobytes long
_ITEM = re.compile(r"(.+_(?:forward|backward))_(input|output|stack_info)((?:\.[^.]+)*)", re.DOTALL)
_CALL = re.compile(r"([^_]+)_(.+)_([0-9]{1,18})_(forward|backward)", re.DOTALL)
_CLASS = re.compile(r"<class '([^']*)'>")


@dataclass(frozen=True, slots=True)
class PtdbgLine:
    """One line.

    Attributes:
        call: name of the call, ``Tensor_permute_1_forward``.
        part: ``input``, ``output`` or ``stack_info``.
        keys: place within the arguments or results.
        fields: the whole list.
        offset, length: of the line in the file, in bytes.
    """

    call: str
    part: Literal["input", "output", "stack_info"]
    keys: tuple[int | str, ...]
    fields: list[Any]
    offset: int
    length: int

    @property
    def role(self) -> Role:
        """Whether it goes into the call or comes out of it."""
        return "in" if self.part == "input" else "out"

    @property
    def is_overflow(self) -> bool:
        """True for calls that were written because they overflowed."""
        return len(self.fields) > 1 and self.fields[1] == OVERFLOW_MARK

    @property
    def stack(self) -> tuple[str, ...]:
        """Frames in the form of newer captures, innermost first; empty for other lines."""
        if self.part != "stack_info" or len(self.fields) < 2:
            return ()
        frames = self.fields[-1] if isinstance(self.fields[-1], list) else []
        return tuple(_frame(frame) for frame in frames)

    def recorded(self, data_name: str) -> Mapping[str, Any]:
        """What the line says, with the keys of newer captures.

        Args:
            data_name: of the file that would hold the values.
        """
        _, _, slots, dtype, shape, summary = (*self.fields, None, None, None, None, None)[:6]
        values = summary if isinstance(summary, list) else []
        names = ("Max", "Min", "Mean", "Norm")
        statistics = dict(zip(names, values, strict=False))
        plain = _CLASS.fullmatch(dtype) if isinstance(dtype, str) else None
        if plain is not None:
            return {"type": plain[1], "value": values[0] if values else None}
        found = {"type": "torch.Tensor", "dtype": dtype, "shape": shape, **statistics}
        if isinstance(slots, list) and slots and isinstance(slots[0], str):
            found["md5"] = slots[0]
        return {**found, "data_name": data_name}


@dataclass(frozen=True, slots=True)
class PtdbgName:
    """A call's name in its parts: prefix ``Tensor``, api ``permute``, number, direction."""

    prefix: str
    api: str
    call: int
    direction: str


def parse_call(name: str) -> PtdbgName:
    """Take the name of a call apart; one of another form is an api without number."""
    match = _CALL.fullmatch(name)
    if match is None:
        return PtdbgName("", name, 0, "")
    return PtdbgName(match[1], match[2], int(match[3]), match[4])


def is_text(path: Path) -> bool:
    """True if the file begins like the lines of ptdbg.

    Raises:
        FormatError: the file cannot be read.
    """
    with open_regular(path) as file:
        return file.read(2) in (b'["', b"")


def read_lines(path: Path) -> Iterator[PtdbgLine]:
    """Every line of a file.

    Raises:
        FormatError: a real pickle, or a line that is not a list of these; its number is named.
        UnfinishedError: the last line breaks off, after all others.
    """
    offset = 0
    with open_regular(path) as file:
        if file.peek(1)[:1] == b"\x80":  # type: ignore[attr-defined]  # of the buffered reader
            raise FormatError(
                path,
                "is a pickle, which is not loaded because it can run code",
                "The .pkl files of ptdbg are text; capture again, or compare the .npy files",
            )
        number = 0
        while raw := file.readline(_MAX_LINE):
            number += 1
            if len(raw) == _MAX_LINE:
                raise FormatError(path, f"line {number} is longer than {_MAX_LINE >> 20} MiB")
            if raw.strip():
                yield _parse(path, number, raw, offset)
            offset += len(raw)


def parse_line(path: Path, raw: bytes) -> PtdbgLine:
    """One line that was found before.

    Raises:
        FormatError: the file has changed since.
    """
    try:
        return _parse(path, 0, raw, 0)
    except FormatError:
        raise FormatError(path, "has changed since it was opened") from None


def _parse(path: Path, number: int, raw: bytes, offset: int) -> PtdbgLine:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            raise UnfinishedError(path, f"breaks off in line {number}") from None
        advice = "The process may have been killed while writing"
        if "Extra data" in str(error):
            advice = (
                "Several processes may have written to one file; call set_dump_path and "
                "register_hook in each of them, with its rank"
            )
        raise FormatError(path, f"line {number} is not one JSON list: {error}", advice) from None
    name = fields[0] if isinstance(fields, list) and fields else None
    match = _ITEM.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise FormatError(path, f"line {number} does not begin with the name of a call's tensor")
    keys = tuple(
        key if (place := whole_number(key)) is None else place for key in match[3].split(".")[1:]
    )
    part = cast("Literal['input', 'output', 'stack_info']", match[2])
    return PtdbgLine(match[1], part, keys, fields, offset, len(raw))


def _frame(frame: Any) -> str:
    """``File {path}, line {n}, in {function}, \\n {code}``, as newer captures write it."""
    if not isinstance(frame, list) or len(frame) < 3:
        return str(frame)
    code = f", \n {frame[3]}" if len(frame) > 3 else ""
    return f"File {frame[0]}, line {frame[1]}, in {frame[2]}{code}"
