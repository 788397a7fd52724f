"""Which rows of an engine's packed tensors are those of one request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ait_llm.dump.api.settings import Slice

_log = logging.getLogger(__name__)


def rows_of(request: str, scheduled: Mapping[str, int] | None) -> Sequence[Slice] | None:
    """The part of a step to look at.

    Args:
        request: the id of the one request to record; empty for all.
        scheduled: rows of each request of the step, in their order; None where nobody says.

    Returns:
        No part if all of the step is recorded, the rows of the request if it is in the step, and
        None if it is not.
    """
    if not request or scheduled is None:
        return ()
    if not all(isinstance(count, int) and count > 0 for count in scheduled.values()):
        _log.warning("scheduled_tokens %s means nothing; the whole step is recorded", scheduled)
        return ()
    begin = 0
    for name, count in scheduled.items():
        if str(name) == request:
            whole = sum(scheduled.values())
            return (Slice(0, whole, begin, begin + count),) if count < whole else ()
        begin += count
    return None
