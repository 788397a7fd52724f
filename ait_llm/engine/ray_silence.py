"""How long Ray has not answered.

Its calls wait in native code, some of them without an end, as for a node of its own that never
registers them; no signal is heard there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_since: list[float] = []


@contextmanager
def asking() -> Iterator[None]:
    """Around a call of Ray, or as a decorator of what makes some and waits for no work."""
    _since.append(time.monotonic())
    try:
        yield
    finally:
        _since.pop()


def silent_seconds() -> float:
    """Since the call that Ray has not answered yet; 0 where there is none."""
    begun = _since[-1:]
    return time.monotonic() - begun[0] if begun else 0.0
