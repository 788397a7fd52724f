"""Files of arrays in a dump of nodes; free of torch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def write_array(path: str, array: Array, *, hollow: bool = False) -> int:
    """Make an ``.npy`` file, and return the bytes of its data.

    Args:
        path: a file that is not there yet.
        array: what it holds.
        hollow: leave the data out; the file is as long, and takes no room on the disk.

    Raises:
        OSError: the file cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o640), "wb") as file:
        if hollow:
            header = np.lib.format.header_data_from_array_1_0(array)
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + array.nbytes)
        else:
            np.lib.format.write_array(file, array, allow_pickle=False)
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
