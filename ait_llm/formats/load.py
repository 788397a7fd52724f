"""One front door for every tensor file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.formats import atb_bin, ge_values, npy, safetensors_file, torch_file
from ait_llm.formats.ge_file import looks_like_ge, read_ge
from ait_llm.formats.loaded import LoadedTensor

SUFFIXES = (atb_bin.SUFFIX, npy.SUFFIX, safetensors_file.SUFFIX, *torch_file.SUFFIXES)


def is_tensor_file(path: Path) -> bool:
    """True for a file that holds tensors, by its suffix or its first bytes.

    Raises:
        FormatError: the file cannot be opened.
    """
    if path.suffix.lower() in SUFFIXES:
        return True
    return atb_bin.looks_like_atb(path) or looks_like_ge(path)


def load(path: Path | str, name: str | None = None) -> LoadedTensor:
    """Load one tensor from a file; the format follows from the suffix and the first bytes.

    Args:
        path: an ATB ``.bin``, ``.npy``, ``.pt``, ``.pth`` or ``.safetensors`` file, or a dump file
            of the graph engine.
        name: which tensor, for files that hold several; ``intensor0``, ``outtensor0`` in a dump
            file of the graph engine.

    Raises:
        FormatError: an unknown or damaged file, several tensors and no ``name``, or none of it.
        MissingDependencyError: the format needs a package that is not installed.

    Example:
        >>> from ait_llm.formats import load
        >>> load("x.npy").array.shape  # doctest: +SKIP
        (2, 3)
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == safetensors_file.SUFFIX:
        names = list(safetensors_file.list_safetensors(path))
        return safetensors_file.read_safetensors(path, _choose(path, names, name))
    if suffix in torch_file.SUFFIXES:
        tensors: Mapping[str, LoadedTensor] = torch_file.read_torch(path)
        return tensors[_choose(path, list(tensors), name)]
    if suffix not in SUFFIXES and looks_like_ge(path):
        file = read_ge(path)
        chosen = _choose(path, [tensor.name for tensor in file.tensors], name)
        return LoadedTensor(ge_values.ge_values(file, file[chosen]), file[chosen].dtype)
    if name:
        raise FormatError(path, f"holds one tensor, not one called {name!r}")
    if suffix == npy.SUFFIX:
        return npy.read_npy(path)
    if suffix == atb_bin.SUFFIX or atb_bin.looks_like_atb(path):
        holder, header = atb_bin.resolve_data(path)
        array = atb_bin.read_values(holder, header)
        return LoadedTensor(array, header.desc.dtype, header.desc.format)
    raise FormatError(path, f"is not one of the known tensor files ({', '.join(SUFFIXES)})")


def _choose(path: Path, names: list[str], wanted: str | None) -> str:
    if wanted is not None and wanted in names:
        return wanted
    if wanted is None and len(names) == 1:
        return names[0]
    known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    if not names:
        raise FormatError(path, "holds no tensor")
    if wanted is None:
        raise FormatError(path, f"holds {len(names)} tensors, name one of: {known}")
    raise FormatError(path, f"holds no tensor called {wanted!r}, only: {known}")
