"""Which part of a dump of torch modules a path means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

PROCESS_NAME = re.compile(r"([a-z]*)([0-9]{0,9})_(0|[1-9][0-9]{0,18})")
STEP_NAME = re.compile(r"0|[1-9][0-9]{0,18}")
FOLDER = "torch_tensors"
_CALL = re.compile(r"(.+?)(?:@([1-9][0-9]{0,17}))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TorchPlace:
    """A dump of torch modules and the part of it that was asked for.

    Attributes:
        root: the ``ait_dump`` folder; nothing outside of it is ever read.
        process: only this ``{device}_{PID}``, or None for all.
        step: only this step, or None for all.
        module: only this module and what is below it, or None for all.
    """

    root: Path
    process: str | None = None
    step: int | None = None
    module: str | None = None

    @property
    def tensors(self) -> Path:
        """Folder of the process folders."""
        return self.root / FOLDER


def device_number(process: str) -> int:
    """The device index in ``npu1_4242``; -1 for the CPU."""
    match = PROCESS_NAME.fullmatch(process)
    assert match is not None
    return int(match[2]) if match[2] else -1


def process_id(process: str) -> int:
    """The process id in ``npu1_4242``."""
    return int(process.rsplit("_", 1)[1])


def find_torch_place(path: Path) -> TorchPlace | None:
    """Recognise a dump of torch modules, whichever of its folders is given.

    Args:
        path: an existing folder: the output directory of a run, ``ait_dump``, ``torch_tensors``,
            a process, a step, or the folder of one module.

    Returns:
        None if the path is no such dump.
    """
    path = path.absolute()
    for root in (path, path / "ait_dump"):
        if (root / FOLDER).is_dir():
            return TorchPlace(root)
    parts: list[str] = []
    current = path
    for _ in range(4):
        if current.name == FOLDER:
            return _within(current.parent, list(reversed(parts)))
        parts.append(current.name)
        current = current.parent
    return None


def _within(root: Path, parts: list[str]) -> TorchPlace | None:
    if parts and PROCESS_NAME.fullmatch(parts[0]) is None:
        return None
    if len(parts) > 1 and STEP_NAME.fullmatch(parts[1]) is None:
        return None
    return TorchPlace(
        root,
        parts[0] if parts else None,
        int(parts[1]) if len(parts) > 1 else None,
        parse_call(parts[2])[0] if len(parts) > 2 else None,
    )


def parse_call(folder: str) -> tuple[str, int]:
    """Module path and number of the call from a folder's name, ``root.model.norm@1``."""
    match = _CALL.fullmatch(folder)
    if match is None:
        return folder, 0
    return unquote(match[1]), int(match[2] or 0)
