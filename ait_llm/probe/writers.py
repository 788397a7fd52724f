"""Waits for the processes that write a capture to disk.

Each traced process hands its tensors to an ``ait_probe_writer`` of its own, which outlives a host
that is killed or leaves with ``_exit``: what lies in its queue then still goes to disk.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ait_llm.probe.library import WRITER_NAME

_HOST_ARGUMENT = 4  # process id of the host in the writer's argument list
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 2.0

_log = logging.getLogger(__name__)


def is_alive(pid: int) -> bool:
    """True if a process of that id runs on this machine; one that only waits to be reaped is not.

    Orphans of a container without an init process stay as zombies for ever.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name in parentheses may itself hold parentheses; the state follows the last one.
    return status.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


def wait_for_writers(output: Path, start_time: str) -> None:
    """Return when no writer of that run is left whose host has ended.

    Writers of hosts that still run (a server that the command left behind) are not waited for.

    Args:
        output: the directory that the run was told to write into.
        start_time: what the run was told as ``AIT_PROBE_START_TIME``.
    """
    began = time.monotonic()
    said = False
    while orphans := [pid for pid, host in _writers(output, start_time) if not is_alive(host)]:
        if not said and time.monotonic() - began > _PATIENCE_SECONDS:
            said = True
            _log.info("waiting for %d processes that still write to %s", len(orphans), output)
        time.sleep(_POLL_SECONDS)


def _writers(output: Path, start_time: str) -> Iterator[tuple[int, int]]:
    """Process ids of a run's writers and of their hosts."""
    wanted = os.fsencode(output.resolve())
    start = b"AIT_PROBE_START_TIME=" + start_time.encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"/" + WRITER_NAME.encode()):
                continue
            settings = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile, or belongs to another user
            continue
        if start not in settings or len(words) <= _HOST_ARGUMENT:
            continue
        places = [
            text.partition(b"=")[2] for text in settings if text.startswith(b"ATB_OUTPUT_DIR=")
        ]
        if any(os.path.realpath(place) == wanted for place in places):
            host = words[_HOST_ARGUMENT]
            yield int(process.name), int(host) if host.isdigit() else 0
