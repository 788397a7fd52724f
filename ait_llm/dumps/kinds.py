"""The kinds of dumps that can be opened, and the one function that opens them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ait_llm.core import Registry
from ait_llm.core.plugins import load_plugins
from ait_llm.dumps.model import Dump
from ait_llm.errors import FormatError
from ait_llm.formats.opening import check_parts
from ait_llm.storage import local_path

Opener = Callable[[Path], Dump | None]

# Readers in other packages register themselves in modules that are entry points of this group.
PLUGINS = "ait_llm.dumps"
# A reader registers a function that returns None for a folder that is not of its kind.
kinds: Registry[Opener] = Registry("kind of dump")
# The same for one file, where users of a kind are used to name that.
file_kinds: Registry[Opener] = Registry("kind of dump in one file")

# Functions that say why a folder is no dump although a user may take it for one.
explanations: list[Callable[[Path], FormatError | None]] = []


def open_dump(path: Path | str, kind: str | None = None) -> Dump:
    """Open what a run left on disk; nothing is read but folder names.

    Args:
        path: the output directory given with ``-o``, or any folder in the dump: ``ait_dump``,
            ``tensors``, ``{device}_{PID}``, an execution count, or one operation. What is listed
            is limited to that folder. Of API calls also a ``dump.json`` or ``.pkl`` file. A folder
            elsewhere is given by its URL, ``s3://bucket/out``.
        kind: name of the kind, where a folder can be read as several.

    Raises:
        FormatError: there is no such folder, or it is not a dump, or several, or a part of it is a
            link that leads out of it.
        UnknownNameError: no such kind.
        UsageError: a reader of another package cannot be loaded.

    Example:
        >>> from ait_llm import open_dump
        >>> for operation in open_dump("out").operations(step=0):  # doctest: +SKIP
        ...     print(operation.op_id, operation.type)
    """
    path = local_path(path)
    if not path.exists():
        raise FormatError(path, "no such file or directory")
    load_plugins(PLUGINS)
    found = kinds if path.is_dir() else file_kinds
    openers = [found.get(name) for name in (found if kind is None else [kind])]
    dumps = [dump for opener in openers if (dump := opener(path)) is not None]
    if len(dumps) > 1:
        names = ", ".join(dump.kind for dump in dumps)
        raise FormatError(
            path,
            f"holds several kinds of dump ({names})",
            "Give the folder of one: ait_dump/tensors for atb, ait_dump/torch_tensors for torch, "
            "ait_dump/fx_tensors for fx, a folder named after the time of a run for ge",
        )
    if not dumps and not path.is_dir():
        raise FormatError(path, "is a file, a dump is a folder", "Give the folder it lies in")
    if not dumps:
        check_level(path)
        for explain in explanations:
            if (explanation := explain(path)) is not None:
                raise explanation
        raise FormatError(
            path,
            "is not a dump; expected the output directory of a run, its ait_dump folder, "
            "or a folder such as ait_dump/tensors/0_4242/0 in it",
        )
    if path.is_dir():
        check_parts(dumps[0].root, Path(os.path.abspath(path)))  # noqa: PTH100  links stay
    return dumps[0]


def check_level(folder: Path) -> None:
    """Refuse a folder whose subfolders, at most two levels below, are outputs of runs.

    Raises:
        FormatError: there is one or several.
    """
    below = sorted(
        {each.parent for depth in ("*", "*/*") for each in folder.glob(f"{depth}/ait_dump")}
    )
    if len(below) == 1:
        raise FormatError(
            folder,
            f"is not the output directory of a run, but {below[0].relative_to(folder)} in it is",
            "Give that folder",
        )
    if below:
        raise FormatError(
            folder,
            f"holds the outputs of {len(below)} runs, the first is {below[0].relative_to(folder)}",
            "Give the folder of one",
        )
