"""What a comparison takes of the machine."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

MAX_JOBS = 64


def default_jobs() -> int:
    """One thread for each processor that this process may use."""
    return min(len(os.sched_getaffinity(0)), MAX_JOBS)


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Keep Python from searching all objects for cycles each time their number has grown.

    Hundreds of thousands of records are made in a comparison, none of them in a cycle; looking
    through them again and again takes a quarter of the time.
    :func:`ait_llm.compare.work.measure_all` looks at young ones itself.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
