"""Tensor files that no dump describes, as runs: a file, a folder of files, a set of weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ait_llm.core import OpId, Problem, whole_number
from ait_llm.dumps.model import Operation, Tensor, Traits
from ait_llm.dumps.tensor_files import SUFFIXES, TensorFile
from ait_llm.errors import FormatError
from ait_llm.formats.opening import contained, read_small
from ait_llm.match.model import SideName
from ait_llm.program.one_pass import Pass

MANUAL_FOLDER = "golden_tensor"
METADATA = "metadata.json"
_MAX_METADATA_BYTES = 64 << 20
_MAX_FILES = 1_000_000
_DIGITS = re.compile(r"([0-9]+)")


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts ``layers.10`` behind ``layers.9``."""
    return [
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    ]


def find_files(folder: Path) -> list[Path]:
    """Tensor files below a folder by natural order; links out of it are not followed.

    Raises:
        FormatError: it cannot be listed, or holds more files than a comparison can list.
    """
    found = []
    try:
        for path in folder.rglob("*"):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                found.append(path)
                if len(found) > _MAX_FILES:
                    raise FormatError(folder, f"holds more than {_MAX_FILES} tensor files")
    except OSError as error:
        raise FormatError(folder, f"cannot be listed: {error.strerror}") from None
    return sorted(found, key=lambda path: natural(str(path.relative_to(folder))))


def run_of_files(path: Path) -> Pass:
    """A file, or every tensor file below a folder; each file stands for an operation.

    Files that cannot be read are kept: their tensors say what is wrong when they are compared.

    Raises:
        FormatError: a folder cannot be listed.
    """
    folder = path if path.is_dir() else path.parent
    files = find_files(path) if path.is_dir() else [path]
    operations = [
        _operation(
            str(file.relative_to(folder)), TensorFile(file, folder if path.is_dir() else None)
        )
        for file in files
    ]
    kind: Literal["files", "file"] = "files" if path.is_dir() else "file"
    return Pass(kind, -1, -1, 0, operations, traits=Traits(holds=kind))


def run_of_weights(paths: Iterable[Path]) -> Pass:
    """All tensors of some shards; each weight stands for an operation.

    Raises:
        FormatError: a shard is damaged, or two shards hold the same weight.
    """
    found: dict[str, Operation] = {}
    for path in paths:
        file = TensorFile(path)
        for index, key in enumerate(file.keys):
            name = key or path.stem
            if name in found:
                raise FormatError(
                    path, f"holds the weight {name!r}, and so does {found[name].path}"
                )
            found[name] = _weight(name, file.tensor(key, index))
    ordered = sorted(found, key=natural)
    return _weights([found[name] for name in ordered])


def run_of_saved_weights(tensors: Iterable[tuple[str, Tensor]], device: int, pid: int) -> Pass:
    """Weights that a capture of torch modules saved."""
    operations = [_weight(name, tensor, device, pid) for name, tensor in tensors]
    return _weights(operations, device, pid)


def _is_there(path: Path) -> bool:
    """True for a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def runs_of_metadata(golden: Path, mine: Path) -> tuple[list[tuple[Pass, Pass]], list[Problem]]:
    """The pairs that a program wrote down with ``dump_data``, one pair of runs for each token.

    ``golden_tensor/metadata.json`` maps data ids to tokens to two files. A golden file lies below
    ``golden``; one of mine below ``mine``. After a move the golden file is found by its name.

    Raises:
        FormatError: the file is not such a table.
    """
    path = golden / MANUAL_FOLDER / METADATA
    problems: list[Problem] = []
    tokens: dict[int, tuple[list[Operation], list[Operation]]] = {}
    for data_id, token, files in _read_metadata(path):
        sides: tuple[tuple[SideName, str, Path], ...] = (
            ("golden", files[0], golden),
            ("mine", files[1], mine if mine.is_dir() else mine.parent),
        )
        for number, (side, file, root) in enumerate(sides):
            moved = golden / MANUAL_FOLDER / str(token) / Path(file).name
            try:
                try:
                    place = contained(Path(file), root, named_in=path)
                except FormatError:
                    if side == "mine" or not _is_there(moved):
                        raise
                    place = contained(moved, root, named_in=path)
                if place.is_dir():
                    raise FormatError(path, f"refers to {file!r}, which is a folder")
            except FormatError as error:
                problems.append(Problem(side, f"data id {data_id} of token {token}: {error}"))
                continue
            operation = _operation(data_id, TensorFile(place), token)
            tokens.setdefault(token, ([], []))[number].append(operation)
    pairs = []
    for token, (golden_operations, my_operations) in sorted(tokens.items()):
        pairs.append(
            (
                Pass("manual", -1, -1, token, golden_operations, traits=Traits(holds="files")),
                Pass("manual", -1, -1, token, my_operations, traits=Traits(holds="files")),
            )
        )
    return pairs, problems


def _operation(name: str, file: TensorFile, step: int = 0) -> Operation:
    try:
        keys = file.keys
    except FormatError:
        keys = ("",)  # reading the tensor says what is wrong
    tensors = tuple(file.tensor(key, index) for index, key in enumerate(keys))
    return Operation(
        name, OpId(()), "", step, location=str(file.path), tensors=tensors, stands_for="file"
    )


def _weights(operations: list[Operation], device: int = -1, pid: int = -1) -> Pass:
    return Pass("weights", device, pid, 0, operations, traits=Traits(holds="weights"))


def _weight(name: str, tensor: Tensor, device: int = -1, pid: int = -1) -> Operation:
    """A weight in the place of an operation; it is what that leaves."""
    return Operation(
        name,
        OpId(()),
        "",
        device=device,
        pid=pid,
        location=tensor.file,
        tensors=(replace(tensor, role="out", phase="after"),),
        stands_for="weight",
    )


def _read_metadata(path: Path) -> list[tuple[str, int, tuple[str, str]]]:
    text = read_small(path, _MAX_METADATA_BYTES)
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(path, "is not JSON") from None
    rows = []
    for data_id, tokens in table.items() if isinstance(table, dict) else [("", None)]:
        if not isinstance(tokens, dict):
            raise FormatError(path, "does not map data ids to tokens to two files")
        for token, files in tokens.items():
            is_pair = isinstance(files, list) and len(files) == 2
            number = whole_number(token)
            if number is None or not is_pair or not all(isinstance(f, str) for f in files):
                raise FormatError(
                    path, f"data id {data_id!r}: token {token[:80]!r} has no two files"
                )
            rows.append((data_id, number, (files[0], files[1])))
    return rows
