"""Tensors that wait for their files, and how these are written: many in one native call."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ait_llm.core.file_orders import FileOrder, OwnFile, write_files
from ait_llm.core.kernels import NativeKernels, native_kernels
from ait_llm.formats.pth_writer import MAX_PLAIN_BYTES, pth_order, pth_template, write_pth
from ait_llm.formats.torch_bridge import bytes_in_order

_MODE = 0o640


@dataclass(slots=True)
class Outcome:
    """What became of the tensors of one unit: filled in by the writer as it goes."""

    tensors: int = 0
    bytes: int = 0
    lost: int = 0
    errno: int = 0
    reason: str = ""

    def fail(self, error: Exception) -> None:
        """Record that one tensor was not written; the first reason is kept."""
        self.lost += 1
        if not self.reason:
            self.errno = getattr(error, "errno", 0) or 0
            self.reason = getattr(error, "strerror", None) or str(error)


@dataclass(slots=True)
class WriteJob:
    """One file to write.

    Attributes:
        path: the file.
        tensor: a CPU tensor that nobody changes any more.
        outcome: the unit it belongs to.
        ready: waits until an asynchronous device copy has arrived.
        plain: a dense contiguous tensor of ordinary type, for the fast writer.
        link_from: an earlier file with the same content, to link to instead of writing.
        release: called after writing, to give a buffer back.
    """

    path: str
    tensor: Tensor | None
    outcome: Outcome
    ready: Callable[[], None] | None = None
    plain: bool = True
    link_from: str | None = None
    release: Callable[[], None] | None = None
    size: int = field(default=0)

    @property
    def is_plain_file(self) -> bool:
        """True if native code can write it together with others."""
        return self.plain and self.link_from is None and self.tensor is not None


def write_jobs(jobs: Sequence[WriteJob], make_folder: Callable[[str], None]) -> None:
    """Write the files in their order and tell the outcomes; nothing is raised for a lost file.

    Args:
        jobs: one of any kind, or several that are each a plain file.
        make_folder: makes the folder of a file.
    """
    kernels = native_kernels()
    together: list[tuple[WriteJob, FileOrder]] = []
    for job in jobs:
        try:
            if job.ready is not None:
                job.ready()
            make_folder(os.path.dirname(job.path))  # noqa: PTH120 - a Path costs more
            order = _order(kernels, job)
            if order is not None:
                together.append((job, order))
                continue
            _write_alone(kernels, job)
            job.outcome.tensors += 1
        except Exception as error:  # noqa: BLE001 - it counts as lost, the others are written
            job.outcome.fail(error)
    try:
        if together and kernels is not None:
            _write_together(kernels, together)
    finally:
        for job in jobs:
            if job.release is not None:
                job.release()


def _order(kernels: NativeKernels | None, job: WriteJob) -> FileOrder | None:
    """What native code is told to write; None for what it cannot."""
    tensor = job.tensor
    if kernels is None or tensor is None or not job.is_plain_file:
        return None
    if tensor.nbytes > MAX_PLAIN_BYTES:
        return None
    return pth_order(job.path, pth_template(tensor.dtype, tensor.shape), tensor.data_ptr())


def _write_together(kernels: NativeKernels, pairs: Sequence[tuple[WriteJob, FileOrder]]) -> None:
    errors = write_files(kernels, [order for _, order in pairs])
    for (job, order), error in zip(pairs, errors, strict=True):
        if error:
            job.outcome.fail(OSError(error, os.strerror(error), job.path))
        else:
            job.outcome.bytes += order.head.size + order.size + order.tail.size
            job.outcome.tensors += 1


def _write_alone(kernels: NativeKernels | None, job: WriteJob) -> None:
    if job.link_from is not None:
        _link(Path(job.link_from), Path(job.path))
    elif job.tensor is not None:
        job.outcome.bytes += _write_tensor(kernels, job.path, job.tensor, job.plain)


def _link(source: Path, path: Path) -> None:
    """Make ``path`` another name of ``source``, or a copy where a file system has no links."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except FileNotFoundError as error:
        if path.parent.is_dir():
            reason = "the tensor that it equals was not written"
            raise OSError(error.errno, reason) from error
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        shutil.copyfile(source, path)
        path.chmod(path.stat().st_mode & _MODE)


def _write_tensor(kernels: NativeKernels | None, path: str, tensor: Tensor, plain: bool) -> int:
    """Write one tensor that is no order for native code, and return the size of its file."""
    if plain and tensor.nbytes <= MAX_PLAIN_BYTES:
        template = pth_template(tensor.dtype, tensor.shape)
        flat = bytes_in_order(tensor) if tensor.nbytes else torch.empty(0).byte()
        return write_pth(path, template, flat.numpy().data)
    if kernels is None or kernels.write_files is None:
        temporary = Path(f"{path}.part")
        torch.save(tensor, temporary)
        temporary.chmod(temporary.stat().st_mode & _MODE)
        temporary.replace(path)
    else:
        file = OwnFile(kernels, path)
        try:
            torch.save(tensor, file)  # type: ignore[arg-type]  # it needs no more than write()
            file.finish()
        except BaseException:
            file.discard()
            raise
    return Path(path).stat().st_size
