"""The files with the data of tensors: ``dump_tensor_data/{item}.pt``.

By default a file is complete when the call it belongs to returns, so nothing is lost with the
process. Asynchronous capture copies the tensor and leaves the writing to one thread, with a bound
on what may wait. A tensor that is passed on unchanged is written once and linked afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ait_llm.core.file_orders import OwnFile
from ait_llm.core.kernels import crc32, native_kernels
from ait_llm.dump.folders import make_folder
from ait_llm.dump.pytorch.snapshot import BufferPool, snapshot
from ait_llm.dump.pytorch.tensor_jobs import Outcome, WriteJob
from ait_llm.dump.pytorch.writer import BackgroundWriter
from ait_llm.formats.pth_writer import MAX_PLAIN_BYTES, pth_template, write_pth, write_pth_at
from ait_llm.formats.torch_bridge import bytes_in_order

FOLDER = "dump_tensor_data"
# Below this a second file costs less than to find out that the tensor is unchanged.
_WORTH_LINKING = 1 << 14


class _Written(NamedTuple):
    storage: StorageWeakRef
    checksum: int
    path: str


class TensorFiles:
    """Writes the tensors of one capture folder.

    Args:
        folder: the rank's folder.
        writer: for asynchronous capture; None to write at once.
    """

    def __init__(self, folder: Path, writer: BackgroundWriter | None = None) -> None:
        self.folder = folder / FOLDER
        self._folder = str(self.folder)
        self._writer = writer
        self._pool = BufferPool()
        self._written: dict[tuple[int, torch.dtype, torch.Size], _Written] = {}
        self._made = False

    def save(self, tensor: Tensor, stem: str, outcome: Outcome) -> str | None:
        """Write a tensor and return the name of its file; None if it has no data to write.

        Args:
            tensor: dense or not, on any device; it is not changed.
            stem: of the file.
            outcome: told of the file when it is written later, or could not be.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: torch cannot copy the tensor.
        """
        name = f"{stem}.pt"
        self._make_folder()
        path = f"{self._folder}/{name}"
        with torch.no_grad():
            tensor = tensor.detach()
            if tensor.layout is not torch.strided or tensor.is_quantized:
                _torch_save(tensor.cpu(), path)
            elif self._writer is not None:
                self._later(self._writer, tensor, path, outcome)
            else:
                self._now(tensor, path)
        return name

    def save_array(
        self,
        array: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
        stem: str,
        outcome: Outcome,
    ) -> str:
        """Write a NumPy array, as a tensor where torch has its type, else as ``.npy``."""
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(array))
        except TypeError:
            self._make_folder()
            name = f"{stem}.npy"
            path = self.folder / name
            with _opened(str(path)) as file:
                np.save(file, array, allow_pickle=False)
            return name
        return self.save(tensor, stem, outcome) or f"{stem}.pt"

    def _make_folder(self) -> None:
        if not self._made:
            make_folder(self.folder)
            self._made = True

    def _now(self, tensor: Tensor, path: str) -> None:
        live = tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()
        if not live or tensor.is_conj():
            tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        size = tensor.nbytes
        if size > MAX_PLAIN_BYTES:
            _torch_save(tensor, path)
            return
        if not live or size < _WORTH_LINKING:
            write_plain(tensor, path)
            return
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape)
        checksum = crc32(bytes_of(tensor))
        known = self._written.get(key)
        if (
            known is not None
            and known.storage.cdata == storage.cdata
            and not known.storage.expired()  # type: ignore[no-untyped-call]  # torch
            and known.checksum == checksum
            and _link(known.path, path)
        ):
            return
        write_plain(tensor, path)
        self._written[key] = _Written(storage, checksum, path)

    def _later(self, writer: BackgroundWriter, tensor: Tensor, path: str, outcome: Outcome) -> None:
        copy = snapshot(tensor, self._pool)
        if copy.tensor is None:
            raise RuntimeError(copy.reason)
        writer.put(
            WriteJob(
                path,
                copy.tensor,
                outcome,
                ready=copy.ready,
                release=copy.release,
                size=copy.tensor.nbytes,
            )
        )


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous host tensor."""
    if not tensor.numel():
        return memoryview(b"")
    data: memoryview = bytes_in_order(tensor).numpy().data
    return data


def write_plain(tensor: Tensor, path: str) -> None:
    """Write a contiguous host tensor as ``torch.save`` would, only faster."""
    template = pth_template(tensor.dtype, tensor.shape)
    kernels = native_kernels()
    if kernels is not None and tensor.numel():
        write_pth_at(kernels, path, template, tensor.data_ptr())
    else:
        write_pth(path, template, bytes_of(tensor))


def _torch_save(tensor: Tensor, path: str) -> None:
    with _opened(path) as file:
        torch.save(tensor, file)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """A file that has its name when it is complete."""
    kernels = native_kernels()
    if kernels is not None and kernels.write_files is not None:
        own = OwnFile(kernels, path)
        try:
            yield cast(IO[bytes], own)
            own.finish()
        except BaseException:
            own.discard()
            raise
        return
    temporary = f"{path}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o640), "wb") as file:
        yield file
    Path(temporary).replace(path)


def _link(source: str, path: str) -> bool:
    """Make ``path`` another name of ``source``; False where that cannot be."""
    try:
        Path(path).unlink(missing_ok=True)
        os.link(source, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EROFS, errno.EACCES):
            raise
        return False
    return True
