"""Calls whose prompts have padding that their attention mask hides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.changes.catalogue import NotPossibleError
from ait_llm.dump.changes.prompts import CACHE
from ait_llm.dump.changes.rows import IDS, Undo

_WIDTHS = (3, 5, 7, 11, 13)
_PLACED = ("position_ids", "cache_position", "inputs_embeds", "labels", "logits_to_keep")


@dataclass(frozen=True, slots=True)
class Padded:
    """Padding that a call has been given.

    Attributes:
        start: place of the first padded column.
        width: columns.
    """

    start: int
    width: int


def pad(
    model: nn.Module,
    named: Mapping[str, Any],
    *,
    left: bool,
    generates: bool,
    parameters: frozenset[str],
    known: Padded | None = None,
) -> tuple[dict[str, Any], Undo, Padded]:
    """The arguments of the padded call, what takes the padding out of its results, and where it is.

    Args:
        model: what is called.
        named: arguments by name.
        left: before the tokens; else behind them.
        generates: the call is ``generate``, which counts positions itself.
        parameters: names that the call takes.
        known: of a call that goes on with a cache, the padding that it has.

    Raises:
        NotPossibleError: the model is not told of padding, or the call counts places itself.
    """
    name = next((each for each in IDS if isinstance(named.get(each), Tensor)), None)
    if name is None or named[name].dim() != 2:
        raise NotPossibleError("it is called without token ids")
    if not generates and "attention_mask" not in parameters:
        raise NotPossibleError("the model takes no attention mask")
    if not left and "cache_params" in parameters:
        raise NotPossibleError("it keeps a state, into which padding on the right goes")
    for each in _PLACED if known is None else ():
        if named.get(each) is not None:
            raise NotPossibleError(f"it is called with {each}, whose places padding moves")
    ids: Tensor = named[name]
    length = ids.shape[1]
    given = named.get("attention_mask")
    if given is not None and (not isinstance(given, Tensor) or given.dim() != 2):
        raise NotPossibleError("its attention mask is not of one row for each prompt")
    changed = dict(named)
    if known is None:
        width = next(each for each in _WIDTHS if length + each not in _sizes(model))
        padded = Padded(0 if left else length, width)
        changed[name] = _with(ids, padded, _token(model))
    else:
        padded = known
        changed.pop("cache_position", None)  # it counts the padding
    past = 0 if known is None else _tokens_in(named.get(CACHE)) - padded.width
    mask = ids.new_ones(len(ids), past + length) if given is None else given
    mask = _with(mask, padded, 0)
    changed["attention_mask"] = mask
    if not generates and "position_ids" in parameters and _counts(model):
        positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
        changed["position_ids"] = positions[:, -changed[name].shape[1] :]
    elif not generates and left:
        raise NotPossibleError("the model takes no positions, and counts padding on the left")
    encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if known is not None or (generates and encodes):  # what comes back is the decoder's
        return changed, Undo(lambda value: value), padded

    def back(value: Tensor) -> Tensor:
        for axis in range(1, value.dim()):
            if value.shape[axis] == length + padded.width or (
                generates and axis == 1 and not value.is_floating_point()
            ):
                value = _without(value, padded, axis)
        return value

    return changed, Undo(back), padded


def _tokens_in(cache: Any) -> int:
    return int(cache.get_seq_length())


def _with(value: Tensor, padded: Padded, fill: int) -> Tensor:
    front, rest = value[:, : padded.start], value[:, padded.start :]
    between = value.new_full((len(value), padded.width), fill)
    return torch.cat([front, between, rest], 1)


def _without(value: Tensor, padded: Padded, axis: int) -> Tensor:
    length = value.shape[axis]
    front = value.narrow(axis, 0, padded.start)
    end = padded.start + padded.width
    return torch.cat([front, value.narrow(axis, end, length - end)], axis)


def _sizes(model: nn.Module) -> set[int]:
    """Lengths of the axes of weights: padded prompts get a length that is none of them."""
    return {size for each in model.parameters() for size in each.shape}


def _counts(model: nn.Module) -> bool:
    """True where positions are those of a decoder; encoders number all places."""
    return bool(getattr(model, "can_generate", bool)())


def _token(model: nn.Module) -> int:
    config = getattr(model, "config", None)
    for holder in (config, getattr(model, "generation_config", None)):
        for name in ("pad_token_id", "eos_token_id"):
            value = getattr(holder, name, None)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            if isinstance(value, int) and value >= 0:
                return value
    return 0
