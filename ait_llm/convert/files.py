"""Single files and whole folders to another format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ait_llm.core import FORMAT_ND
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.formats import LoadedTensor, load
from ait_llm.formats.atb_bin import looks_like_atb, resolve_data
from ait_llm.formats.ge_file import looks_like_ge, read_ge
from ait_llm.formats.layout import to_nd
from ait_llm.formats.load import SUFFIXES
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
    """

    files: list[Path] = field(default_factory=list)
    tensors: int = 0
    widened: list[str] = field(default_factory=list)
    others: int = 0
    problems: list[str] = field(default_factory=list)


def convert_files(
    source: Path,
    output: Path,
    format_name: str,
    *,
    name: str | None = None,
    overwrite: bool = False,
    jobs: int = 1,
    on_file: Callable[[Path], None] | None = None,
) -> Converted:
    """Convert a file, or every tensor file below a folder.

    The tree of a folder is kept; a file becomes ``{stem}{suffix}``, or ``{stem}.{tensor}{suffix}``
    for each of several tensors where the format holds one. Layouts of a device become row-major.
    A file that cannot be read costs itself only.

    Args:
        source: a tensor file or a folder.
        output: the folder to write to.
        format_name: one of ``bin npy pt safetensors ge``.
        name: only that tensor of each file.
        overwrite: replace files that are there already.
        jobs: threads.
        on_file: called with each source when it is done.

    Raises:
        UsageError: the format is unknown, or there is no such source.
        FormatError: a single file cannot be converted.
    """
    if format_name not in SAVE_FORMATS:
        raise UsageError(f"{format_name!r} is no format; known: {', '.join(SAVE_FORMATS)}")
    if not source.exists():
        raise UsageError(f"{source}: no such file or directory")
    _make_folder(output)
    single = not source.is_dir()
    base = source.parent if single else source
    result = Converted()
    work = partial(_convert, base, output, format_name, name, overwrite)
    with ThreadPoolExecutor(jobs) as pool:
        for one in pool.map(work, _sources(source, output)):
            result.files += one.files
            result.tensors += one.tensors
            result.widened += one.widened
            result.others += one.others
            result.problems += one.problems
            if on_file is not None:
                on_file(source)
    if single and result.others:
        raise FormatError(source, "is not one of the known tensor files")
    return result


def _sources(source: Path, output: Path) -> Iterator[Path]:
    """Files below a folder, links left out, in a fixed order; what is written is not read."""
    if not source.is_dir():
        yield source
        return
    skipped = output.resolve()
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        if skipped != source.resolve() and skipped in path.resolve().parents:
            continue
        yield path


def _convert(
    base: Path, output: Path, format_name: str, wanted: str | None, overwrite: bool, path: Path
) -> Converted:
    result = Converted()
    try:
        if not _is_tensor_file(path):
            result.others += 1
            return result
        names = _names(path)
        if wanted is not None:
            names = [each for each in names if each == wanted]
            if not names:
                raise FormatError(path, f"holds no tensor called {wanted!r}")
        target = output / path.relative_to(base)
        stem = target.name if looks_like_ge(path) else target.stem
        groups = [names] if format_name in SAVES_SEVERAL else [[each] for each in names]
        for group in groups:
            label = f".{_UNSAFE.sub('_', group[0])}" if len(groups) > 1 else ""
            file = target.with_name(f"{stem}{label}{SAVE_FORMATS[format_name]}")
            if file.exists() and not overwrite:
                raise FormatError(file, "is there already", "Give --overwrite to replace it")
            _make_folder(file.parent)
            tensors = _tensors(path, group)
            result.widened += [f"{file}: {each}" for each in save(file, tensors, format_name)]
            result.files.append(file)
            result.tensors += len(tensors)
    except AitError as error:
        result.problems.append(str(error))
    return result


def _is_tensor_file(path: Path) -> bool:
    if path.suffix.lower() in SUFFIXES:
        return True
    return looks_like_atb(path) or looks_like_ge(path)


def _names(path: Path) -> list[str]:
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return list(list_safetensors(path))
    if suffix in _TORCH:
        return list(read_torch(path, mmap=True))
    if suffix not in SUFFIXES and looks_like_ge(path):
        return [tensor.name for tensor in read_ge(path).tensors]
    return [""]


def _tensors(path: Path, names: list[str]) -> Mapping[str, LoadedTensor]:
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


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made ({error.strerror})") from None
