"""Fused attention of the graph engine, of real numbers, written out.

Sources: the prototypes of CANN (``REG_OP``) and its pages on ``PromptFlashAttention``,
``IncreFlashAttention``, ``FusedInferAttentionScore`` and ``FlashAttentionScore``. What they leave
open, and quantised keys and results, is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ait_llm.opcheck.golden.aten.written_out import attention
from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, integers, named

_KNOWN = frozenset(
    {
        "query",
        "key",
        "value",
        "atten_mask",
        "pse_shift",
        "actual_seq_lengths",
        "actual_seq_lengths_kv",
        "block_table",
        "query_rope",
        "key_rope",
    }
)
_LISTED = re.compile(r"(key|value)0")  # of inputs that are lists, here of one tensor
_FLAGS = (torch.bool, torch.int8, torch.uint8)
# Axes of requests, heads, tokens and elements; of joined ones the elements of all heads come last.
_ORDERS: Mapping[str, tuple[int, ...]] = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}
_JOINED = {"BSH": (0, 1), "SBH": (1, 0)}
# Tokens of all requests after each other, with axes of heads and elements.
_PACKED: Mapping[str, tuple[int, ...]] = {"TND": (1, 0, 2), "NTD": (0, 1, 2)}
_ALL = 2**31 - 1
# Numbers of ``sparse_mode``: a mask and a band, a mask, later keys counted from the first and from
# the last one, and a band around the last one.
_BAND, _MASK, _FROM_FIRST, _FROM_LAST, _BAND_FROM_LAST = range(5)


@engine_op("PromptFlashAttention", attributes=True)
def _prompt(part: Part) -> Compute | None:
    return _defined(part, "num_heads", "scale_value", lengths="actual_seq_lengths_kv")


@engine_op("IncreFlashAttention", attributes=True)
def _one_token(part: Part) -> Compute | None:
    return _defined(part, "num_heads", "scale_value", lengths="actual_seq_lengths")


@engine_op("FusedInferAttentionScore", attributes=True, checked=frozenset({0}))
def _both(part: Part) -> Compute | None:
    return _defined(part, "num_heads", "scale", lengths="actual_seq_lengths_kv")


@engine_op("FlashAttentionScore", attributes=True, checked=frozenset({3}))
def _training(part: Part) -> Compute | None:
    """The statistics of its softmax, which come first, are kept for a backward pass."""
    compute = _defined(part, "head_num", "scale_value", lengths="")
    if compute is None or part.number("keep_prob", 1.0) != 1.0:
        return None
    return lambda *given: {3: compute(*given)}


def _defined(part: Part, heads: str, scale: str, *, lengths: str) -> Compute | None:
    """``softmax(query key' scale + shift) value`` without the keys that are hidden.

    Args:
        part: the operator.
        heads, scale: names of the attributes.
        lengths: name of the input that says how many keys there are; empty if none does.
    """
    count, factor = part.axis(heads), part.number(scale, 1.0)
    layout = part.attr("input_layout", "BSH")
    if not count or factor is None or not isinstance(layout, str) or not part.ports:
        return None
    if part.made is not None and not part.made.is_floating_point:
        return None

    ports = [_LISTED.sub(r"\1", name) for name in part.ports]

    def compute(*given: Tensor | None) -> Tensor:
        fed = named(ports, given, _KNOWN)
        if not fed.keys() >= {"query", "key", "value"}:
            raise UnverifiableError("it is not fed queries, keys and values")
        order, _, back = layout.partition("_")
        if order not in _PACKED:
            return _laid_out(attended(fed, order), back or order)
        parts = [attended(each, "BNSD")[0] for each in _requests(part, fed, order, lengths)]
        return torch.cat(parts, 1).permute(_PACKED[back or order])

    def attended(fed: Mapping[str, Tensor], order: str) -> Tensor:
        query = _heads(fed["query"], order, count)
        width = query.shape[-1]
        key, value = (_cached(fed, name, order, width) for name in ("key", "value"))
        if "query_rope" in fed:
            query = torch.cat((query, _heads(fed["query_rope"], order, count)), -1)
            turned = _cached(fed, "key_rope", order, fed["key_rope"].shape[-1])
            key = torch.cat((key, turned), -1)
        kept = _lengths(fed.get(lengths), query.shape[0], key.shape[2])
        _refuse_shorter(fed, lengths, query)
        seen = _seen(part, fed, query, key, kept)
        hidden = torch.arange(key.shape[2]) >= torch.tensor(kept)[:, None]
        key, value = (
            one.masked_fill(hidden[:, None, :, None], 0.0) for one in (key, value)
        )  # nobody knows what a cache holds behind the last key
        return attention(
            {
                "query": query,
                "key": key,
                "value": value,
                "attn_mask": _shifted(fed.get("pse_shift"), seen),
                "scale": factor,
            }
        )

    return compute


def _requests(
    part: Part, fed: Mapping[str, Tensor], order: str, lengths: str
) -> Iterator[dict[str, Tensor]]:
    """What each request of a packed batch is fed, ``[1, heads, tokens, elements]``.

    ``actual_seq_lengths`` are the places behind the last token of each; for keys, too, unless they
    lie in pages, of which each request has its own number.

    Raises:
        UnverifiableError: it does not say where requests end, or has a mask of its own.
    """
    paged = "block_table" in fed
    if "actual_seq_lengths" not in fed or lengths not in fed or "pse_shift" in fed:
        raise UnverifiableError("it does not say where its packed requests end")
    if part.axis("sparse_mode", 0) in (_BAND, _MASK, None) and "atten_mask" in fed:
        raise UnverifiableError("what the mask of its packed requests hides is not defined here")
    queries = _places(fed["actual_seq_lengths"], fed["query"].shape[_PACKED[order][1]])
    count = len(queries)
    if paged:
        kept = [slice(0, each) for each in integers(fed[lengths])]
    else:
        kept = _places(fed[lengths], fed["key"].shape[_PACKED[order][1]])
    if len(kept) != count or (paged and len(fed["block_table"]) != count):
        raise UnverifiableError("its packed requests are not as many as their keys")
    for number, (own, keys) in enumerate(zip(queries, kept, strict=True)):
        one = {name: fed[name] for name in ("atten_mask",) if name in fed}
        for name in ("query", "query_rope", "key", "value", "key_rope"):
            if name not in fed:
                continue
            if name.startswith("query") or not paged:
                rows = fed[name].permute(_PACKED[order])
                one[name] = rows[:, own if name.startswith("query") else keys][None]
            else:
                one[name] = fed[name]
        if paged:
            one["block_table"] = fed["block_table"][number : number + 1]
            one[lengths] = torch.tensor([keys.stop])
        if one["query"].shape[2]:
            yield one


def _places(ends: Tensor, tokens: int) -> list[slice]:
    """Where each request lies among all tokens."""
    found = integers(ends)
    starts = [0, *found[:-1]]
    if found[-1:] != [tokens] or any(a > b for a, b in zip(starts, found, strict=True)):
        raise UnverifiableError("its packed requests do not end where its tokens do")
    return [slice(start, end) for start, end in zip(starts, found, strict=True)]


def _heads(tensor: Tensor, order: str, heads: int) -> Tensor:
    """``[requests, heads, tokens, elements]``."""
    if order in _ORDERS and tensor.dim() == 4:
        found = tensor.permute(_ORDERS[order])
        if found.shape[1] == heads:
            return found
    if order in _JOINED and tensor.dim() == 3 and tensor.shape[-1] % heads == 0:
        found = tensor.permute(*_JOINED[order], 2)
        return found.reshape(*found.shape[:2], heads, -1).transpose(1, 2)
    raise UnverifiableError(f"its layout {order} is not defined here for these dims")


def _cached(fed: Mapping[str, Tensor], name: str, order: str, width: int) -> Tensor:
    """Keys or values, those of paged caches gathered: ``[requests, heads, tokens, elements]``.

    Pages are ``[pages, tokens, elements of all heads]`` or ``[pages, heads, tokens, elements]``.
    """
    tensor = fed[name]
    table = fed.get("block_table")
    if table is not None:
        rows = table.long().clamp(min=0, max=len(tensor) - 1)
        pages = tensor[rows.reshape(-1)].reshape(*rows.shape, *tensor.shape[1:])
        if tensor.dim() == 4:
            return pages.permute(0, 2, 1, 3, 4).flatten(2, 3)
        if tensor.dim() != 3 or tensor.shape[-1] % width:
            raise UnverifiableError("its cache has dims that are not defined here")
        tensor, order = pages.flatten(1, 2), "BSH"
    heads = tensor.shape[-1] // width
    if order in _ORDERS and tensor.dim() == 4:
        heads = tensor.shape[_ORDERS[order][1]]
    return _heads(tensor, order, max(1, heads))


def _lengths(tensor: Tensor | None, requests: int, keys: int) -> list[int]:
    """How many keys each request has."""
    found = [keys] if tensor is None else integers(tensor)
    found = found * requests if len(found) == 1 else found
    if len(found) != requests or not all(0 < each <= keys for each in found):
        raise UnverifiableError("the lengths of its keys do not fit")
    return found


def _refuse_shorter(fed: Mapping[str, Tensor], lengths: str, query: Tensor) -> None:
    """What is made of tokens behind the last one is not said anywhere."""
    own = None if lengths == "actual_seq_lengths" else fed.get("actual_seq_lengths")
    if own is not None and any(each != query.shape[2] for each in integers(own)):
        raise UnverifiableError("some of its requests have fewer tokens than it is given")
    if "block_table" in fed and lengths not in fed:
        raise UnverifiableError("it does not say how much of its paged cache is filled")


def _seen(
    part: Part, fed: Mapping[str, Tensor], query: Tensor, key: Tensor, kept: Sequence[int]
) -> Tensor:
    """Which keys each token sees: ``[requests or 1, heads or 1, tokens, keys]``.

    Raises:
        UnverifiableError: a token sees none, which kernels treat differently, or the prototype
            does not say what is hidden.
    """
    requests, _, tokens, _ = query.shape
    keys = key.shape[2]
    at, row = torch.arange(keys), torch.arange(tokens)[:, None]
    seen = (at < torch.tensor(kept)[:, None, None]).expand(-1, tokens, -1)[:, None]
    mode, mask = part.axis("sparse_mode", 0), fed.get("atten_mask")
    if mode == _FROM_FIRST:
        seen = seen & (at <= row)
    elif mode == _FROM_LAST:
        seen = seen & (at <= row + (torch.tensor(kept) - tokens)[:, None, None])[:, None]
    elif mode == _BAND_FROM_LAST:
        before, after = _band(part)
        middle = row + (torch.tensor(kept) - tokens)[:, None, None]
        seen = seen & ((at >= middle - before) & (at <= middle + after))[:, None]
    elif mode in (_BAND, _MASK, None):
        if mask is not None:
            seen = seen & ~_hides(mask, requests, tokens, keys)
            _refuse_band(part, mode, seen, row, at)
    else:
        raise UnverifiableError(f"what sparse_mode {mode} hides is not defined here")
    if not bool(seen.any(-1).all()):
        raise UnverifiableError("a token of it sees no key, which kernels treat differently")
    return seen


def _hides(mask: Tensor, requests: int, tokens: int, keys: int) -> Tensor:
    """Places that a mask hides, ``[requests or 1, heads or 1, tokens, keys]``."""
    if mask.dtype not in _FLAGS:
        raise UnverifiableError("how its mask of real numbers hides keys is not defined here")
    if mask.shape[-1] == keys and mask.numel() in (requests * tokens * keys, tokens * keys):
        return mask.bool().reshape(-1, 1, tokens, keys)
    raise UnverifiableError("its mask has dims that are not defined here")


def _refuse_band(part: Part, mode: int | None, seen: Tensor, row: Tensor, at: Tensor) -> None:
    """A band beside a mask has to leave what the mask leaves: where it begins is not said."""
    if mode != _BAND:
        return
    before, after = _band(part)
    outside = (at < row - before) | (at > row + after)
    if bool((seen & outside).any()):
        raise UnverifiableError("its mask shows keys outside of its band")


def _band(part: Part) -> tuple[int, int]:
    """How many keys before and behind its own a token sees."""
    names = ("pre_tokens", "next_tokens"), ("pre_tockens", "next_tockens")
    before, after = (part.axis(name, _ALL) for name in names[part.type == "FlashAttentionScore"])
    if before is None or after is None:
        raise UnverifiableError("how wide its band is is not known")
    return before, after


def _shifted(shift: Tensor | None, seen: Tensor) -> Tensor:
    if shift is None:
        return seen
    if shift.dim() != 4 or shift.shape[2:] != seen.shape[2:]:
        raise UnverifiableError("what is added to its scores has dims that are not defined here")
    return shift.masked_fill(~seen, float("-inf"))


def _laid_out(found: Tensor, order: str) -> Tensor:
    if order in _ORDERS:
        return found.permute(_ORDERS[order])
    return found.transpose(1, 2).flatten(2).permute(*_JOINED[order], 2)
