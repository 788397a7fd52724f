"""Paged attention of vLLM: rows of many requests, whose earlier tokens are in a cache.

A module says what it computes with by the attributes of what computes in its place (``impl``): its
scale, its window, its cap. Keys and values of earlier tokens are arguments of earlier calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden.base import Arithmetic, GoldenOp, Params, Result
from ait_llm.opcheck.golden.modules.table import Compute, Given, module

_NAMES = (("0", "1", "2"), ("query", "key", "value"))
_PLAIN_CACHES = frozenset({"auto", "bfloat16", "float16", "float32"})
# What must be so: another value, or none that is told, means another computation.
_NONE = ("impl.alibi_slopes", "kv_sharing_target_layer_name", "query_quant")
_NO = ("has_sink", "use_mm_prefix", "use_alibi_sqrt")


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """``softmax(scale * q @ k.T) @ v`` of each row over the tokens of its request up to itself.

    Attributes:
        names: of queries, keys and values, each ``[tokens, heads * size]``.
        heads, shared: heads of queries, and of keys and values.
        scale: of scores.
        cap: ``cap * tanh(score / cap)`` takes the place of a score; None for none.
        window: the last tokens that a row attends to, itself among them; None for all.
        attended: see :class:`Given`. Rows that are in none of them are not known.
    """

    names: tuple[str, str, str]
    heads: int
    shared: int
    scale: float
    cap: float | None
    window: int | None
    attended: Sequence[tuple[int, int, tuple[tuple[int, int, int], ...]]]

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        query = tensors[self.names[0]]
        tokens = query.shape[0]
        parts: list[Tensor] = []
        end = 0
        for row, count, before in sorted(self.attended):
            own = slice(row, row + count)
            keys, values = (
                self._heads(
                    torch.cat(
                        [
                            *(
                                tensors[f"{at}.{name}"][first : first + n]
                                for at, first, n in before
                            ),
                            tensors[name][own],
                        ]
                    ),
                    self.shared,
                )
                for name in self.names[1:]
            )
            queries = self._heads(query[own], self.heads)
            made = self._attention(queries, keys, values).transpose(0, 1).reshape(count, -1)
            parts += [made.new_zeros(row - end, made.shape[1]), made]
            end = row + count
        return torch.cat([*parts, parts[-1].new_zeros(tokens - end, parts[-1].shape[1])])

    def unknown(self, tokens: int) -> Tensor:
        """Rows that are not known, ``[tokens, 1]``."""
        found = torch.ones(tokens, 1, dtype=torch.bool)
        for row, count, _ in self.attended:
            found[row : row + count] = False
        return found

    def _heads(self, x: Tensor, count: int) -> Tensor:
        """``[heads, tokens, size]``."""
        return x.reshape(x.shape[0], count, -1).transpose(0, 1)

    def _attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        times = self.heads // self.shared
        key, value = (each.repeat_interleave(times, 0) for each in (key, value))
        count, length = query.shape[1], key.shape[1]
        place = torch.arange(length - count, length)[:, None]
        apart = place - torch.arange(length)
        seen = apart >= 0 if self.window is None else (apart >= 0) & (apart < self.window)
        if self.cap is None:
            return functional.scaled_dot_product_attention(
                query[None], key[None], value[None], attn_mask=seen, scale=self.scale
            )[0]
        # capped in the precision that kernels sum in
        scores = (query.float() @ key.float().transpose(1, 2)) * self.scale
        scores = (torch.tanh(scores / self.cap) * self.cap).masked_fill(~seen, -torch.inf)
        return scores.softmax(-1).to(value.dtype) @ value


@module("Attention")
def _paged_attention(given: Given) -> Compute | None:
    known = given.definition
    sizes = [given.number(f"impl.{name}") for name in ("num_heads", "num_kv_heads", "head_size")]
    scale = given.number("impl.scale")
    names = next((each for each in _NAMES if sorted(each) == sorted(given.inputs)), None)
    if (
        scale is None
        or None in sizes
        or names is None
        or given.weights
        or known.get("head_size_v") != known.get("head_size")
        or any(name not in known or known[name] is not None for name in _NONE)
        or any(known.get(name) is not False for name in _NO)
        or str(known.get("attn_type")).lower() != "decoder"
        or known.get("kv_cache_dtype") not in _PLAIN_CACHES
        or not _is_one_process(known)
        or len(given.outputs) != 1
    ):
        return None
    heads, shared, _ = (int(size or 0) for size in sizes)
    cap, window = known.get("impl.logits_soft_cap"), _window(known.get("impl.sliding_window"))
    if heads < 1 or shared < 1 or heads % shared or window is False:
        return None
    capped = float(cap) if isinstance(cap, (int, float)) and cap > 0 else None
    return PagedAttention(names, heads, shared, float(scale), capped, window, given.attended)


def _window(stated: Any) -> int | bool | None:
    """Tokens of a window that backends state as a number, or as how far both sides reach.

    False for one that is stated in no known way.
    """
    if stated is None:
        return None
    if isinstance(stated, list) and len(stated) == 2 and stated[1] in (0, -1):
        return None if stated[0] == -1 else int(stated[0]) + 1
    if type(stated) is int:
        return stated if stated > 0 else None
    return False


def _is_one_process(known: Mapping[str, Any]) -> bool:
    """True if no other process has a share of the keys."""
    sizes = (known.get(f"impl.{kind}_world_size", 1) for kind in ("dcp", "pcp", "total_cp"))
    return all(size in (None, 1, -1) for size in sizes)


def of_known_rows(golden: GoldenOp, compute: PagedAttention) -> GoldenOp:
    """The same, judged in the rows of which it is known what they attend to."""

    def run(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        found = golden.compute(inputs, params, how)
        made = found.outputs[0]
        unknown = compute.unknown(made.shape[0])
        return replace(found, undefined={0: unknown}) if unknown.any() else found

    return replace(golden, compute=run, plain=None)
