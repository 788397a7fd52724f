"""``srand`` and ``rand`` of glibc, so that sampled tokens are the same on every host.

The default generator of glibc is an additive feedback generator with 31 words of state: each word
is the sum of the words 31 and 3 places before it, modulo 2**32, and the output drops its lowest
bit. The state is filled by a multiplicative generator and the first 310 outputs are thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

RAND_MAX = 2147483647
_WORDS, _LAG, _DISCARDED = 31, 3, 310


def rand(seeds: Sequence[int], count: int) -> Tensor:
    """The first ``count`` outputs after ``srand`` of each seed.

    Args:
        seeds: unsigned 32-bit numbers.
        count: outputs per seed.

    Returns:
        int64 ``[len(seeds), count]`` in ``[0, RAND_MAX]``.
    """
    start = np.array(list(seeds), dtype=np.uint32).astype(np.int32).astype(np.int64)
    word = np.where(start == 0, 1, start)
    words = [word.astype(np.uint32)]
    for _ in range(1, _WORDS):
        word = (16807 * word) % RAND_MAX
        words.append(word.astype(np.uint32))
    words += words[:_LAG]
    while len(words) < _WORDS + _LAG + _DISCARDED + count:
        words.append(words[-_WORDS] + words[-_LAG])
    outputs = np.array(words[_WORDS + _LAG + _DISCARDED :], dtype=np.int64).reshape(
        count, len(start)
    )
    return torch.from_numpy(outputs.T >> 1)


def uniform(seeds: Sequence[int], count: int) -> Tensor:
    """``rand() / RAND_MAX`` divided in float32, as the host code does: ``[len(seeds), count]``."""
    return rand(seeds, count).float() / torch.tensor(RAND_MAX, dtype=torch.float32)
