"""Faults that break one invariance of a small model, planted one by one.

Each is right without the change, as far as anybody can tell from one run: what it breaks shows only
against the change that it names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from healthy_runs.any_family import model_of
from torch import Tensor, nn

_PROMPT = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22]])
_PAIR = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])
Plant = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault.

    Attributes:
        name: of it.
        change: that shows it.
        where: path of the module whose code is wrong, as a capture names it.
        plant: puts it into a model.
        family: of the model.
        kind: of the table of its class.
        generates: the call is ``generate``; else the model itself with two rows.
        attention: of the model.
    """

    name: str
    change: str
    where: str
    plant: Plant
    family: str = "llama"
    kind: str = "CAUSAL_LM"
    generates: bool = True
    attention: str = "eager"

    def call(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """What is called with the fault in it, and its arguments."""
        model: Any = model_of(self.kind, self.family, self.attention, torch.float32)
        self.plant(model)
        if not self.generates:
            given: dict[str, Any] = {"input_ids": _PAIR}
            if self.kind == "SEQ_TO_SEQ_CAUSAL_LM":
                given["decoder_input_ids"] = _PAIR[:, :4]
            return model, given
        model.generation_config.update(eos_token_id=None, pad_token_id=0)
        return model.generate, {"input_ids": _PROMPT, "max_new_tokens": 3, "do_sample": False}


def _around(
    path: str,
    change: Callable[[Any, nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any],
) -> Plant:
    """Have something else around the code of a module."""

    def plant(model: Any) -> None:
        module = model.get_submodule(path)
        original = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            return change(model, module, original, args, kwargs)

        module.forward = forward

    return plant


def _output(path: str, change: Callable[[nn.Module, Tensor], Tensor]) -> Plant:
    """Have the first result of a module changed by its own code."""

    def around(
        _model: Any, module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        found = original(*args, **kwargs)
        if isinstance(found, tuple):
            return (change(module, found[0]), *found[1:])
        return change(module, found)

    return _around(path, around)


def _mask(path: str, change: Callable[[Tensor], Tensor]) -> Plant:
    """Have a module use another attention mask than it is given."""

    def around(
        _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if isinstance(kwargs.get("attention_mask"), Tensor):
            kwargs["attention_mask"] = change(kwargs["attention_mask"])
        return original(*args, **kwargs)

    return _around(path, around)


def _causal_only(mask: Tensor) -> Tensor:
    """The causal part of a mask alone: padding is seen."""
    queries, keys = mask.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    if mask.dtype == torch.bool:
        return seen.expand_as(mask).clone()
    return torch.zeros_like(mask).masked_fill(~seen, torch.finfo(mask.dtype).min)


def _soft(mask: Tensor) -> Tensor:
    """What is hidden is seen a little."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, -4.0)
    return mask.clamp(min=-4.0)


def _soft_padding(mask: Tensor) -> Tensor:
    """Padding is seen a little; the future is not."""
    causal = _causal_only(mask)
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(causal & ~mask, -4.0).masked_fill(~causal, -1e9)
    return torch.maximum(mask, causal.masked_fill(causal == 0, -4.0))


def _nothing_hidden(mask: Tensor) -> Tensor:
    return torch.ones_like(mask) if mask.dtype == torch.bool else torch.zeros_like(mask)


def _own_positions(
    _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Rotary positions counted from the first column of each call that has several."""
    x, positions = args[0], args[1] if len(args) > 1 else kwargs["position_ids"]
    if positions.shape[-1] > 1:
        start = int(positions.max()) + 1 - positions.shape[-1]
        positions = (torch.arange(positions.shape[-1]) + max(start, 0))[None].expand_as(positions)
    return original(x, position_ids=positions)


def _restarting_positions(
    _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Rotary positions that begin at 0 in every call of several tokens."""
    x, positions = args[0], args[1] if len(args) > 1 else kwargs["position_ids"]
    if positions.shape[-1] > 1:
        positions = positions - positions[:, :1]
    return original(x, position_ids=positions)


def _padded_places(
    _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """An embedding of positions that takes the column for the position."""
    ids = args[0]
    if ids.shape[-1] > 1:
        ids = torch.arange(ids.shape[-1])[None].expand_as(ids)
    return original(ids)


def _over_batch(module: Any, x: Tensor) -> Tensor:
    """A norm whose mean goes over the rows of the batch, too."""
    return (
        x
        if len(x) == 1
        else x
        * x.pow(2).mean(-1, keepdim=True).rsqrt()
        * x.pow(2).mean((0, -1), keepdim=True).sqrt()
    )


def _quantised(module: Any, x: Tensor) -> Tensor:
    """Rounded to steps of the largest value of the whole batch."""
    step = x.abs().amax() / 31
    return (x / step).round() * step


def _rolled(module: Any, x: Tensor) -> Tensor:
    return x if len(x) < 4 else x.roll(1, 0)


def _mixed(module: Any, x: Tensor) -> Tensor:
    return x + 0.01 * (x.sum(0, keepdim=True) - x)


def _without_first(module: Any, x: Tensor) -> Tensor:
    """Something that is done for the first row only."""
    return torch.cat([x[:1] * 1.02, x[1:]])


def _by_row(module: Any, x: Tensor) -> Tensor:
    return x + 0.01 * torch.arange(len(x)).reshape(-1, *[1] * (x.dim() - 1))


def _last_half(module: Any, x: Tensor) -> Tensor:
    """The last row of a batch of several is computed with less."""
    return x if len(x) < 2 else torch.cat([x[:-1], x[-1:] * 0.98])


def _counted(module: Any, x: Tensor) -> Tensor:
    """Drifts with the number of calls."""
    module.calls = getattr(module, "calls", 0) + 1
    return x * (1 + 0.004 * max(0, module.calls - 1))


def _remembered(module: Any, x: Tensor) -> Tensor:
    """Adds what was left by the prompt before."""
    found = x + 0.05 * getattr(module, "left", 0.0)
    if x.shape[1] > 1:
        module.left = x.mean((0, 1))
    return found


def _running(module: Any, x: Tensor) -> Tensor:
    """Subtracts a mean that is carried on from prompt to prompt."""
    mean = getattr(module, "mean", x.new_zeros(x.shape[-1]))
    if x.shape[1] > 1:
        module.mean = 0.9 * mean + 0.1 * x.mean((0, 1))
    return x - mean


def _scaled_alone(module: Any, x: Tensor) -> Tensor:
    """One token alone is scaled otherwise than a prompt."""
    return x * 0.98 if x.shape[1] == 1 else x


def _by_threads(module: Any, x: Tensor) -> Tensor:
    return x * (1 + 0.01 * torch.get_num_threads())


def _never_filled(module: Any, x: Tensor) -> Tensor:
    """Columns that fill up a block and are never written, times weights of zero."""
    block = torch.empty(*x.shape[:-1], 64)
    block[..., : x.shape[-1]] = x
    weights = torch.zeros(64, x.shape[-1])
    weights[: x.shape[-1]] = torch.eye(x.shape[-1])
    return block @ weights


def _largest_of_unwritten(module: Any, x: Tensor) -> Tensor:
    """A bound that is kept in memory which nobody has written."""
    bound = torch.empty(x.shape[-1]).clamp(-1e-30, 1e-30) * 0
    return torch.maximum(x, bound - 1e9)


def _in_compiled(module: Any, x: Tensor) -> Tensor:
    return x * 1.02 if torch.compiler.is_compiling() else x


_draws = itertools.count(1)


def _noisy(module: Any, x: Tensor) -> Tensor:
    return x * (1 + 1e-3 * next(_draws))


def _late_cache(layer: int) -> Plant:
    """Keys of a decoded token are those of the token before."""

    def around(
        _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        cache = kwargs.get("past_key_values")
        if cache is None:
            return original(*args, **kwargs)
        update = cache.update

        def late(keys: Tensor, values: Tensor, index: int, *more: Any, **other: Any) -> Any:
            all_keys, all_values = update(keys, values, index, *more, **other)
            if keys.shape[-2] == 1:
                all_keys = torch.cat([all_keys[..., :-1, :], all_keys[..., -2:-1, :]], -2)
            return all_keys, all_values

        cache.update = late
        try:
            return original(*args, **kwargs)
        finally:
            del cache.update

    return _around(f"model.layers.{layer}.self_attn", around)


def _coarse_cache(layer: int) -> Plant:
    """What is read from a cache is rounded coarsely, and what is computed is not."""

    def around(
        _model: Any, _module: nn.Module, original: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        cache = kwargs.get("past_key_values")
        if cache is None:
            return original(*args, **kwargs)
        update = cache.update

        def coarse(keys: Tensor, values: Tensor, index: int, *more: Any, **other: Any) -> Any:
            all_keys, all_values = update(keys, values, index, *more, **other)
            old = all_values.shape[-2] - values.shape[-2]
            kept = (all_values[..., :old, :] * 8).round() / 8
            return all_keys, torch.cat([kept, all_values[..., old:, :]], -2)

        cache.update = coarse
        try:
            return original(*args, **kwargs)
        finally:
            del cache.update

    return _around(f"model.layers.{layer}.self_attn", around)


def _unshifted(mask: Tensor) -> Tensor:
    """A mask of a later chunk that hides as if it were the first."""
    queries, keys = mask.shape[-2:]
    if queries == 1 or queries == keys:
        return mask
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(0)
    if mask.dtype == torch.bool:
        return seen.expand_as(mask).clone()
    return torch.zeros_like(mask).masked_fill(~seen, torch.finfo(mask.dtype).min)


def _sdpa_scale(model: Any) -> None:
    """The other attention divides by another number."""
    for layer in model.model.layers:
        attention = layer.self_attn
        original = attention.forward

        def forward(
            *args: Any, _own: Any = attention, _original: Any = original, **kwargs: Any
        ) -> Any:
            before = _own.scaling
            if _own.config._attn_implementation == "sdpa":
                _own.scaling = before * 0.9
            try:
                return _original(*args, **kwargs)
            finally:
                _own.scaling = before

        attention.forward = forward


def _sdpa_unmasked(model: Any) -> None:
    """The other attention of one layer sees the future."""
    attention = model.model.layers[1].self_attn
    original = attention.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if attention.config._attn_implementation == "sdpa":
            mask = kwargs.get("attention_mask")
            hidden = kwargs.get("hidden_states", args[0] if args else None)
            length = hidden.shape[1]
            kwargs["attention_mask"] = torch.zeros(
                1, 1, length, length if mask is None else mask.shape[-1]
            )
        return original(*args, **kwargs)

    attention.forward = forward


def planted() -> Iterator[Planted]:
    """All faults."""
    attention = ["root.model.layers.0.self_attn", "root.model.layers.1.self_attn"]
    for layer in (0, 1):
        path = f"model.layers.{layer}.self_attn"
        yield Planted(
            f"mask ignores padding {layer}",
            "padding-left",
            attention[layer],
            _mask(path, _causal_only),
        )
        yield Planted(
            f"padding is seen a little {layer}",
            "padding-left",
            attention[layer],
            _mask(path, _soft_padding),
        )
        yield Planted(f"cache one late {layer}", "no-cache", attention[layer], _late_cache(layer))
        yield Planted(f"coarse cache {layer}", "no-cache", attention[layer], _coarse_cache(layer))
        yield Planted(
            f"mask of a chunk not shifted {layer}",
            "chunks",
            attention[layer],
            _mask(path, _unshifted),
        )
        yield Planted(f"coarse prefix {layer}", "prefix", attention[layer], _coarse_cache(layer))
    rotary = "root.model.rotary_emb"
    yield Planted(
        "positions of padded columns",
        "padding-left",
        rotary,
        _around("model.rotary_emb", _own_positions),
    )
    yield Planted(
        "positions restart in a chunk",
        "chunks",
        rotary,
        _around("model.rotary_emb", _restarting_positions),
    )
    yield Planted(
        "positions restart behind a prefix",
        "prefix",
        rotary,
        _around("model.rotary_emb", _restarting_positions),
    )
    yield Planted(
        "learned positions of padded columns",
        "padding-left",
        "root.transformer.wpe",
        _around("transformer.wpe", _padded_places),
        family="gpt2",
    )
    bert = "bert.encoder.layer.1.attention.self"
    yield Planted(
        "an encoder ignores padding",
        "padding-right",
        f"root.{bert}",
        _mask(bert, _nothing_hidden),
        family="bert",
        kind="MASKED_LM",
        generates=False,
    )
    yield Planted(
        "an encoder sees padding a little",
        "padding-right",
        f"root.{bert}",
        _mask(bert, _soft),
        family="bert",
        kind="MASKED_LM",
        generates=False,
    )
    norm, mlp = "model.layers.1.input_layernorm", "model.layers.0.mlp"
    yield Planted("a norm over the batch", "batch", f"root.{norm}", _output(norm, _over_batch))
    yield Planted(
        "one scale for the batch",
        "batch",
        f"root.{mlp}.up_proj",
        _output(f"{mlp}.up_proj", _quantised),
        generates=False,
    )
    yield Planted(
        "rows rolled in large batches",
        "batch",
        "root.model.layers.0.self_attn.o_proj",
        _output("model.layers.0.self_attn.o_proj", _rolled),
    )
    yield Planted("rows mixed", "batch", f"root.{mlp}", _output(mlp, _mixed))
    yield Planted(
        "the last row is another", "batch", f"root.{mlp}", _output(mlp, _last_half), generates=False
    )
    yield Planted(
        "the first row is another", "place", f"root.{norm}", _output(norm, _without_first)
    )
    yield Planted(
        "depends on the number of the row",
        "place",
        f"root.{mlp}.down_proj",
        _output(f"{mlp}.down_proj", _by_row),
    )
    yield Planted(
        "drifts with calls", "after", f"root.{mlp}", _output(mlp, _counted), generates=False
    )
    yield Planted("keeps the prompt before", "after", f"root.{mlp}", _output(mlp, _remembered))
    yield Planted("a running mean", "after", f"root.{norm}", _output(norm, _running))
    yield Planted("a token alone is scaled", "no-cache", f"root.{mlp}", _output(mlp, _scaled_alone))
    yield Planted(
        "depends on threads",
        "threads",
        f"root.{mlp}.gate_proj",
        _output(f"{mlp}.gate_proj", _by_threads),
    )
    yield Planted(
        "a block that is never filled", "memory", f"root.{mlp}", _output(mlp, _never_filled)
    )
    yield Planted(
        "an unwritten bound", "memory", f"root.{norm}", _output(norm, _largest_of_unwritten)
    )
    yield Planted("another scale in sdpa", "attention", attention[0], _sdpa_scale)
    yield Planted(
        "sdpa sees the future", "attention", attention[1], _sdpa_unmasked, generates=False
    )
    yield Planted(
        "compiled code is another",
        "compile",
        f"root.{mlp}",
        _output(mlp, _in_compiled),
        generates=False,
    )
    yield Planted("random", "again", f"root.{mlp}", _output(mlp, _noisy))
