"""The attention of a decoder or encoder layer, written out for whatever rounds its steps.

``softmax(cap(rotate(query) rotate(key)' scale) + mask) value``, with the heads of queries in groups
that share keys and values. Sources: "Attention Is All You Need" (2017); rotary embedding of
RoFormer (2021), in the halves of GPT-NeoX and in the pairs of GPT-J; the cap of Gemma 2 (2024);
sinks as in gpt-oss (2025), scores that take a share of the softmax and add nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ait_llm.core import DType
from ait_llm.formats.elements import Array

# What masks add to hide a place is lower, scores are not.
_LOWEST = -9e3

Rotary = Literal["none", "halves", "pairs"]
Step = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Formula:
    """What an attention computes.

    Attributes:
        scale: of the scores.
        rotary: which elements of a head turn together: those of two halves, or neighbours.
        masked: a mask is added to the scores.
        causal: keys that come later are hidden.
        window: only so many latest keys are seen, where keys are hidden causally; None for all.
        cap: of the scores, ``cap tanh(score / cap)``.
        past: keys of earlier passes stand before those of this one.
        sinks: each head has a score of its own that takes a share and adds nothing.
    """

    scale: float
    rotary: Rotary = "none"
    masked: bool = False
    causal: bool = False
    window: int | None = None
    cap: float | None = None
    past: bool = False
    sinks: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What an attention computes with, of any type; :func:`context` takes it as float64.

    Attributes:
        query: ``[B, H, T, D]``.
        key, value: ``[B, Hk, K, D]`` and ``[B, Hk, K, Dv]`` of this pass; H is a multiple of Hk.
        result: ``[B, H, T, Dv]``, what the code made.
        dtype: in which it computes.
        tables: cosines and sines ``[B or 1, T, R or R / 2]`` of the first R elements of each head.
        masks: ``[B or 1, H or 1, T, keys]``, added to scores; those of truth say what is seen.
        past: keys and values of earlier passes, rotated.
        sinks: ``[H]``.
    """

    query: Array
    key: Array
    value: Array
    result: Array
    dtype: DType
    tables: tuple[Array, Array] | None = None
    masks: tuple[Array, ...] = ()
    past: tuple[Array, Array] | None = None
    sinks: Array | None = None

    def sampled(self, most: int) -> Given:
        """Some requests and groups of heads, spread evenly, as float64.

        Args:
            most: elements of keys; one request and one group are taken in any case.
        """
        requests, shared = self.key.shape[:2]
        each = max(1, self.keys * self.key.shape[3])
        groups = _spread(shared, most // each)
        chosen = _spread(requests, most // (each * len(groups)))
        heads = self.query.shape[1] // shared
        queries = (groups[:, None] * heads + np.arange(heads)).reshape(-1)

        def some(values: Array, of: Array) -> Array:
            found = values if values.shape[1] == 1 else values[:, of]
            return found if values.shape[0] == 1 else found[chosen]

        tables, past = self.tables, self.past
        if tables is not None and tables[0].shape[0] > 1:
            tables = tables[0][chosen], tables[1][chosen]
        return Given(
            _wide(some(self.query, queries)),
            _wide(some(self.key, groups)),
            _wide(some(self.value, groups)),
            _wide(some(self.result, queries)),
            self.dtype,
            tables=None if tables is None else (_wide(tables[0]), _wide(tables[1])),
            masks=tuple(some(mask, queries) for mask in self.masks),
            past=None
            if past is None
            else (_wide(some(past[0], groups)), _wide(some(past[1], groups))),
            sinks=None if self.sinks is None else _wide(self.sinks[queries]),
        )

    @property
    def keys(self) -> int:
        """How many keys there are, those of earlier passes among them."""
        return int(self.key.shape[2] + (0 if self.past is None else self.past[0].shape[2]))


def _spread(count: int, most: int) -> Array:
    """Numbers of some of so many, spread evenly, the last one among them."""
    found: Array = np.linspace(count - 1, 0, min(count, max(1, most))).round().astype(int)
    return np.unique(found)


def _wide(values: Array) -> Array:
    return values.astype(np.float64)


def context(given: Given, formula: Formula, rows: Array, step: Step) -> tuple[Array, Array] | None:
    """What an attention makes for some tokens.

    Args:
        given: what it computes with.
        formula: see there.
        rows: numbers of the tokens, ``[R]``.
        step: what happens to each value on the way: nothing, or a rounding.

    Returns:
        ``[B, H, R, Dv]``, and which rows ``[B, H, R]`` of it see a key; None where the formula does
        not fit the shapes.
    """
    heads = given.query.shape[1]
    if given.result.shape[1] != heads or given.result.shape[3] != given.value.shape[3]:
        return None
    turned = keys_and_queries(given, formula, rows, step)
    if turned is None:
        return None
    sinks = given.sinks if formula.sinks else None
    query, key, value = turned
    query, key = (_scaled(each, formula.scale, step) for each in (query, key))
    shape = (*query.shape[:3], key.shape[2])
    scores = step(_grouped(query, key) @ key.transpose(0, 1, 3, 2)).reshape(shape)
    scores = step(scores * formula.scale)
    if formula.cap is not None:
        scores = step(step(np.tanh(step(scores / formula.cap))) * formula.cap)
    added = _added(given, formula, shape, rows)
    if added is None:
        return None
    hidden = np.broadcast_to(added <= _LOWEST, shape)
    if formula.masked:
        scores = step(scores + np.where(added <= _LOWEST, 0, added))
    weights, seen = _shares(np.where(hidden, -np.inf, scores), sinks)
    result = step(_grouped(step(weights), key) @ value)
    return result.reshape(*shape[:3], value.shape[3]), seen


def _scaled(heads: Array, scale: float, step: Step) -> Array:
    """Heads as kernels leave them that scale queries, or both factors by the root, beforehand.

    What a power of two scales keeps its digits.
    """
    factor = math.sqrt(scale)
    if math.frexp(factor)[0] == 0.5:
        return heads
    found: Array = step(heads * factor) / factor
    return found


def keys_and_queries(
    given: Given, formula: Formula, rows: Array, step: Step = lambda values: values
) -> tuple[Array, Array, Array] | None:
    """Queries of some tokens, and all keys and values, rotated; see :func:`context`."""
    query, key, value = given.query[:, :, rows], given.key, given.value
    if formula.rotary != "none":
        if given.tables is None or given.tables[0].shape[1] != key.shape[2]:
            return None
        cos, sin = (each[:, None] for each in given.tables)
        half = _angles(cos)
        if 2 * half.shape[-1] > query.shape[-1]:
            return None
        cos, sin = cos[..., half], sin[..., half]
        query = _rotated(query, cos[:, :, rows], sin[:, :, rows], formula.rotary, step)
        key = _rotated(key, cos, sin, formula.rotary, step)
    if formula.past:
        if given.past is None or given.past[0].shape[-1] != key.shape[-1]:
            return None
        key = np.concatenate((given.past[0], key), 2)
        value = np.concatenate((given.past[1], value), 2)
    return query, key, value


def _grouped(rows: Array, key: Array) -> Array:
    """Rows of all heads that share keys, one after the other: ``[B, Hk, G R, width]``."""
    found: Array = rows.reshape(rows.shape[0], key.shape[1], -1, rows.shape[3])
    return found


def _shares(scores: Array, sinks: Array | None) -> tuple[Array, Array]:
    """Softmax of scores, and which rows see a key; others are zero."""
    seen: Array = np.any(np.isfinite(scores), -1)
    top = np.where(seen, scores.max(-1), 0)
    own: Array = np.zeros(())
    if sinks is not None:
        top = np.maximum(top, sinks[:, None])
        own = np.exp(sinks[:, None] - top)
    weights = np.exp(scores - top[..., None])
    total = weights.sum(-1) + own
    return weights / np.where(total == 0, 1, total)[..., None], seen


def _added(given: Given, formula: Formula, shape: tuple[int, ...], rows: Array) -> Array | None:
    """What is added to scores ``[B, H, rows, keys]``; None where a mask is not of their shape."""
    tokens, keys = given.query.shape[2], shape[3]
    added = np.zeros((1, 1, len(rows), keys))
    for mask in given.masks if formula.masked else ():
        if mask.shape[2:] != (tokens, keys) or mask.shape[0] not in (1, shape[0]):
            return None
        some = mask[:, :, rows]
        added = added + (np.where(some, 0, -np.inf) if some.dtype == np.bool_ else _wide(some))
    if not formula.causal:
        return added
    behind = np.arange(keys) - (rows + keys - tokens)[:, None]
    hidden: Array = behind > 0
    if formula.window is not None:
        hidden = np.logical_or(hidden, behind <= -formula.window)
    return np.where(hidden, -np.inf, added)


def _angles(cos: Array) -> Array:
    """Which columns of a table have each angle once: some have it twice, in halves or in pairs."""
    width = cos.shape[-1]
    half = np.arange(width // 2)
    if width % 2 == 0 and np.array_equal(cos[..., half], cos[..., half + width // 2]):
        return half
    if width % 2 == 0 and np.array_equal(cos[..., ::2], cos[..., 1::2]):
        return 2 * half
    return np.arange(width)


def _rotated(heads: Array, cos: Array, sin: Array, rotary: Rotary, step: Step) -> Array:
    """Heads ``[B, H, T, D]`` turned by the angles of tables ``[B or 1, 1, T, R / 2]``."""
    half = cos.shape[-1]
    turned, rest = heads[..., : 2 * half], heads[..., 2 * half :]
    if rotary == "halves":
        one, other = turned[..., :half], turned[..., half:]
    else:
        one, other = turned[..., ::2], turned[..., 1::2]
    first = step(step(one * cos) - step(other * sin))
    second = step(step(other * cos) + step(one * sin))
    # Scores do not ask in which order the elements of a head come, but earlier keys have theirs.
    if rotary == "halves":
        found = np.concatenate((first, second), -1)
    else:
        found = np.stack((first, second), -1).reshape(turned.shape)
    return np.concatenate((found, rest), -1)
