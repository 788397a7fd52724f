"""Where calls came from: ``stack.json``.

A stack is a tuple of code objects and lines while the program runs; the text is made when the file
is written. Calls with the same stack share it.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import time
from pathlib import Path
from types import CodeType, FrameType

_HERE = str(Path(__file__).parent) + os.sep
_FAILED = ("The call stack retrieval failed.",)
_SECONDS = 0.5
# The file may lag by this share of its length, so that writing it costs no more than it grows.
_GROWTH = 1.25

Stack = tuple[tuple[CodeType, int], ...]
# The same by identity: to hash a code object means to hash all it holds. The stacks that are kept
# keep their code objects, so that no other one gets the id.
_Key = tuple[int, ...]


def call_stack(frame: FrameType | None) -> Stack:
    """A frame and those above it, innermost first, without those of this package."""
    found = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            found.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


class CallStacks:
    """Names by call stack, and the file with them.

    Args:
        path: ``stack.json``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[_Key, tuple[Stack, list[str]]] = {}
        self._lines: dict[tuple[int, int], str] = {}
        self._count = 0
        self._written = -1
        self._time = 0.0

    def add(self, name: str, stack: Stack) -> None:
        """Note where a call came from; the file follows at growing distances."""
        key = tuple([part for code, line in stack for part in (id(code), line)])
        known = self._names.get(key)
        if known is None:
            self._names[key] = stack, [name]
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
            lines = tuple(filter(None, (self._line(*frame) for frame in stack))) or _FAILED
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

    def _line(self, code: CodeType, number: int) -> str:
        """The text of one frame; empty where the source is not to be had."""
        text = self._lines.get((id(code), number))
        if text is None:
            source = linecache.getline(code.co_filename, number).strip()
            text = ""
            if source:
                text = f"File {code.co_filename}, line {number}, in {code.co_name}, \n {source}"
            self._lines[id(code), number] = text
        return text
