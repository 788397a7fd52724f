"""What is compared, from the two paths that the user gave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ait_llm.core import Side
from ait_llm.core.plugins import load_plugins
from ait_llm.dumps import Dump, kinds, open_dump
from ait_llm.dumps.kinds import PLUGINS, check_level
from ait_llm.dumps.tensor_files import SUFFIXES, TensorFile
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.ge_file import looks_like_ge
from ait_llm.match.file_runs import MANUAL_FOLDER, METADATA, find_files
from ait_llm.naming import shown
from ait_llm.storage import local_path

_INDEX = ".index.json"
_PROCESS = re.compile(r"[a-z]*-?[0-9]*_[0-9]+")
_WEIGHT_FILES = (".safetensors", ".bin", ".pth", ".pt")
_WORDS = {
    "file": "a tensor file",
    "files": "a folder of tensor files",
    "weights": "a set of weights",
    "manual": "a mapping made by dump_data",
}


@dataclass(frozen=True, slots=True)
class Input:
    """One of the two paths and what lies there.

    Attributes:
        path: as given; the local one of a URL.
        kind: the dump's kind (``atb``, ``torch``), or ``file``, ``files``, ``weights``,
            ``manual``.
        dump: the dump, None where there is none.
        step: the execution count whose folder was given, None for all.
        shards: the files of a set of weights.
    """

    path: Path
    kind: str
    dump: Dump | None = None
    step: int | None = None
    shards: tuple[Path, ...] = ()

    def side(self) -> Side:
        """How a report names it."""
        if self.dump is None:
            return Side(shown(str(self.path)), self.kind)
        processes = tuple(f"{each.device}_{each.pid}" for each in self.dump.processes)
        return Side(shown(str(self.path)), self.kind, processes, self.dump.steps)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is compared with what.

    Attributes:
        name: ``file``, ``files``, ``weights``, ``manual``, or the kinds of two dumps, golden
            first: ``atb-atb``, ``torch-atb``, ``torch-torch``, ``fx-ge``, ``ge-ge``.
        golden, mine: the two sides.
    """

    name: str
    golden: Input
    mine: Input


def find_scenario(golden: Path | str, mine: Path | str, *, weights: bool = False) -> Scenario:
    """Decide what two paths ask for.

    Args:
        golden: file, folder or dump of the trusted side.
        mine: the same of the suspicious side.
        weights: take both as weights, also those that a dump saved.

    Raises:
        FormatError: a path does not exist, or is nothing that can be compared.
        UsageError: the two do not go together.
    """
    golden, mine = local_path(golden), local_path(mine)
    for path in (golden, mine):
        if not path.exists():
            raise FormatError(path, "no such file or directory")
        if not path.is_file() and not path.is_dir():  # a pipe would be waited for
            raise FormatError(path, "is neither a file nor a folder")
    if weights:
        sides = _as_weights(golden), _as_weights(mine)
        for path, side in zip((golden, mine), sides, strict=True):
            if side is None:
                raise FormatError(
                    path, "holds no weights; expected .safetensors, .bin or .pth files"
                )
    elif golden.is_dir() and (golden / MANUAL_FOLDER / METADATA).is_file():
        return Scenario("manual", Input(golden, "manual"), Input(mine, "files"))
    else:
        sides = _recognise(golden), _recognise(mine)
    first, second = sides
    assert first is not None
    assert second is not None
    if first.kind == second.kind and first.kind in _WORDS:
        return Scenario(first.kind, first, second)
    if (
        first.dump is not None
        and second.dump is not None
        and "weights"
        not in (
            first.kind,
            second.kind,
        )
    ):
        return Scenario(f"{first.kind}-{second.kind}", first, second)
    # a file or folder that the other side shows to be weights
    kinds_given = {first.kind, second.kind}
    if "weights" in kinds_given and not any(side.dump for side in (first, second)):
        as_weights = _as_weights(golden), _as_weights(mine)
        if as_weights[0] is not None and as_weights[1] is not None:
            return Scenario("weights", as_weights[0], as_weights[1])
    raise UsageError(
        f"{golden} is {_describe(first)} and {mine} is {_describe(second)}; "
        f"give two files, two folders of the same kind, or two dumps"
    )


def _recognise(path: Path) -> Input:
    if path.is_file():
        if path.name.endswith(_INDEX):
            return _sharded(path)
        if path.suffix.lower() not in SUFFIXES and not looks_like_ge(path):
            raise FormatError(path, f"is not one of the known tensor files ({', '.join(SUFFIXES)})")
        return Input(path, "file")
    weights = _as_weights(path, sure=True)
    if weights is not None:
        return weights
    load_plugins(PLUGINS)
    openers = [kinds.get(name) for name in kinds]
    if any(opener(path) is not None for opener in openers):
        dump = open_dump(path)
        return Input(path, dump.kind, dump, _given_step(path, dump))
    check_level(path)  # their tensor files would be paired by their places, without the programs
    if find_files(path):
        return Input(path, "files")
    open_dump(path)  # says what was expected
    raise FormatError(path, "holds nothing that can be compared")


def _given_step(path: Path, dump: Dump) -> int | None:
    """The execution count in the path: ``tensors/0_4242/3`` asks for 3."""
    absolute = path.absolute()
    if not absolute.is_relative_to(dump.root):
        return None
    parts = absolute.relative_to(dump.root).parts
    for process, step in pairwise(parts):
        if _PROCESS.fullmatch(process) and step.isdecimal() and step.isascii():
            return int(step)
    return None


def weight_files(path: Path) -> tuple[Path, ...]:
    """The files of a checkpoint: of a file itself, a folder, or an index with its shards.

    Raises:
        FormatError: there is none.
    """
    found = _as_weights(path) if path.exists() else None
    if found is None or not found.shards:
        raise FormatError(path, "holds no weights; expected .safetensors, .bin or .pth files")
    return tuple(found.shards)


def _as_weights(path: Path, *, sure: bool = False) -> Input | None:
    """Weights at a path, None if there are none.

    Args:
        path: a file or folder.
        sure: only what cannot be anything else.
    """
    if path.is_file():
        if path.name.endswith(_INDEX):
            return _sharded(path)
        is_weights = not sure and path.suffix.lower() in _WEIGHT_FILES
        return Input(path, "weights", shards=(path,)) if is_weights else None
    saved = _saved_weights(path, sure=sure)
    if saved is not None:
        return saved
    here = sorted(each for each in path.iterdir() if each.is_file())
    indexes = [each for each in here if each.name.endswith(_INDEX)]
    by_suffix = {
        suffix: tuple(each for each in here if each.suffix.lower() == suffix)
        for suffix in _WEIGHT_FILES
    }
    # a folder may hold the same weights as safetensors and as pickled files: one set is read
    for suffix, shards in by_suffix.items():
        if not shards:
            continue
        marked = indexes or (path / "config.json").is_file()
        if not sure or marked or (suffix in (".safetensors", ".bin") and _are_shards(shards)):
            return Input(path, "weights", shards=shards)
    return None


def _are_shards(paths: Sequence[Path]) -> bool:
    """True for files that hold tensors by name, no name twice."""
    seen: set[str] = set()
    for path in paths:
        file = TensorFile(path)
        try:
            if not file.is_container or not seen.isdisjoint(file.keys):
                return False
            seen.update(file.keys)
        except FormatError:
            return path.suffix.lower() == ".safetensors"  # reading it as weights says what is wrong
    return True


def _saved_weights(path: Path, *, sure: bool) -> Input | None:
    """Weights that a capture of torch modules saved; by itself only their own folder is sure."""
    if sure and path.name != "weights":
        return None
    place = path.parent if path.name == "weights" else path
    opener = kinds.get("torch") if "torch" in kinds else None
    dump = opener(place) if opener is not None else None
    if dump is not None and next(iter(dump.weights()), None) is not None:
        return Input(path, "weights", dump)
    return None


def _sharded(index: Path) -> Input:
    """The shards that stand beside a ``….index.json``."""
    stem = index.name.removesuffix(_INDEX)
    suffix = Path(stem).suffix
    shards = tuple(sorted(index.parent.glob(f"*{suffix}"))) if suffix else ()
    if not shards:
        raise FormatError(index, "has no shards beside it")
    return Input(index, "weights", shards=shards)


def _describe(side: Input) -> str:
    if side.dump is not None and side.kind != "weights":
        return f"a dump of kind {side.kind}"
    return _WORDS[side.kind]
