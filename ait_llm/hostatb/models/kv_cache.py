"""A paged key-value cache: fixed blocks, and per sequence a table of the blocks it owns."""

from __future__ import annotations

import torch
from torch import Tensor

from ait_llm.errors import UsageError
from ait_llm.hostatb.models.config import LlamaConfig


def blocks_for(length: int, block_size: int) -> int:
    """Blocks that hold ``length`` tokens.

    Raises:
        UsageError: the block size is not positive.
    """
    if block_size <= 0:
        raise UsageError(f"the block size must be positive, not {block_size}")
    return -(-length // block_size)


class PagedCache:
    """Block memory of all layers and the book-keeping of who owns which block.

    Blocks are handed out from the highest number down as sequences grow, so that the blocks of
    several sequences interleave as they do in a serving process.

    Attributes:
        keys, values: one tensor per layer, ``[blocks, block_size, kv_heads, head_dim]``.
        block_size: tokens per block.
    """

    def __init__(self, config: LlamaConfig, num_blocks: int, block_size: int) -> None:
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.block_size = block_size
        self.keys = [torch.zeros(shape, dtype=config.dtype) for _ in range(config.num_layers)]
        self.values = [torch.zeros(shape, dtype=config.dtype) for _ in range(config.num_layers)]
        self._free = list(range(num_blocks))
        self._tables: dict[int, list[int]] = {}

    def reserve(self, sequence: int, length: int) -> None:
        """Make room for the first ``length`` tokens of a sequence.

        Raises:
            UsageError: no block is free.
        """
        table = self._tables.setdefault(sequence, [])
        while len(table) * self.block_size < length:
            if not self._free:
                raise UsageError(
                    f"the key-value cache is full: sequence {sequence} needs room for {length} "
                    f"tokens and no block of {self.block_size} tokens is free; use more blocks"
                )
            table.append(self._free.pop())

    def slot(self, sequence: int, position: int) -> int:
        """Where a token is stored: ``block * block_size + offset``."""
        block = self._tables[sequence][position // self.block_size]
        return block * self.block_size + position % self.block_size

    def block_tables(self, sequences: range) -> Tensor:
        """Tables of the sequences, ``[batch, most blocks]`` int32, padded with 0."""
        width = max(len(self._tables[sequence]) for sequence in sequences)
        tables = torch.zeros((len(sequences), width), dtype=torch.int32)
        for row, sequence in enumerate(sequences):
            table = self._tables[sequence]
            tables[row, : len(table)] = torch.tensor(table, dtype=torch.int32)
        return tables
