"""What draws need of the machine: limits, small disks, a probe of their own, and what is left."""

from __future__ import annotations

import resource
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path

from draws import members, send

from ait_llm.probe.library import WRITER_NAME, find_packaged

_QUIET_SECONDS = 20.0  # for writers to end behind a program that was killed


def own_probe(folder: Path, variables: Mapping[str, str]) -> Path:
    """A folder of native libraries whose writer gets some variables more; see AIT_LLM_LIB_DIR.

    The probe gives its writer an environment of its own, in which nothing of a draw would be.
    """
    folder.mkdir(parents=True)
    for abi in (0, 1):
        name = f"libatb_probe_abi{abi}.so"
        found = find_packaged(name, environ)
        if found is not None:
            shutil.copy(found, folder / name)
    writer = find_packaged(WRITER_NAME, environ)
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    script = folder / WRITER_NAME
    script.write_text(f'#!/bin/sh\nexec env {given} {shlex.quote(str(writer))} "$@"\n', "utf-8")
    script.chmod(0o755)
    return folder


def limited(limits: Mapping[int, int]) -> None:
    """Set limits of resources for this process."""
    for each, value in limits.items():
        resource.setrlimit(each, (value, value))


def mounted_on(folder: Path, size: int) -> bool:
    """Whether the folder is a small file system now; that needs root."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def segments() -> set[str]:
    """Shared memory of ours, but for that of tests that damage files."""
    names = {each.name for each in Path("/dev/shm").iterdir()}
    return {name for name in names if "ait" in name and not name.startswith("ait-fuzz")}


def left(mark: str, usual: float = 0.0) -> list[int]:
    """Processes of a draw that do not end by themselves.

    Args:
        mark: of the draw.
        usual: seconds that it takes undisturbed; a program whose ``ait`` was killed runs on.
    """
    end = time.monotonic() + _QUIET_SECONDS + 3 * usual
    while (found := members(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    for each in found:
        send(each, signal.SIGKILL)
    return found


def shown(command: Sequence[str], output: Path) -> int | None:
    """Exit code of ``show`` of what a capture left; None where nothing is."""
    folder = output / "ait_dump"
    if not folder.is_dir() or folder.is_symlink():
        return None
    done = subprocess.run(
        [*command, "show", str(folder)], capture_output=True, text=True, check=False
    )
    return 4 if "Traceback" in done.stderr else done.returncode
