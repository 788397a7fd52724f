"""Faults that are put into vLLM or into the configuration that it reads, and where they are.

A fault of the configuration is one that golden does not have: it reads the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bug:
    """A fault.

    Attributes:
        origin: what the name of the module that is wrong matches, as a regular expression.
        config: values in place of those of the checkpoint's configuration.
        patch: puts it into vLLM, before a model is made.
        families: that have it.
        everywhere: all layers have it, and ``origin`` names the first.
        others: what the names of further modules match that are wrong.
    """

    origin: str
    config: dict[str, Any] = field(default_factory=dict)
    patch: Callable[[], None] | None = None
    families: tuple[str, ...] = ("llama", "qwen3", "mixtral", "gemma2")
    everywhere: bool = True
    others: str = "$^"

    @property
    def guilty(self) -> str:
        """What the names of all modules match that are wrong."""
        every = self.origin.replace(r"layers\.0", r"layers\.\d+")
        return f"{every if self.everywhere else self.origin}|{self.others}"


def _replace(place: str, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method of a class of vLLM, ``module:Class``."""
    import importlib

    module, _, kind = place.partition(":")
    owner = getattr(importlib.import_module(module), kind)
    setattr(owner, name, make(getattr(owner, name)))


def _scale() -> None:
    def make(init: Any) -> Any:
        def changed(self: Any, num_heads: int, head_size: int, scale: float, *a: Any, **k: Any):
            init(self, num_heads, head_size, scale * 1.25, *a, **k)

        return changed

    _replace("vllm.model_executor.layers.attention:Attention", "__init__", make)


def _heads() -> None:
    def make(forward: Any) -> Any:
        def changed(self: Any, query: Any, *rest: Any, **named: Any) -> Any:
            turned = query.reshape(len(query), -1, 64).roll(1, dims=1).reshape(query.shape)
            return forward(self, turned, *rest, **named)

        return changed

    _replace("vllm.model_executor.layers.attention:Attention", "forward", make)


def _positions() -> None:
    """Each row is turned by its position in the pass, not by that in its request."""

    def make(forward: Any) -> Any:
        def changed(self: Any, positions: Any, *rest: Any, **named: Any) -> Any:
            import torch

            return forward(self, torch.arange(len(positions)), *rest, **named)

        return changed

    base = "vllm.model_executor.layers.rotary_embedding.base:RotaryEmbedding"
    _replace(base, "forward", make)


def _activation(wrong: str) -> Callable[[], None]:
    def patch() -> None:
        def make(_forward: Any) -> Any:
            def changed(self: Any, x: Any) -> Any:
                from torch.nn import functional

                gate, up = x.chunk(2, dim=-1)
                return getattr(functional, wrong)(gate) * up

            return changed

        for kind in ("SiluAndMul", "GeluAndMul"):
            _replace(f"vllm.model_executor.layers.activation:{kind}", "forward", make)

    return patch


def _in_layer(kind: str, path: str, change: Callable[[Any], Any]) -> Callable[[], None]:
    """Change what modules of a class return whose prefix ends so."""

    def patch() -> None:
        def make(forward: Any) -> Any:
            def changed(self: Any, *args: Any, **named: Any) -> Any:
                found = forward(self, *args, **named)
                return change(found) if getattr(self, "prefix", "").endswith(path) else found

            return changed

        _replace(f"vllm.model_executor.layers.linear:{kind}", "forward", make)

    return patch


def _scaled(found: Any) -> Any:
    return (found[0] * 1.1, *found[1:]) if isinstance(found, tuple) else found * 1.1


def _zero_column(found: Any) -> Any:
    values = (found[0] if isinstance(found, tuple) else found).clone()
    values[:, 7] = 0
    return (values, *found[1:]) if isinstance(found, tuple) else values


def _not_normalised() -> None:
    """The shares of the chosen experts do not add up to one."""
    import importlib

    mixtral = importlib.import_module("vllm.model_executor.models.mixtral")
    right = mixtral.FusedMoEFactory

    def wrong(*args: Any, **named: Any) -> Any:
        return right(*args, **{**named, "renormalize": False})

    mixtral.FusedMoEFactory = wrong


def _residual() -> None:
    """The norm behind attention forgets what came in."""

    def make(forward: Any) -> Any:
        def changed(self: Any, x: Any, residual: Any = None, *rest: Any) -> Any:
            if residual is not None:
                residual = residual * 0.9
            return forward(self, x, residual, *rest)

        return changed

    for kind in ("RMSNorm", "GemmaRMSNorm"):
        _replace(f"vllm.model_executor.layers.layernorm:{kind}", "forward", make)


_NORM = r"layers\.0\.(input_layernorm|self_attn\.q_norm)$"
BUGS = {
    "epsilon": Bug(r"layers\.0\.input_layernorm$", {"rms_norm_eps": 0.3}),
    "theta": Bug(
        r"layers\.0\.self_attn(\.rotary_emb(\.apply_rotary_emb)?)?$",
        {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
    ),
    "scale": Bug(r"layers\.0\.self_attn\.attn$", patch=_scale),
    "heads": Bug(r"layers\.0\.self_attn\.attn$", patch=_heads),
    "positions": Bug(
        r"layers\.0\.self_attn(\.rotary_emb(\.apply_rotary_emb)?)?$", patch=_positions
    ),
    "activation": Bug(
        r"layers\.0\.mlp\.act_fn$",
        patch=_activation("relu"),
        families=("llama", "qwen3", "gemma2"),
    ),
    "residual": Bug(
        r"layers\.(0\.post_attention_layernorm|0\.pre_feedforward_layernorm|1\.input_layernorm)$",
        patch=_residual,
        others=r"(post_attention|pre_feedforward|[1-9]\.input)_layernorm$|model\.norm$",
        families=("llama", "qwen3", "mixtral"),
    ),
    "output": Bug(
        r"layers\.1\.self_attn\.o_proj$",
        patch=_in_layer("RowParallelLinear", "layers.1.self_attn.o_proj", _scaled),
        everywhere=False,
    ),
    "column": Bug(
        r"layers\.0\.self_attn\.qkv_proj$",
        patch=_in_layer("ColumnParallelLinear", "layers.0.self_attn.qkv_proj", _zero_column),
        everywhere=False,
    ),
    "experts": Bug(
        r"layers\.0\.block_sparse_moe\.experts$", patch=_not_normalised, families=("mixtral",)
    ),
    "one-expert": Bug(
        r"layers\.0\.block_sparse_moe\.experts$", {"num_experts_per_tok": 1}, families=("mixtral",)
    ),
    "softcap": Bug(r"logits_processor$", {"final_logit_softcapping": 2.0}, families=("gemma2",)),
}
"""Eight for each family."""
