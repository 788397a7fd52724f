"""One tensor file to another format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.core import FORMAT_ND
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.formats import LoadedTensor, load
from ait_llm.formats.atb_bin import resolve_data
from ait_llm.formats.ge_file import looks_like_ge, read_ge
from ait_llm.formats.layout import to_nd
from ait_llm.formats.load import SUFFIXES, is_tensor_file
from ait_llm.formats.pth_values import plain_tensors
from ait_llm.formats.safetensors_file import list_safetensors
from ait_llm.formats.save import SAVE_FORMATS, SAVES_SEVERAL, save
from ait_llm.formats.torch_file import read_torch

_FOLDER_MODE = 0o750
_UNSAFE = re.compile(r"[^\w.@+-]+")
_TORCH = (".pt", ".pth")


@dataclass(slots=True)
class Converted:
    """What became of a conversion.

    Attributes:
        files: written, in the order of their sources.
        tensors: how many tensors they hold.
        widened: tensors whose type the format does not know, in words.
        others: files that hold no tensors.
        problems: files or tensors that could not be converted, and why.
        stopped: files that were not looked at, because somebody asked to stop.
    """

    files: list[Path] = field(default_factory=list)
    tensors: int = 0
    widened: list[str] = field(default_factory=list)
    others: int = 0
    problems: list[str] = field(default_factory=list)
    stopped: int = 0


@dataclass(frozen=True)
class Conversion:
    """What is done to each file.

    Attributes:
        output: the folder to write to.
        format_name: one of ``SAVE_FORMATS``.
        name: only that tensor of each file; None for all.
        overwrite: replace files that are there already.
        own_since: time in ns; files that changed since then are ours and may be replaced, for a
            second attempt. None where there was no first one.
    """

    output: Path
    format_name: str
    name: str | None = None
    overwrite: bool = False
    own_since: int | None = None

    def may_write(self, file: Path) -> bool:
        """False for a file that is there already and is not ours."""
        if self.overwrite or not file.exists():
            return True
        return self.own_since is not None and file.stat().st_mtime_ns >= self.own_since


def convert_file(conversion: Conversion, base: Path, path: Path) -> Converted:
    """Convert a file below ``base``; what is wrong with it is a problem of the result."""
    result = Converted()
    format_name, wanted = conversion.format_name, conversion.name
    try:
        if not is_tensor_file(path):
            result.others += 1
            return result
        # without torch, which takes seconds to load, where the file allows it
        loaded = plain_tensors(path) if path.suffix.lower() in _TORCH else None
        names = _names(path) if loaded is None else list(loaded)
        if wanted is not None:
            names = [each for each in names if each == wanted]
            if not names:
                raise FormatError(path, f"holds no tensor called {wanted!r}")
        target = conversion.output / path.relative_to(base)
        stem = target.name if looks_like_ge(path) else target.stem
        groups = [names] if format_name in SAVES_SEVERAL else [[each] for each in names]
        for group in groups:
            label = f".{_UNSAFE.sub('_', group[0])}" if len(groups) > 1 else ""
            file = target.with_name(f"{stem}{label}{SAVE_FORMATS[format_name]}")
            if not conversion.may_write(file):
                raise FormatError(file, "is there already", "Give --overwrite to replace it")
            if not file.parent.is_dir():
                make_folder(file.parent)
            tensors = _tensors(path, group, loaded)
            result.widened += [f"{file}: {each}" for each in save(file, tensors, format_name)]
            result.files.append(file)
            result.tensors += len(tensors)
    except AitError as error:
        result.problems.append(str(error))
    return result


def _names(path: Path) -> list[str]:
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return list(list_safetensors(path))
    if suffix in _TORCH:
        return list(read_torch(path, mmap=True))
    if suffix not in SUFFIXES and looks_like_ge(path):
        return [tensor.name for tensor in read_ge(path).tensors]
    return [""]


def _tensors(
    path: Path, names: list[str], loaded: Mapping[str, LoadedTensor] | None
) -> Mapping[str, LoadedTensor]:
    if loaded is not None:
        return {name: loaded[name] for name in names}
    found = {}
    for name in names:
        tensor = load(path, name or None)
        if tensor.format != FORMAT_ND:
            try:
                header = resolve_data(path)[1]
                array = to_nd(tensor.array, header.desc.shape, tensor.format, tensor.dtype)
            except ValueError as error:
                raise FormatError(path, str(error)) from None
            tensor = LoadedTensor(array, tensor.dtype)
        found[name] = tensor
    return found


def make_folder(path: Path) -> None:
    """Create a folder and those above it.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made ({error.strerror})") from None
