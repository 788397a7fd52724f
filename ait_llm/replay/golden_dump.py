"""The golden dump: an ATB dump that holds what golden operators computed.

Each value is stored once; the other tensors that hold it refer to that file (``data=``), and values
of the source dump are shared with it where the file system can (hard links).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ait_llm import __version__
from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.ledger import SCHEMA
from ait_llm.dumps.model import Operation, Phase, Tensor
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats import from_torch, write_tensor
from ait_llm.formats.opening import read_small
from ait_llm.formats.writing import new_file
from ait_llm.storage import staged

if TYPE_CHECKING:
    import torch


_FOLDER_MODE = 0o750
_FILE_MODE = 0o640
_FOLDER = "ait_dump"
_MAX_GRAPH_BYTES = 512 << 20


class GoldenDump:
    """Writes an ATB dump.

    Args:
        output: the output directory; the dump becomes ``ait_dump`` in it.

    Raises:
        UsageError: there is a dump already, or the folder cannot be made.

    Attributes:
        root: the dump.
        tensors: files written.
        bytes: of data written.
        linked: of data that is shared with the source.
    """

    def __init__(self, output: Path) -> None:
        self.root = output / _FOLDER
        self.tensors = self.bytes = self.linked = 0
        if self.root.exists():
            raise UsageError(f"{self.root} exists already; choose another folder with --output")
        self._make(self.root)

    def add_graph(self, level: str, pid: int, path: Path) -> None:
        """Copy a topology file of the source.

        Raises:
            FormatError: it cannot be read or written.
        """
        text = read_small(path, _MAX_GRAPH_BYTES)
        folder = self.root / level / str(pid)
        self._make(folder)
        with new_file(folder / path.name) as target:
            target.write(text)

    def process(self, device: int, pid: int, options: Mapping[str, Any]) -> ProcessWriter:
        """The part of one process."""
        return ProcessWriter(self, device, pid, options)

    def make_folder(self, path: Path) -> None:
        """Make a folder of the dump and those above it."""
        self._make(path)

    def _make(self, path: Path) -> None:
        try:
            missing = [path]
            while not missing[-1].parent.exists():
                missing.append(missing[-1].parent)
            for folder in reversed(missing):
                folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; choose a folder with --output") from None


class ProcessWriter:
    """Writes the tensors and the ledger of one process; a context manager that seals it.

    Without an orderly end there is no seal, as of a run that was killed.
    """

    def __init__(self, dump: GoldenDump, device: int, pid: int, options: Mapping[str, Any]) -> None:
        self._dump = dump
        self._name = f"{device}_{pid}"
        self._made: set[str] = set()
        self._counts = {"saved": 0, "failed": 0, "dropped": 0}
        self._totals = [0, 0]
        folder = dump.root / "ledger"
        dump.make_folder(folder)
        path = folder / f"{self._name}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._ledger: IO[str] = os.fdopen(os.open(path, flags, _FILE_MODE), "w", encoding="ascii")
        self._line(
            kind="header",
            schema=SCHEMA,
            device=str(device),
            producer="ait_replay",
            version=__version__,
            pid=pid,
            time=_now(),
            options=dict(options),
            environment={},
        )

    def __enter__(self) -> ProcessWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._line(
                kind="seal",
                time=_now(),
                end="exit",
                operations=sum(self._counts.values()),
                **self._counts,
                tensors=self._totals[0],
                bytes=self._totals[1],
            )
        self._ledger.close()

    def params(self, step: int, path: str, operation: Operation | None, own: Any) -> None:
        """Write ``op_param.json`` of an operator; those of the dump come first."""
        found = dict(operation.params) if operation is not None else {}
        found = found or dict(own)
        if found:
            with new_file(self._folder(step, path) / "op_param.json") as file:
                file.write(json.dumps(found).encode())

    def place(self, step: int, path: str, phase: Phase, name: str) -> Path:
        """The file of a tensor, in a folder that exists."""
        return self._folder(step, f"{path}/{phase}") / name

    def entry(
        self,
        step: int,
        path: str,
        phase: Phase,
        op: str,
        type_name: str,
        tensors: int,
        *,
        lost: int = 0,
        reason: str = "",
    ) -> None:
        """One line of the ledger."""
        state = "dropped" if lost else "saved"
        self._counts[state] += 1
        self._totals[0] += tensors
        more = {"lost": lost, "reason": reason} if lost else {}
        self._line(
            kind="op",
            op=op,
            type=type_name,
            path=f"{self._name}/{step}/{path}",
            phase=phase,
            step=step,
            state=state,
            tensors=tensors,
            bytes=0,
            **more,
        )

    def write(self, place: Path, value: torch.Tensor, like: Tensor | None = None) -> TensorDesc:
        """Write a value.

        Args:
            place: the file.
            value: its elements.
            like: the tensor of the source that it stands for, whose dims it gets.

        Returns:
            What the file says of it.

        Raises:
            FormatError: it cannot be written.
        """
        array, dtype = from_torch(value)
        desc = TensorDesc(dtype, tuple(value.shape))
        if like is not None and TensorDesc(like.dtype, like.shape).elements == desc.elements:
            desc = TensorDesc(dtype, like.shape, like.format)
            whole = _whole_type(like.dtype)
            if whole is not None and _whole_type(dtype) and dtype.bits == like.dtype.bits:
                desc = TensorDesc(like.dtype, like.shape, like.format)
                array = array.view(whole)  # bool, or without a sign
        write_tensor(place, array, desc)
        self._dump.tensors += 1
        self._dump.bytes += array.nbytes
        self._totals[0] += 1
        self._totals[1] += array.nbytes
        return desc

    def share(self, place: Path, tensor: Tensor) -> None:
        """Store a tensor of the source, sharing its file where that is possible.

        Raises:
            FormatError: it cannot be read or written.
        """
        self._dump.tensors += 1
        desc = TensorDesc(tensor.dtype, tensor.shape, tensor.format)
        if not tensor.has_data:
            write_tensor(place, None, desc)
            return
        size = desc.byte_count
        payload = tensor.payload()
        own = payload is not None and Path(payload.path) == tensor.path
        if own and staged(tensor.path) is None:  # a copy of this process does not last
            try:
                place.hardlink_to(tensor.path)
            except OSError:
                pass  # another file system, or one without links
            else:
                self._dump.linked += size
                return
        write_tensor(place, tensor.numpy(), desc)
        self._dump.bytes += size
        self._totals[1] += size

    def refer(self, place: Path, home: Path, stored: TensorDesc, desc: TensorDesc) -> None:
        """Store a tensor that has the values of another file: a link, or a reference to it.

        Args:
            place: the file.
            home: the file with the values.
            stored: what that file says of them.
            desc: what this one is to say.

        Raises:
            FormatError: it cannot be written.
        """
        self._dump.tensors += 1
        if desc == stored:
            with suppress(OSError):  # a file system without links
                place.hardlink_to(home)
                return
        write_tensor(place, None, desc, {"data": os.path.relpath(home, place.parent)})

    def _folder(self, step: int, path: str) -> Path:
        text = f"{step}/{path}"
        folder = self._dump.root / "tensors" / self._name / text
        if text not in self._made:
            self._dump.make_folder(folder)
            self._made.add(text)
        return folder

    def _line(self, **fields: Any) -> None:
        try:
            self._ledger.write(json.dumps(fields, separators=(",", ":")) + "\n")
        except OSError as error:
            name = getattr(self._ledger, "name", self._dump.root)
            raise FormatError(name, f"cannot be written: {error.strerror}") from None


def _whole_type(dtype: DType) -> np.dtype[Any] | None:
    """The NumPy type of whole numbers and truth values; None for others."""
    found = None if dtype.numpy_type is None else np.dtype(dtype.numpy_type)
    return found if found is not None and found.kind in "biu" else None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
