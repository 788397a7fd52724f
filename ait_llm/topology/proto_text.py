"""Reads protobuf text format piece by piece: a file of any size in bounded memory.

Every layout is accepted: one field per line, everything on one line, comments between fields, ``<``
and ``>`` for braces, adjacent strings, lists in brackets. Grammar: "Text Format Language
Specification" of Protocol Buffers; extension names in brackets are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ait_llm.errors import FormatError

CHUNK_BYTES = 1 << 16
MAX_TEXT_BYTES = 1 << 17  # a longer string is a payload: it is passed over
MAX_MESSAGE_BYTES = 16 << 20  # of one outermost message, payloads not counted
MAX_DEPTH = 100  # as in protobuf's own parser
_MAX_BLOCK = 4096  # characters of a text that is worth remembering
_MAX_REMEMBERED = 4096  # texts of one kind

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


Message: TypeAlias = dict[str, list[Any]]  # scalars as written, PassedOver, messages, or decoded
Decoder: TypeAlias = Callable[[Message], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the outermost level.

    Attributes:
        scope: 0, or the number of the opened message it lies in, counted from 1.
        name: its name.
        value: a scalar as written, quotes included; a PassedOver; or a message: its fields by name,
            in the order of their first occurrence.
        line: line on which it ends, counted from 1.
    """

    scope: int
    name: str
    value: Any
    line: int


def read_fields(
    read: Callable[[int], bytes],
    path: Path,
    opened: frozenset[str] = frozenset(),
    decoders: Mapping[str, Mapping[str, Decoder]] | None = None,
) -> Iterator[Field]:
    """The fields of the outermost message, one after the other.

    Args:
        read: returns up to that many bytes of the text, none at its end; UTF-8 or any other
            superset of ASCII.
        path: the file's name, for messages.
        opened: names of outermost messages whose own fields are wanted one after the other too.
        decoders: by name of an outermost message, and by name of a message in it: what to make of
            that. Messages of equal text share what was made of the first of them. A decoder raises
            ValueError for what it cannot read.

    Raises:
        FormatError: the text is malformed, cut, nested too deeply, or one message is too large;
            the reason names the line.
    """
    return _Reader(read, path, opened, decoders or {}).fields()


def parse_message(text: str) -> Message:
    """A message that a string field holds as text.

    Raises:
        ValueError: the text is malformed; the reason names its line.
    """
    rest = iter((text.encode(),))
    message: Message = {}
    try:
        for field in read_fields(lambda _: next(rest, b""), Path()):
            message.setdefault(field.name, []).append(field.value)
    except FormatError as error:
        raise ValueError(error.reason) from None
    return message


def text_of(value: Any) -> str:  # any value of a message
    """What a scalar stands for: a string without its quotes and escapes, a name or number as is.

    A message, a payload and None give an empty text. Bytes that are no UTF-8 become ``\\xhh``.
    """
    if not isinstance(value, str):
        return ""
    quote = value[0]
    if quote not in "\"'":
        return value
    if "\\" not in value and value[-1] == quote and value.count(quote) == 2:
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

    def __init__(
        self,
        read: Callable[[int], bytes],
        path: Path,
        opened: frozenset[str],
        decoders: Mapping[str, Mapping[str, Decoder]],
    ) -> None:
        self.read = read
        self.path = path
        self.opened = opened
        self.decoders = decoders
        self.remembered: dict[Decoder, dict[str, Any]] = {}  # what was made of a text
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
                message = self._message(name, self.decoders.get(name, {}))
                yield Field(scope, name, message, self._line())
            elif kind == _SCALAR:
                yield Field(scope, name, value, self._line())
            elif kind == _LIST:
                for item in _IN_LIST.findall(value):
                    yield Field(scope, name, item, self._line())
            elif kind == _CLOSE:
                if not scope:
                    raise self._error(f"{value!r} closes a message that was not opened")
                scope = 0
            elif kind == _END:
                break
        if scope:
            raise self._error("the file ends within a message", _CUT)

    def _message(self, name: str, decoders: Mapping[str, Decoder], depth: int = 1) -> Message:
        """The fields of a message whose opening brace was just read."""
        if depth > MAX_DEPTH:
            raise self._error(f"messages are nested deeper than {MAX_DEPTH}")
        message: Message = {}
        match = _FIELD.match
        while True:
            found = match(self.text, self.at)
            if found is None or found.end() >= self.sure:
                found = None
                kind, key, value = self._next()
            else:
                self.at = found.end()
                kind = found.lastindex or _END
                key, value = found.group(1, kind)
            if kind == _CLOSE:
                return message
            if kind == _OPEN:
                if key in decoders:
                    value = self._decoded(key, decoders[key], found)
                else:
                    value = self._message(key, {}, depth + 1)
            elif key in decoders and kind in (_SCALAR, _LIST):
                raise self._error(f"{key!r} has a value where a message belongs")
            elif kind == _LIST:
                message.setdefault(key, []).extend(_IN_LIST.findall(value))
                continue
            elif kind == _END:
                raise self._error(f"the file ends within the message {name!r}", _CUT)
            elif kind != _SCALAR:  # a comment
                continue
            if key in message:
                message[key].append(value)
            else:
                message[key] = [value]

    def _decoded(self, name: str, decoder: Decoder, opening: re.Match[str] | None) -> Any:
        """What ``decoder`` makes of the message whose opening brace was just read.

        In a file with indented lines most messages repeat an earlier one letter by letter. The
        first line that may close this one marks a text; if it was a whole message once, it is one
        again, because only its own letters decide where a message ends.
        """
        remembered = self.remembered.setdefault(decoder, {})
        window, start = self.text, self.at
        end = -1
        if opening is not None:
            margin = window.rfind("\n", max(0, opening.start()), opening.start(1))
            if margin >= 0:
                closing = window[margin : opening.start(1)] + "}"
                end = window.find(closing, start, start + _MAX_BLOCK)
        if end >= 0:
            block = window[start:end]
            if block in remembered:
                self.at = end + len(closing)
                return remembered[block]
        message = self._message(name, {}, 2)
        try:
            value = decoder(message)
        except ValueError as error:
            raise self._error(f"the {name!r} that ends here: {error}") from None
        if end >= 0 and self.text is window and self.at == end + len(closing):
            if len(remembered) >= _MAX_REMEMBERED:
                remembered.clear()
            remembered[block] = value
        return value

    def _next(self) -> tuple[int, str, Any]:
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
