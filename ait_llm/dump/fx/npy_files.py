"""Files of arrays in a dump of nodes, and what the ledger says of them; free of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class NodeFiles:
    """What became of the values of one node.

    Attributes:
        tensors: files that were made.
        bytes: of data that was written.
        lost: files that could not be made.
        reason: why the first of them could not.
        missed: names and reasons of values of which there is no array.
        identities: which value each tensor is, by its name.
    """

    tensors: int = 0
    bytes: int = 0
    lost: int = 0
    reason: str = ""
    missed: list[dict[str, str]] = field(default_factory=list)
    identities: dict[str, Any] = field(default_factory=dict)

    def failed(self, error: BaseException) -> None:
        """Count a file that could not be made."""
        self.lost += 1
        self.reason = self.reason or getattr(error, "strerror", None) or str(error)

    def line(self, name: str, target: str, path: str, step: int) -> dict[str, Any]:
        """The line of the ledger.

        Args:
            name, target: of the node.
            path: how the names of its files begin, below the folder of all nodes.
            step: which execution of its graph.
        """
        line: dict[str, Any] = {
            "op": name,
            "type": target,
            "path": path,
            "step": step,
            "state": "failed" if self.lost else "saved" if self.tensors else "empty",
            "tensors": self.tensors,
            "bytes": self.bytes,
        }
        if self.lost:
            line |= {"lost": self.lost, "reason": self.reason}
        if self.missed:
            line["not_captured"] = self.missed
        if self.identities:
            line["identity"] = self.identities
        return line


def write_array(path: str, array: Array, *, hollow: bool = False) -> int:
    """Make an ``.npy`` file, and return the bytes of its data; none is left that is not whole.

    Args:
        path: a file that is not there yet.
        array: what it holds.
        hollow: leave the data out; the file is as long, and takes no room on the disk.

    Raises:
        OSError: the file cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o640)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if hollow:
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(file, header)
                file.truncate(file.tell() + array.nbytes)
            else:
                np.lib.format.write_array(file, array, allow_pickle=False)
    except BaseException:
        remove_file(path)
        raise
    return array.nbytes


def link_file(source: str, path: str) -> bool:
    """Give a file a second name; False where the file system has none or the file is gone."""
    try:
        os.link(source, path, follow_symlinks=False)
    except OSError:
        return False
    return True


def remove_file(path: str) -> None:
    """Remove a file that was not written to its end, if that is possible."""
    try:
        os.unlink(path)  # noqa: PTH108 - paths are text here, there are many
    except OSError:
        return
