"""What an operation's inputs bring with them: the error it would have if it computed rightly."""

from __future__ import annotations

import numpy as np

from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.evidence import right_outputs
from ait_llm.match.model import Match
from ait_llm.match.views import apply


def inherited_error(operation: Operation, match: Match) -> float | None:
    """Distance of golden from what my operation should have made of its own inputs.

    Args:
        operation: mine.
        match: of one of its outputs.

    Returns:
        Euclidean norm of the difference over that of golden; None where it cannot be computed.
    """
    try:
        right = right_outputs(operation)
        index = match.mine.record.index
        if index not in right:
            return None
        made = right[index]
        golden = match.golden.tensor.nd()
        if golden.dtype.kind == "c":
            made, golden = made[..., 0] + 1j * made[..., 1], golden.astype(np.complex128)
        mine = apply(made.reshape(match.mine.tensor.shape), match.mine.views)
        golden = apply(golden.astype(made.dtype), match.golden.views)
        return relative_distance(golden, mine.reshape(golden.shape))
    except (AitError, ValueError):
        return None


def relative_distance(golden: Array, mine: Array) -> float | None:
    """``|m - g| / |g|`` over elements that are finite on both sides; None if golden is all zero."""
    both = np.isfinite(golden) & np.isfinite(mine)
    g, m = np.where(both, golden, 0), np.where(both, mine, 0)
    size = float(np.linalg.norm(g.reshape(-1)))
    return float(np.linalg.norm((m - g).reshape(-1))) / size if size else None
