"""Names that are the same in every run of a program, which process ids are not.

Build servers keep the history of a test by its name, and a baseline is compared row by row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

Process = tuple[int, int, int]
"""Rank, device and process id; -1 for what is not known."""

_FOLDERS = re.compile(r"(?<![\w/])(?:[a-z0-9]+:/)?/(?:[^\s/:;,]+/)+")
_NUMBER = re.compile(r"\d+")


def process_names(processes: Iterable[Process]) -> Mapping[tuple[int, int], str]:
    """What to call each process, by device and process id; empty where there is only one.

    ``rank 1`` where the capture knows it, else ``device 1``, else ``process 1`` in the order of
    devices and process ids.
    """
    known = sorted(set(processes))
    if len(known) < 2:
        return {(device, pid): "" for _, device, pid in known}
    ranks = [rank for rank, _, _ in known]
    devices = [device for _, device, _ in known]
    if min(ranks) >= 0 and len(set(ranks)) == len(ranks):
        return {(device, pid): f"rank {rank}" for rank, device, pid in known}
    if min(devices) >= 0 and len(set(devices)) == len(devices):
        return {(device, pid): f"device {device}" for _, device, pid in known}
    return {(device, pid): f"process {place}" for place, (_, device, pid) in enumerate(known)}


def stable_texts(texts: Iterable[str]) -> list[str]:
    """Sentences without the folders and numbers that differ between runs, each a name of its own.

    ``mine: process 4242 on device 0: ...`` becomes ``mine: process N on device N: ...``.
    """
    seen: Counter[str] = Counter()
    found = []
    for text in texts:
        name = stable_text(text)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def stable_text(text: str) -> str:
    """A sentence without the folders and numbers that differ between runs."""
    return _NUMBER.sub("N", _FOLDERS.sub("", text))
