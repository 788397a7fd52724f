"""The contiguous key and value caches that SelfAttention reads and appends to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.self_attention_config import NAME, Config
from ait_llm.opcheck.golden.self_attention_mask import Place
from ait_llm.opcheck.golden.support import refused


class Caches:
    """Contiguous caches ``[layers, B, S, heads * D]`` (head-major or NZ too) of one call."""

    def __init__(self, config: Config, named: dict[str, Tensor]) -> None:
        self._config = config
        self._layer = int(named["layer"].reshape(-1)[0])
        self.tensors = {name: named[name] for name in ("key_cache", "value_cache")}
        for name, cache in self.tensors.items():
            if not 0 <= self._layer < cache.shape[0]:
                raise refused(NAME, f"layerId is {self._layer}; {name} has {cache.shape[0]} layers")

    def _plain(self, name: str, batch: int) -> Tensor:
        """``[S, heads, D]``, a copy only where blocks must be undone."""
        part = self.tensors[name][self._layer, batch]
        if part.dim() == 3:
            part = part.transpose(0, 1) if self._config.head_major else nz_to_nd(part)
        return part.reshape(part.shape[0], self._config.kv_heads, -1)

    def read(self, name: str, batch: int, keys: int) -> Tensor:
        """The first keys of a sequence; of a ring cache as many as the window holds."""
        entries = self._plain(name, batch)
        if self._config.ring:
            keys = min(keys, self._config.window, len(entries))
        if keys > len(entries):
            raise refused(NAME, f"tokenOffset is {keys}; the cache holds {len(entries)} tokens")
        return entries[:keys]

    def append(self, name: str, tokens: Tensor, places: Sequence[Place]) -> None:
        """Write each sequence's tokens behind those it has (in a ring, modulo its length)."""
        cache = self.tensors[name].clone()
        self.tensors[name] = cache
        for place in places:
            entries = self._plain(name, place.number).clone()
            rows = torch.arange(place.keys - place.rows, place.keys)
            if self._config.ring:
                rows = rows % len(entries)
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(entries):
                raise refused(
                    NAME,
                    f"sequence {place.number} writes tokens {place.keys - place.rows} to "
                    f"{place.keys} of a cache of {len(entries)}",
                )
            entries[rows] = tokens[place.first : place.first + place.rows].to(entries.dtype)
            part = cache[self._layer, place.number]
            if part.dim() == 2:
                part.copy_(entries.reshape(part.shape))
            elif self._config.head_major:
                part.copy_(entries.transpose(0, 1))
            else:
                blocks = entries.reshape(len(entries), -1, part.shape[2])
                part.copy_(blocks.transpose(0, 1))
