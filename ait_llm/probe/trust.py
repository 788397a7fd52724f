"""Whether a file may run with the rights of the user: who else could put something in its place."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

import ait_llm
from ait_llm.errors import ProbeError

_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_UID_MAP = Path("/proc/self/uid_map")


def check_trusted(path: Path) -> None:
    """Refuse a file that another user can change or exchange.

    Trusted are root, the user, and whoever owns this package, whose code runs already. Folders that
    anyone may write to are fine where only owners may rename what lies in them, as in ``/tmp``.

    Args:
        path: the file, all links followed.

    Raises:
        ProbeError: it is not safe; the message says what to do.
    """
    trusted = _trusted_users()
    status = path.stat()
    if writable_by_others(status):
        raise ProbeError(
            f"{path} can be changed by other users (mode {stat.S_IMODE(status.st_mode):o}); "
            f"it would run with your program's rights, so first: chmod go-w {path}"
        )
    for part in (path, *path.parents):
        status = part.stat()
        if status.st_uid not in trusted:
            raise ProbeError(
                f"{part} belongs to {_name(status.st_uid)}, who could put another library in the "
                f"place of {path}; it would run with your program's rights. Copy it to a folder of "
                "your own"
            )
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise ProbeError(
                f"{part} can be written to by all users, who could exchange {path}; it would run "
                f"with your program's rights, so first: chmod o-w {part}"
            )


def _trusted_users() -> set[int]:
    trusted = {0, os.geteuid()}
    trusted.update(Path(entry).stat().st_uid for entry in ait_llm.__path__ if Path(entry).is_dir())
    try:
        # within a container without rights of its own, all others are one number that cannot act
        if _UID_MAP.read_text(encoding="ascii").split() != ["0", "0", "4294967295"]:
            trusted.add(int(_OVERFLOW.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return trusted
    return trusted


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


def writable_by_others(status: os.stat_result) -> bool:
    """True if somebody else than the owner may write to a file."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status)


def _is_private_group(status: os.stat_result) -> bool:
    # With umask 002 files are group-writable, and the group has the owner as its only member.
    try:
        owner = pwd.getpwuid(status.st_uid)
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner.pw_name and not set(group.gr_mem) - {owner.pw_name}
