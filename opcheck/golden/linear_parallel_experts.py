"""Moving rows between ranks and experts, for the two expert forms of LinearParallel.

A matrix ``[epSize, epSize * local]`` counts the tokens of each rank for each expert of all ranks. A
rank's own rows are ordered by expert. The rows of an expert's rank are ordered by its local
expert, then by the rank they come from.
"""

from __future__ import annotations

from torch import Tensor

from ait_llm.opcheck.golden.slots import segments


def expert_rows(counts: Tensor, rank: int, local: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the rows for the experts of one rank come from.

    Args:
        counts: int64 ``[ranks, ranks * local]``.
        rank: the rank that has the experts.
        local: experts per rank.

    Returns:
        For each row in the order of that rank: source rank, row there, and local expert.
    """
    starts = counts.cumsum(dim=1) - counts
    own = slice(rank * local, (rank + 1) * local)
    ranks = len(counts)
    lengths = counts[:, own].T.reshape(-1)
    owner, position = segments(lengths)
    source, expert = owner % ranks, owner // ranks
    return source, starts[:, own].T.reshape(-1)[owner] + position, expert
