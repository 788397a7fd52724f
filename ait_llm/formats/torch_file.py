"""torch ``.pt`` and ``.pth`` files: tensors and containers of tensors, never arbitrary objects."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError
from ait_llm.formats.loaded import LoadedTensor
from ait_llm.formats.mapped import guarded, keep_guarded
from ait_llm.formats.opening import open_unbuffered
from ait_llm.formats.pth_values import plain_tensors
from ait_llm.formats.repeats import check_repeats
from ait_llm.formats.torch_bridge import from_torch

if TYPE_CHECKING:
    import torch

SUFFIXES = (".pt", ".pth")
_MAX_DEPTH = 32


def read_torch(path: Path | str, *, mmap: bool = False) -> dict[str, LoadedTensor]:
    """Read every tensor of the file.

    Args:
        path: the file.
        mmap: map the file where its kind allows, so that values are read when they are used.

    Returns:
        One entry called ``""`` if the file is a single tensor; else the path of each tensor within
        its dicts, lists and tuples, joined with ``.``. Values that are not tensors are left out.

    Raises:
        FormatError: not a torch file, cut off, it needs more than torch's weights-only loading, or
            repeats what it stores too often.
        MissingDependencyError: torch is not installed.
    """
    path = Path(path)
    if not mmap and (plain := plain_tensors(path)) is not None:
        return plain
    torch = import_optional("torch", "reading .pt files")
    with _Bounded(open_unbuffered(path)) as file:
        try:
            # torch maps files by name only; this name is that of the file just checked
            source = f"/proc/self/fd/{file.fileno()}" if mmap and _is_archive(file) else file
            content = torch.load(
                source, map_location="cpu", weights_only=True, mmap=source is not file
            )
        except Exception as error:  # a damaged archive raises almost any type
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            first_line = first_line.partition(". ")[0]  # what follows is about checkpoints
            raise FormatError(
                path,
                f"cannot be loaded as tensors only: {first_line[:200]}",
                "Save plain tensors with torch.save, or dump again if the run was interrupted",
            ) from error
    tensors = list(_tensors(content, "", torch.Tensor))
    dense = [tensor for _, tensor in tensors if tensor.layout == torch.strided]
    _check_sizes(path, dense)
    try:
        with guarded(_stretches(dense) if mmap else {}, path):
            found = {name: LoadedTensor(*from_torch(tensor)) for name, tensor in tensors}
    except ValueError as error:
        raise FormatError(path, str(error)) from None
    for each in found.values() if mmap else ():
        keep_guarded(each.array, path)
    return found


def _stretches(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Addresses and sizes of the memory of tensors."""
    storages = [each.untyped_storage() for each in tensors]
    return {each.data_ptr(): each.nbytes() for each in storages if each.nbytes()}


def _check_sizes(path: Path, tensors: Sequence[torch.Tensor]) -> None:
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() // each.itemsize
        for each in tensors
    }
    check_repeats(path, sum(each.numel() for each in tensors), sum(storages.values()))


class _Bounded(io.BufferedReader):
    """A file that reserves no more memory than it has bytes, whatever lengths stand in it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes."""
        if size is not None and size > io.DEFAULT_BUFFER_SIZE:
            size = min(size, max(0, os.fstat(self.fileno()).st_size - self.tell()))
        return super().read(size)


def _is_archive(file: BinaryIO) -> bool:
    """True for the zip files that torch has written since 1.6."""
    start = file.read(4)
    file.seek(0)
    return start == b"PK\x03\x04"


def _tensors(
    value: object, name: str, tensor_type: type[torch.Tensor], depth: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, tensor_type):
        yield name, value
        return
    if depth == _MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return
    for key, item in items:
        yield from _tensors(item, f"{name}.{key}" if name else key, tensor_type, depth + 1)
