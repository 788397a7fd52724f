"""The ledger of a PyTorch capture: what was saved, what was not, and whether the run finished.

The format is that of the probe (``docs/formats.md``): a header, one line for each captured call,
and a seal.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import platform
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ait_llm import __version__
from ait_llm.dump.folders import make_folder
from ait_llm.dump.held_file import HeldFile

ARGUMENTS_VARIABLE = "AIT_RECORD_ARGUMENTS"
"""``1``: ledgers also hold the command line of their program."""

_ENCODER = json.JSONEncoder(separators=(",", ":"))
_MAKE_ENCODER = getattr(json.encoder, "c_make_encoder", None)
_STATES = ("saved", "described", "empty", "failed", "dropped")


CallLine = tuple[str, int, int, str]
"""State, tensors and bytes of a captured call, and its line as text."""


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Ledger:
    """Appends to one ledger file; safe to use from several threads.

    What cannot be written, because the disk is full for one, is counted and told by the next line
    that can. A ledger whose folder was removed is started anew and says so.

    Args:
        path: the file; an earlier one is replaced.
        device: device text of the process, such as ``cpu`` or ``npu0``.
        options: settings of the capture, for the header.
        producer: kind of the capture, for the header.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(
        self, path: Path, device: str, options: Mapping[str, Any], *, producer: str = "torch"
    ) -> None:
        self.path = path
        self._states: Counter[str] = Counter()
        self._tensors = 0
        self._bytes = 0
        self._lost_lines = 0
        self._has_news = False
        self._lock = threading.Lock()
        self._header = _header(device, options, producer)
        self._file: HeldFile | None = _open(path)
        self._write(self._header)

    @property
    def losses(self) -> int:
        """Lines so far of calls that were not captured in full."""
        with self._lock:
            return self._states["failed"] + self._states["dropped"]

    def operations(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append the lines of captured calls, all at once."""
        with self._lock:
            for line in lines:
                self._states[line["state"]] += 1
                self._tensors += line.get("tensors", 0)
                self._bytes += line.get("bytes", 0)
        self._write(*({"kind": "op", **line} for line in lines))

    def calls(self, lines: Sequence[CallLine]) -> None:
        """The same with lines that are text already."""
        with self._lock:
            for state, tensors, size, _ in lines:
                self._states[state] += 1
                self._tensors += tensors
                self._bytes += size
        self._put([text.encode() for _, _, _, text in lines])

    def note(self, text: str, **facts: Any) -> None:
        """Append a remark that concerns the whole capture."""
        self._write({"kind": "note", "text": text, **facts})

    def told(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Append what is known beside the tensors.

        Args:
            kind: ``follow`` and ``beams`` are of tokens that were taken; ``request``, ``schedule``
                and ``sampled`` are what an engine tells of its passes.
            facts: the rest of the line.
        """
        self._write({"kind": kind, **facts})

    def not_written(self, path: str, reason: str) -> None:
        """Append that a file which belongs to no operation could not be written."""
        self._write({"kind": "file", "path": path, "reason": reason})

    def moved(self, before: str, after: str) -> None:
        """Append that a folder of this capture has another name now."""
        self._write({"kind": "moved", "from": before, "to": after})

    def was_removed(self) -> bool:
        """True if somebody deleted the file; it is then there again, with a line that says so."""
        with self._lock:
            if self._file is None or self._file.is_linked:
                return False
            try:
                fresh = _open(self.path)
            except OSError:
                return True
            self._file.close()
            self._file = fresh
        self._write(self._header)
        self._write({"kind": "removed"})
        return True

    def seal(self, end: str) -> None:
        """Append the last line and close the file; what comes later is not written."""
        self.pause(end)
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def rest(self, end: str) -> None:
        """The same as :meth:`pause`, if anything was written since the last."""
        if self._has_news:
            self.pause(end)

    def pause(self, end: str) -> None:
        """Append a seal that more may follow: everything up to here is in the files."""
        self.was_removed()
        self._write(
            {
                "kind": "seal",
                "time": _now(),
                "end": end,
                "operations": sum(self._states.values()),
                **{state: self._states[state] for state in _STATES},
                "tensors": self._tensors,
                "files": self._tensors,
                "bytes": self._bytes,
            }
        )
        self._has_news = False

    def _write(self, *lines: Mapping[str, Any]) -> None:
        self._put([_encoded(line) for line in lines])

    def _put(self, encoded: Sequence[bytes]) -> None:
        self._has_news = True
        with self._lock:
            if self._file is None:
                return
            if not self._lost_lines and _append(self._file, b"".join(encoded)):
                return
            for data in encoded:
                if self._lost_lines:
                    data = _encoded({"kind": "lost", "lines": self._lost_lines}) + data
                if _append(self._file, data):
                    self._lost_lines = 0
                else:
                    self._lost_lines += 1


def _header(device: str, options: Mapping[str, Any], producer: str) -> dict[str, Any]:
    return {
        "kind": "header",
        "schema": 1,
        "producer": producer,
        "version": __version__,
        "device": device,
        "pid": os.getpid(),
        "host": platform.node(),
        "time": _now(),
        "executable": sys.executable,
        **_program(),
        "options": dict(options),
        "environment": {
            "python": platform.python_version(),
            **_versions(),
            **_place(),
        },
    }


def _program() -> dict[str, Any]:
    """The program's own name, and a mark of its arguments, which may hold keys and passwords.

    16 bits tell two command lines apart, and are too few to find out a password by trying.
    """
    words = list(getattr(sys, "argv", [])) or [""]
    text = "\0".join(words).encode(errors="surrogatepass")
    found: dict[str, Any] = {
        "program": words[0][:1000],
        "arguments_mark": hashlib.sha256(text).hexdigest()[:4],
    }
    if os.environ.get(ARGUMENTS_VARIABLE) == "1":
        found["arguments"] = [word[:1000] for word in words[:100]]
    return found


def _versions() -> dict[str, str]:
    """Of the libraries that run the model; programs of ONNX Runtime need no torch."""
    found = {name: sys.modules.get(name) for name in ("torch", "onnxruntime")}
    return {name: str(module.__version__) for name, module in found.items() if module is not None}


def _place() -> dict[str, str]:
    """The rank of this process: as its launcher says, else as it told the others of its job."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    given = {name: os.environ[name] for name in names if name in os.environ}
    torch = sys.modules.get("torch")
    if given or torch is None or not torch.distributed.is_available():
        return given
    if not torch.distributed.is_initialized():
        return given
    ranks = torch.distributed.get_world_size()
    return {"RANK": str(torch.distributed.get_rank()), "WORLD_SIZE": str(ranks)}


def _open(path: Path) -> HeldFile:
    make_folder(path.parent)
    return HeldFile(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)


@functools.cache
def _encode() -> Callable[[Mapping[str, Any] | Sequence[Any]], str]:
    """What writes an object as JSON; the encoder's own method makes one of these each time."""
    if _MAKE_ENCODER is None:
        return _ENCODER.encode
    text = json.encoder.encode_basestring_ascii
    parts = _MAKE_ENCODER(None, _ENCODER.default, text, None, ":", ",", False, False, True)
    return lambda line: "".join(parts(line, 0))


def json_text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """A value as the ledger writes it."""
    return _encode()(value)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (_encode()(line) + "\n").encode()


def _append(file: HeldFile, data: bytes) -> bool:
    try:
        file.append(data)
    except OSError:
        return False
    return True
