"""The large JSON files of API dumps, one member at a time.

A capture may leave gigabytes of JSON in one object, so it is never held as a whole: a window slides
over the text and the decoder of the standard library takes one value after another out of it. It
accepts the bare tokens ``NaN``, ``Infinity`` and ``-Infinity`` that captures write.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular

_CHUNK = 1 << 20
# One value of the object, such as the record of a call with very many tensors.
_MAX_VALUE = 256 << 20
# The decoder stops this close to the end of the text when the text ends within a token.
_TOKEN = 64
# What may be cut in two at the end of a file: words, and numbers behind these characters.
_TOKENS = ("true", "false", "null", "NaN", "-Infinity", "Infinity")
_ENDS = (".", "e", "E", "e+", "e-", "E+", "E-")
_LONGEST_END = 3  # characters by which a number that is cut may go on behind the last digit
_BLANKS = " \t\r\n"
_BLANK = re.compile(f"[{_BLANKS}]*")
# A key without escapes, and one that follows after a value.
_KEY = re.compile(rf'"([^"\\\x00-\x1f]*)"[{_BLANKS}]*:[{_BLANKS}]*')
_NEXT_KEY = re.compile(f"[{_BLANKS}]*,[{_BLANKS}]*{_KEY.pattern}")


class UnfinishedError(FormatError):
    """The file ends within its JSON, as those of a process that was killed while writing."""


class Member(NamedTuple):
    """One member of an object.

    Attributes:
        parent: key of the object that holds it, "" for the outermost.
        key: its own key.
        value: decoded.
        offset, length: place of the value in the file, in bytes.
    """

    parent: str
    key: str
    value: Any
    offset: int
    length: int


def read_members(path: Path | str, opened: Collection[str] = ()) -> Iterator[Member]:
    """Members of the object that a file holds, in the order of the file.

    Args:
        path: the file.
        opened: keys of the outermost object whose values are objects that are walked too, instead
            of being decoded as a whole.

    Raises:
        FormatError: the file cannot be read or is not a JSON object; line and column are named.
        UnfinishedError: the file ends within the object.
    """
    with open_regular(path) as file:
        window = _Window(path, file)
        window.expect("{", "the file is not a JSON object")
        if opened:
            for key in window.member_keys():
                if key in opened and window.peek() == "{":
                    window.expect("{", "")
                    yield from window.members(key)
                else:
                    yield Member("", key, *window.value())
        else:
            yield from window.members("")
        window.end()


def read_value(path: Path | str, offset: int, length: int) -> Any:
    """Decode again what :func:`read_members` found at a place.

    Raises:
        FormatError: the file has changed since.
    """
    with open_regular(path) as file:
        text = os.pread(file.fileno(), length, offset)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(path, "has changed since it was opened") from None


class _Window:
    """A piece of a file's text that slides to its end."""

    def __init__(self, path: Path | str, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._text = ""
        self._at = 0
        self._line, self._column = 1, 1  # of the first character of the text
        self._bytes = 0  # before `_counted` in the file
        self._counted = 0
        self._is_ended = False
        self._decode_bytes = codecs.getincrementaldecoder("utf-8")().decode
        self._decode = json.JSONDecoder().raw_decode

    def members(self, parent: str) -> Iterator[Member]:
        """Members of the object that begins here, decoded."""
        for key in self.member_keys():
            yield Member(parent, key, *self.value())
            yield from self._in_sight(parent)

    def _in_sight(self, parent: str) -> Iterator[Member]:
        """The following members that lie in the window as a whole; most do, and cost less."""
        text = self._text
        decode = self._decode
        is_ascii = text.isascii()
        first = self._bytes - self._counted  # offset of the text if all characters are one byte
        while (key := _NEXT_KEY.match(text, self._at)) is not None:
            start = key.end()
            try:
                value, end = decode(text, start)
            except (ValueError, RecursionError):
                return  # it is cut, or `value` says what is wrong
            if text[end - 1] not in '}]"' and len(text) - end < _LONGEST_END:
                return
            if is_ascii:
                offset, length = first + start, end - start
            else:
                self._count(start)
                offset = self._bytes
                self._count(end)
                length = self._bytes - offset
            self._at = end
            yield Member(parent, key[1], value, offset, length)

    def member_keys(self) -> Iterator[str]:
        """Keys of the object that begins here; the caller takes each value."""
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                raise self._malformed("a key in double quotes is expected")
            key, _, _ = self.value()
            self.expect(":", "':' is expected after a key")
            yield key
            if self.peek() == "}":
                self._at += 1
                return
            self.expect(",", "',' or '}' is expected after a value")

    def peek(self) -> str:
        """The next character that is not blank."""
        character = self._text[self._at : self._at + 1]
        if character and character not in _BLANKS:  # the common case, without the pattern
            return character
        while True:
            match = _BLANK.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            self._read_on()

    def expect(self, character: str, otherwise: str) -> None:
        """Step over one character."""
        if self.peek() != character:
            raise self._malformed(otherwise)
        self._at += 1

    def value(self) -> tuple[Any, int, int]:
        """Decode the next value; its place in the file in bytes."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    raise self._malformed(error.msg, error.pos) from None
                self._read_on()
            except RecursionError:
                raise self._malformed("values are nested too deeply") from None
            except ValueError as error:  # a number with more digits than Python converts
                raise self._malformed(str(error)) from None
            else:
                # a number may go on behind the end of the text: "1.", "1e-"
                rest = self._text[end : end + _LONGEST_END]
                if self._text[end - 1] in '}]"' or len(rest) == _LONGEST_END:
                    break
                if self._is_ended and rest not in _ENDS:
                    break
                self._read_on()
        self._count(self._at)
        offset = self._bytes
        self._count(end)
        self._at = end
        return value, offset, self._bytes - offset

    def end(self) -> None:
        """Nothing but blanks may follow."""
        try:
            self.peek()
        except UnfinishedError:
            return
        raise self._malformed("more text follows after the object")

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        """True if the text behind the window could make the value whole."""
        if error.msg.startswith("Unterminated string"):
            return True
        rest = self._text[error.pos :].strip()
        if not self._is_ended:
            return len(rest) <= _TOKEN
        escape = error.msg.startswith("Invalid \\") and len(rest) < 8
        return escape or any(token.startswith(rest) for token in _TOKENS)

    def _count(self, end: int) -> None:
        part = end - self._counted
        if not self._text.isascii():
            part = len(self._text[self._counted : end].encode())
        self._bytes += part
        self._counted = end

    def _read_on(self) -> None:
        """Add text to the window and let go of what was read."""
        left = len(self._text) - self._at
        if left > _MAX_VALUE:
            raise self._malformed(f"one value is longer than {_MAX_VALUE >> 20} MiB")
        if self._is_ended:
            line, column = self._place(len(self._text))
            raise UnfinishedError(
                self._path,
                f"breaks off at line {line}, column {column}",
                "The run may have been killed while writing; capture again",
            )
        # twice as much each time, so that a long value is not decoded over and over
        raw = self._file.read(max(_CHUNK, left))
        try:
            more = self._decode_bytes(raw, not raw)
        except UnicodeDecodeError as bad:
            line, _ = self._place(len(self._text))
            raise FormatError(
                self._path, f"is not UTF-8 text behind line {line}: {bad.reason}"
            ) from None
        self._is_ended = not raw
        self._count(self._at)
        self._line, self._column = self._place(self._at)
        self._text = self._text[self._at :] + more
        self._at = self._counted = 0

    def _place(self, at: int) -> tuple[int, int]:
        lines = self._text.count("\n", 0, at)
        if not lines:
            return self._line, self._column + at
        return self._line + lines, at - self._text.rindex("\n", 0, at)

    def _malformed(self, reason: str, at: int | None = None) -> FormatError:
        line, column = self._place(self._at if at is None else at)
        return FormatError(self._path, f"is malformed at line {line}, column {column}: {reason}")
