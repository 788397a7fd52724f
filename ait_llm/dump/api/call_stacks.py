"""Where calls came from: ``stack.json``.

A stack is a list of code objects and of places in them while the program runs; lines and text are
made when the file is written. Calls with the same stack share it.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

_HERE = str(Path(__file__).parent) + os.sep
_ASKS, _ASKS_IN = "handle_torch_function", "torch/overrides.py"
_FAILED = ("The call stack retrieval failed.",)
_SECONDS = 0.5
# The file may lag by this share of its length, so that writing it costs no more than it grows.
_GROWTH = 1.25


class Stack(NamedTuple):
    """Frames, innermost first.

    Attributes:
        key: id of the code and index of the instruction of each frame. By identity, because to
            hash a code object means to hash all it holds; by instruction, because to know the line
            means to decode a table.
        codes: of the frames; while they are kept, no other code gets the id.
    """

    key: tuple[int, ...]
    codes: list[CodeType]


def call_stack(frame: FrameType | None) -> Stack:
    """A frame and those above it."""
    key: list[int] = []
    codes: list[CodeType] = []
    while frame is not None:
        code = frame.f_code
        key += id(code), frame.f_lasti
        codes.append(code)
        frame = frame.f_back
    return Stack(tuple(key), codes)


class CallStacks:
    """Names by call stack, and the file with them.

    Args:
        path: ``stack.json``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[tuple[int, ...], tuple[Stack, list[str]]] = {}
        self._lines: dict[tuple[int, int], str] = {}
        self._count = 0
        self._written = -1
        self._time = 0.0

    def add(self, name: str, stack: Stack) -> None:
        """Note where a call came from; the file follows at growing distances."""
        known = self._names.get(stack.key)
        if known is None:
            self._names[stack.key] = stack, [name]
        else:
            known[1].append(name)
        self._count += 1
        if self._count > self._written * _GROWTH:
            now = time.monotonic()
            if now - self._time > _SECONDS:
                self.write()

    def write(self) -> None:
        """Write the file anew; a reader sees the old one or the new one, whole.

        Raises:
            OSError: it cannot be written.
        """
        if self._written == self._count:
            return
        groups: dict[tuple[str, ...], list[str]] = {}
        for stack, names in self._names.values():
            lines = tuple(filter(None, (self._line(*frame) for frame in _frames(stack)))) or _FAILED
            groups.setdefault(lines, []).extend(names)
        document = {
            str(number): [names, lines] for number, (lines, names) in enumerate(groups.items())
        }
        temporary = self._path.with_name(f"{self._path.name}.part")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o640), "w", encoding="utf-8") as file:
            file.write(json.dumps(document))
        temporary.replace(self._path)
        self._written = self._count
        self._time = time.monotonic()

    def _line(self, code: CodeType, place: int) -> str:
        """The text of one frame; empty for our own, and where the source is not to be had."""
        text = self._lines.get((id(code), place))
        if text is None:
            text = ""
            if not code.co_filename.startswith(_HERE):
                number = _line_number(code, place)
                source = linecache.getline(code.co_filename, number).strip()
                if source:
                    text = f"File {code.co_filename}, line {number}, in {code.co_name}, \n {source}"
            self._lines[id(code), place] = text
        return text


def _frames(stack: Stack) -> Iterator[tuple[CodeType, int]]:
    """Code and place of each frame, without those that are there because somebody listens.

    A function that torch writes in Python asks first whether anybody overrides it, and is called a
    second time from there.
    """
    frames = zip(stack.codes, stack.key[1::2], strict=True)
    for code, place in frames:
        if code.co_name == _ASKS and code.co_filename.endswith(_ASKS_IN):
            next(frames, None)  # the call that asked
        else:
            yield code, place


def _line_number(code: CodeType, place: int) -> int:
    """The line of an instruction; 0 where there is none."""
    for begin, end, line in code.co_lines():
        if begin <= place < end:
            return line or 0
    return code.co_firstlineno
