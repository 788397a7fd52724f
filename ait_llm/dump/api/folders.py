"""The folders of a capture, ``{dump_path}/step{N}/rank{R}``, and what earlier runs left in them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

_STEP = re.compile(r"step\d+")
_PROCESS = re.compile(r"proc(\d+)")
_LEDGER = re.compile(r"(proc|rank\d+)_(\d{1,18})\.jsonl")
LEDGERS = "ledger"
# Everything that a capture writes into a rank's folder: what holds more is not ours to remove.
_OURS = frozenset(
    {
        "dump.json",
        "stack.json",
        "construct.json",
        "debug.json",
        "overflow.json",
        "dump_error_info.log",
        "dump_tensor_data",
    }
)


def rank() -> int | None:
    """The rank of this process, once the distributed package is initialised."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return int(dist.get_rank())


def rank_name(rank_id: int | None) -> str:
    """``rank0``, or ``proc{pid}`` as long as there are no ranks."""
    found = rank() if rank_id is None else rank_id
    return f"proc{os.getpid()}" if found is None else f"rank{found}"


def remove_earlier(dump_path: Path, name: str) -> None:
    """Remove what an earlier run left for this rank, so that a dump is of one run.

    The folders of processes that have ended count as earlier runs of a process without a rank.
    A folder with anything in it that no capture writes stays, and so does what is behind a link.

    Args:
        dump_path: the folder of the capture.
        name: of the rank's folders.

    Raises:
        OSError: something of it cannot be removed.
    """
    if not dump_path.is_dir():
        return
    for step in dump_path.iterdir():
        if not _STEP.fullmatch(step.name) or step.is_symlink() or not step.is_dir():
            continue
        removed = False
        for folder in step.iterdir():
            process = _PROCESS.fullmatch(folder.name)
            ended = process is not None and not _is_running(int(process[1]))
            if (folder.name == name or ended) and _is_ours(folder):
                shutil.rmtree(folder)
                removed = True
        if removed:
            with contextlib.suppress(OSError):  # another rank has put its folder there
                step.rmdir()
    _remove_ledgers(dump_path / LEDGERS, name)


def ledger_name(name: str) -> str:
    """Name of the ledger of this process, whose folders are named ``name``."""
    device = "proc" if _PROCESS.fullmatch(name) else name
    return f"{device}_{os.getpid()}.jsonl"


def _remove_ledgers(folder: Path, name: str) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        found = _LEDGER.fullmatch(path.name)
        if found is None:
            continue
        ended = found[1] == "proc" and not _is_running(int(found[2]))
        if found[1] == name or ended:
            path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return False  # an earlier process with our number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_ours(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(each.name.removesuffix(".part") in _OURS for each in folder.iterdir())
