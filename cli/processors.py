"""Processors shared between calls that are computed at a time and the threads within one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shared_processors(jobs: int) -> Iterator[None]:
    """Give each of so many calls of torch its part of torch's threads, and all back afterwards.

    The number of threads belongs to the process. One that has threads of OpenMP and forks later,
    as a notebook or a test may, waits forever in its child, which does not have them.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)
