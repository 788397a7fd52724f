"""``torch_atb.Prof``: how long the operations of this thread took."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

# torch_atb keeps that many of the latest runs of an operation.
MAX_RUN_TIMES = 1000


class Prof:
    """Run times by operation name; one object per thread."""

    _local = threading.local()

    def __init__(self) -> None:
        self._times: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=MAX_RUN_TIMES))

    @classmethod
    def get_prof_stats(cls) -> Prof:
        """The object of this thread."""
        stats: Prof | None = getattr(cls._local, "stats", None)
        if stats is None:
            stats = cls._local.stats = cls()
        return stats

    def add_run_time(self, name: str, microseconds: int) -> None:
        """Record one run."""
        self._times[name].append(microseconds)

    def get_run_time_stats(self, name: str) -> list[int]:
        """Microseconds of the latest runs of the operations of that name, oldest first."""
        return list(self._times.get(name, ()))
