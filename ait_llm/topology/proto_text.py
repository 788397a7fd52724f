"""Reads protobuf text format piece by piece: a file of any size in bounded memory.

Every layout is accepted: one field per line, everything on one line, comments between fields, ``<``
and ``>`` for braces, adjacent strings, lists in brackets. Grammar: "Text Format Language
Specification" of Protocol Buffers; extension names in brackets are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ait_llm.errors import FormatError

CHUNK_BYTES = 1 << 18
MAX_TEXT_BYTES = 1 << 20  # a longer string is a payload: it is passed over
MAX_MESSAGE_BYTES = 16 << 20  # of one outermost message, payloads not counted
MAX_DEPTH = 100  # as in protobuf's own parser

_STRING = r'(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"|\'[^\'\\\n]*(?:\\.[^\'\\\n]*)*\')'
_FIELD = re.compile(
    rf"""[\s,;]*(?:
        ([A-Za-z_]\w*)\s*(?:
            :\s*({_STRING}(?:\s*{_STRING})*(?!\s*["'])|[^\s,;:{{}}<>\[\]"'\#]+)
          | :\s*(\[(?:[^\[\]"']|{_STRING})*\])
          | :?\s*([{{<])
        )
      | ([}}>])
      | (\#[^\n]*)
    )""",
    re.VERBOSE | re.ASCII,
)
_END, _SCALAR, _LIST, _OPEN, _CLOSE = 0, 2, 3, 4, 5  # groups of _FIELD; nothing of it at the end
_LONG_STRING = re.compile(rf"[\s,;]*([A-Za-z_]\w*)\s*:\s*(?:{_STRING}\s*)*([\"'])", re.ASCII)
_REST_OF_STRING = {quote: re.compile(rf"[^{quote}\\\n]*(?:\\.[^{quote}\\\n]*)*") for quote in "\"'"}
_IN_LIST = re.compile(rf"{_STRING}|[^\s,\[\]\"']+")
_QUOTED = re.compile(_STRING)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_BLANKS = re.compile(r"[\s,;]*", re.ASCII)
_CUT = "The run may have been killed while writing; dump the graph again"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A string that was too long to keep; ``length`` counts its characters as written."""

    length: int


Value: TypeAlias = "str | PassedOver | Message"  # a scalar is kept as written, with its quotes
Message: TypeAlias = dict[str, list[Value]]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the outermost level.

    Attributes:
        scope: 0, or the number of the opened message it lies in, counted from 1.
        name: its name.
        value: its value.
        line: line on which it ends, counted from 1.
    """

    scope: int
    name: str
    value: Value
    line: int


def read_fields(
    read: Callable[[int], bytes], path: Path, opened: frozenset[str] = frozenset()
) -> Iterator[Field]:
    """The fields of the outermost message, one after the other.

    Args:
        read: returns up to that many bytes of the text, none at its end; UTF-8 or any other
            superset of ASCII.
        path: the file's name, for messages.
        opened: names of outermost messages whose own fields are wanted one after the other too.

    Raises:
        FormatError: the text is malformed, cut, nested too deeply, or one message is too large;
            the reason names the line.
    """
    return _Reader(read, path, opened).fields()


def parse_message(text: str, path: Path) -> Message:
    """A message that a string field holds as text.

    Raises:
        FormatError: as :func:`read_fields`; the line is that of the text.
    """
    rest = iter((text.encode(),))
    message: Message = {}
    for field in read_fields(lambda _: next(rest, b""), path):
        message.setdefault(field.name, []).append(field.value)
    return message


def text_of(value: Value | None) -> str:
    """What a scalar stands for: a string without its quotes and escapes, a name or number as is.

    A message, a payload and None give an empty text. Bytes that are no UTF-8 become ``\\xhh``.
    """
    if not isinstance(value, str):
        return ""
    if value[0] not in "\"'":
        return value
    if "\\" not in value and value.count(value[0]) == 2:
        inner = value[1:-1]
        return inner if inner.isascii() else _decode(inner.encode("latin-1"))
    parts = (part[1:-1].encode("latin-1") for part in _QUOTED.findall(value))
    return _decode(_ESCAPE.sub(_unescape, b"".join(parts)))


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code[:1].isdigit() and code[:1] < b"8":
        return bytes((int(code, 8) & 255,))
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    if code[:1] in b"uU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF)).encode("utf-8", "replace")
    return _ESCAPED.get(code, code)


class _Reader:
    """A window that moves over the text; its bytes are held as characters 0 to 255."""

    def __init__(self, read: Callable[[int], bytes], path: Path, opened: frozenset[str]) -> None:
        self.read = read
        self.path = path
        self.opened = opened
        self.text = ""
        self.at = 0  # where the next field starts
        self.sure = 0  # a field that ends before this position is complete
        self.ended = False
        self.line = 1  # number of the line that holds ``counted``
        self.counted = 0
        self.size = 0  # characters that left the window since the current message began

    def fields(self) -> Iterator[Field]:
        scopes = 0  # opened messages so far
        scope = 0  # the one that the next field lies in
        while True:
            self.size = -self.at
            kind, name, value = self._next()
            if kind == _OPEN and not scope and name in self.opened:
                scopes += 1
                scope = scopes
            elif kind == _OPEN:
                yield Field(scope, name, self._message(name), self._line())
            elif kind == _SCALAR:
                yield Field(scope, name, value, self._line())
            elif kind == _LIST:
                for item in _items(value):
                    yield Field(scope, name, item, self._line())
            elif kind == _CLOSE:
                if not scope:
                    raise self._error(f"{value!r} closes a message that was not opened")
                scope = 0
            elif kind == _END:
                break
        if scope:
            raise self._error("the file ends within a message", _CUT)

    def _message(self, name: str) -> Message:
        """The fields of a message whose opening brace was just read."""
        message: Message = {}
        outer: list[Message] = []
        self.size = -self.at
        match = _FIELD.match
        while True:
            found = match(self.text, self.at)
            if found is None or found.end() >= self.sure:
                kind, key, value = self._next()
            else:
                self.at = found.end()
                kind = found.lastindex or _END
                key, value = found.group(1, kind)
            if kind == _SCALAR:
                if key in message:
                    message[key].append(value)
                else:
                    message[key] = [value]
            elif kind == _OPEN:
                inner: Message = {}
                message.setdefault(key, []).append(inner)
                outer.append(message)
                if len(outer) >= MAX_DEPTH:
                    raise self._error(f"messages are nested deeper than {MAX_DEPTH}")
                message = inner
            elif kind == _CLOSE:
                if not outer:
                    return message
                message = outer.pop()
            elif kind == _LIST:
                message.setdefault(key, []).extend(_items(value))
            elif kind == _END:
                raise self._error(f"the file ends within the message {name!r}", _CUT)

    def _next(self) -> tuple[int, str, Value]:
        """Kind, name and value of the next field, for which more text may have to be read."""
        while True:
            found = _FIELD.match(self.text, self.at)
            if found is not None and found.end() < self.sure:
                self.at = found.end()
                kind = found.lastindex or _END
                return kind, found[1] or "", found[kind]
            self._skip_blanks()
            if self.ended:
                if self.at < len(self.text):
                    raise self._malformed()
                return _END, "", ""
            if len(self.text) - self.at > MAX_TEXT_BYTES:
                long = _LONG_STRING.match(self.text, self.at)
                if long is None:
                    raise self._malformed()
                self.at = long.end()
                return _SCALAR, long[1], self._pass_over(long[2])
            self._read_on()

    def _pass_over(self, quote: str) -> PassedOver:
        """Leave out a string, and those right after it; its opening quote was just read."""
        length = 0
        while True:
            found = _REST_OF_STRING[quote].match(self.text, self.at)
            end = found.end() if found else self.at
            length += end - self.at
            self.size -= end - self.at
            self.at = end
            if self.text[end : end + 1] == quote:
                self.at += 1
                self._skip_blanks()
                while self.at == len(self.text) and not self.ended:
                    self._read_on()
                    self._skip_blanks()
                quote = self.text[self.at : self.at + 1]
                if quote not in ("'", '"'):
                    return PassedOver(length)
                self.at += 1
            elif len(self.text) - end < 2 and not self.ended:  # at its end, or at a backslash
                self._read_on()
            else:
                raise self._malformed()

    def _skip_blanks(self) -> None:
        found = _BLANKS.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _read_on(self) -> None:
        """Move the window: it starts at the next field then, and has more text at its end."""
        self._line()
        self.size += self.at
        if self.size > MAX_MESSAGE_BYTES:
            raise self._error(f"one message has more than {MAX_MESSAGE_BYTES} bytes")
        data = self.read(CHUNK_BYTES)
        self.ended = not data
        self.text = self.text[self.at :] + data.decode("latin-1")
        self.at = self.counted = 0
        # A field that touches the last visible character may go on in what was not read yet.
        self.sure = len(self.text) + 1 if self.ended else len(self.text.rstrip(" \t\r\n\v\f,;"))

    def _line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def _malformed(self) -> FormatError:
        seen = self.text[self.at : self.at + 40].partition("\n")[0]
        advice = _CUT if self.ended and "\n" not in self.text[self.at :].rstrip("\n") else ""
        return self._error(f"{seen!r} is not protobuf text format", advice)

    def _error(self, reason: str, advice: str = "") -> FormatError:
        return FormatError(self.path, f"line {self._line()}: {reason}", advice)


def _items(value: Value) -> list[Value]:
    return list(_IN_LIST.findall(value)) if isinstance(value, str) else []
