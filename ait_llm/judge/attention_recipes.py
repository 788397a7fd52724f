"""What the code of an attention module may compute, as far as shapes and names tell.

Families differ in how they join projections, in which elements of a head turn together, in what
hides keys. Which of the ways is right is left to golden's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any

from ait_llm.judge.attention_formula import Formula, Rotary
from ait_llm.judge.attention_parts import (
    DOWN,
    JOINED,
    KEY,
    LATENT,
    QUERY,
    UP,
    VALUE,
    Attention,
    Layout,
    Part,
    Parts,
    Recipe,
)

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "total_num_heads")
_WIDTHS = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim", "d_kv")
_SCALES = ("scaling", "softmax_scale", "sm_scale", "attn_scale", "scale")
_CAPS = ("attn_logit_softcapping", "attention_logit_softcapping", "logits_soft_cap")
_WINDOWS = ("sliding_window", "sliding_window_size")
_MOST_MASKS = 3
_JOINED_LAYOUTS: tuple[Layout, ...] = ("blocks", "groups")


def recipes(attention: Attention) -> Iterator[Recipe]:
    """All ways to read an attention that fit the shapes, the likeliest first."""
    if len(attention.result.shape) != 3:
        return
    for parts in _parts(attention):
        yield from _computed(attention, parts)


def _computed(attention: Attention, parts: Parts) -> Iterator[Recipe]:
    """What may be computed of queries, keys and values."""
    width = _width_of(attention, parts[0])
    turns: list[tuple[Rotary, tuple[str, str] | None]] = []
    for table in _tables(attention, width):
        turns += [("halves", table), ("pairs", table)]
    turns.append(("none", None))
    scales = [*_numbers(_SCALES, attention.module.definition), width**-0.5, 1.0]
    caps = [*_numbers(_CAPS, attention.settings), None]
    pasts = [*attention.pasts(), None]
    for past in pasts:
        keys = _keys_of(attention, parts[1])
        keys += 0 if past is None else attention.tensor(past[0]).shape[2]
        ways = product(turns, dict.fromkeys(scales), _hiding(attention, keys), dict.fromkeys(caps))
        for (rotary, table), scale, (masks, causal, window), cap in ways:
            formula = Formula(
                scale,
                rotary,
                masked=bool(masks),
                causal=causal,
                window=window,
                cap=cap,
                past=past is not None,
                sinks=attention.sinks is not None,
            )
            yield Recipe(parts, formula, table, masks, past)


def _hiding(attention: Attention, keys: int) -> list[tuple[tuple[str, ...], bool, int | None]]:
    """Masks that are added, whether later keys are hidden, and the window of those seen."""
    tokens = attention.result.shape[1]
    module = attention.module
    masks = [
        tensor.stem
        for tensor in (*module.inputs, *module.outputs)
        if len(tensor.shape) == 4 and tuple(tensor.shape[-2:]) == (tokens, keys)
    ][:_MOST_MASKS]
    found: list[tuple[tuple[str, ...], bool, int | None]] = [
        (stems, False, None) for most in (1, 2) for stems in combinations(masks, most)
    ]
    if 1 < tokens <= keys:
        windows = [*map(int, _numbers(_WINDOWS, attention.settings)), None]
        choices = [(), *((stem,) for stem in masks)]
        found += [(stems, True, each) for stems in choices for each in dict.fromkeys(windows)]
    return [*found, ((), False, None)]


def _parts(attention: Attention) -> Iterator[Parts]:
    """Where queries, keys and values may be."""
    query, key, value = (attention.last(pattern) for pattern in (QUERY, KEY, VALUE))
    joined = attention.last(JOINED)
    if query and attention.has(UP, DOWN):
        yield from _latent(attention, query)
    for width in dict.fromkeys(_widths(attention, query, key)):
        if width < 1:
            continue
        if joined and not value:
            yield from _joined(attention, joined, width, query, key)
        elif query and key and value:
            heads, shared = (_heads_of(attention, name, width) for name in (query, key))
            if heads and shared and heads % shared == 0:
                own = [
                    Part(name, "tokens", place, count, heads, shared)
                    for place, (name, count) in enumerate(
                        ((query, heads), (key, shared), (value, shared))
                    )
                ]
                yield _normed(attention, own, "", "")


def _joined(attention: Attention, joined: str, width: int, query: str, key: str) -> Iterator[Parts]:
    """Those of a joined projection, of which heads may be normed one by one."""
    total = attention.made(joined).shape[-1]
    known = [*map(int, _numbers(_HEADS, attention.settings)), attention.result.shape[-1] // width]
    for heads in dict.fromkeys(known):
        shared, rest = divmod(total // width - heads, 2)
        if rest or total % width or shared < 1 or heads < 1 or heads % shared:
            continue
        counts = (heads, shared, shared)
        for layout in _JOINED_LAYOUTS:
            own = [
                Part(joined, layout, place, count, heads, shared)
                for place, count in enumerate(counts)
            ]
            yield _normed(attention, own, query, key)


def _latent(attention: Attention, query: str) -> Iterator[Parts]:
    """Keys and values of one vector of few elements."""
    stated = [attention.module.definition.get(name) for name in LATENT]
    widths = [each for each in stated if isinstance(each, int) and each > 0]
    shape = attention.made(query).shape
    if len(widths) != len(LATENT) or len(shape) != 3:
        return
    heads, rest = divmod(shape[-1], widths[0] + widths[1])
    if not rest and attention.made(UP).shape[-1] == heads * (widths[0] + widths[2]):
        one, two, three = (
            Part(name, "latent", place, heads, heads, heads)
            for place, name in enumerate((query, UP, UP))
        )
        yield one, two, three


def _normed(attention: Attention, own: Sequence[Part], query: str, key: str) -> Parts:
    """The parts, with heads that are normed one by one where they are."""
    found = []
    for part, normed in zip(own, (query, key, ""), strict=True):
        name = normed or part.member
        shape = attention.made(name).shape
        layout = part.layout
        if len(shape) == 4:
            layout = "heads" if _is_heads_first(attention, shape) else "tokens"
        if normed and len(shape) != 4:
            name = part.member
        found.append(Part(name, layout, part.place, part.heads, part.queries, part.shared))
    return found[0], found[1], found[2]


def _is_heads_first(attention: Attention, shape: Sequence[int]) -> bool:
    return shape[1] != attention.result.shape[1]


def _heads_of(attention: Attention, name: str, width: int) -> int:
    shape = attention.made(name).shape
    if len(shape) == 4:
        return shape[1 if _is_heads_first(attention, shape) else 2]
    return shape[-1] // width if len(shape) == 3 and shape[-1] % width == 0 else 0


def _keys_of(attention: Attention, part: Part) -> int:
    shape = attention.made(part.member).shape
    return shape[2 if len(shape) == 4 and part.layout in ("heads", "latent") else 1]


def _width_of(attention: Attention, part: Part) -> int:
    shape = attention.made(part.member).shape
    if len(shape) == 4:
        return shape[-1]
    is_joined = part.layout in _JOINED_LAYOUTS
    return shape[-1] // (part.heads + 2 * part.shared if is_joined else part.heads)


def _widths(attention: Attention, query: str, key: str) -> Iterator[int]:
    """Widths that a head may have."""
    for name in (query, key):
        if name and len(attention.made(name).shape) == 4:
            yield attention.made(name).shape[-1]
    for past, _ in attention.pasts():
        yield attention.tensor(past).shape[-1]
    yield from map(int, _numbers(_WIDTHS, attention.settings))
    for heads in map(int, _numbers(_HEADS, attention.settings)):
        yield attention.result.shape[-1] // max(1, heads)
    for table, _ in _tables(attention, attention.result.shape[-1]):
        yield attention.tensor(table).shape[-1]


def _tables(attention: Attention, width: int) -> Iterator[tuple[str, str]]:
    """Cosines and sines among what the module gets, or what a member of it makes."""
    tokens = attention.result.shape[1]
    for prefix, tensors in attention.places():
        fit = [
            each
            for each in tensors
            if len(each.shape) in (2, 3)
            and each.dtype.is_floating
            and each.shape[-2] == tokens
            and 2 <= each.shape[-1] <= width
        ]
        for one, other in pairwise(fit):
            if one.shape == other.shape:
                yield prefix + one.stem, prefix + other.stem


def _numbers(names: Sequence[str], stated: Mapping[str, Any]) -> list[float]:
    """Positive numbers that are stated under some names."""
    found = (stated.get(name) for name in names)
    return [
        each
        for each in found
        if isinstance(each, (int, float)) and not isinstance(each, bool) and each > 0
    ]
