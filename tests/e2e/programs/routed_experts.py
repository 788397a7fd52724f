"""One pass of a tiny model with routed experts: FAMILY ATTENTION DTYPE FAULT."""

import sys
from typing import Any

import torch
from torch.nn import functional
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 97,
    "num_experts_per_tok": 2,
}
FAMILIES = {
    "mixtral": (MixtralForCausalLM, MixtralConfig, {"num_local_experts": 4}),
    "qwen3-moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig,
        {"num_experts": 4, "moe_intermediate_size": 48, "norm_topk_prob": True},
    ),
}


def make(family: str, attention: str) -> PreTrainedModel:
    """The same model in each process."""
    kind, config, more = FAMILIES[family]
    model = kind(config(**SIZES, **more, attn_implementation=attention)).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.12, generator=generator)
            else:
                parameter.uniform_(0.5, 1.5, generator=generator)
    return model


def spoil(router: Any, fault: str) -> None:
    """Make the router of one layer wrong."""
    with torch.no_grad():
        if fault == "weight":
            router.weight[2] *= -1
        elif fault == "order":
            router.weight.copy_(router.weight[[1, 2, 3, 0]])
    if fault == "number":
        router.top_k = 1
    elif fault == "sum":

        def forward(hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
            logits = functional.linear(hidden.reshape(-1, hidden.shape[-1]), router.weight)
            shares = functional.softmax(logits.float(), dim=-1)
            return logits, *torch.topk(shares, router.top_k, dim=-1)

        router.forward = forward


def main(family: str, attention: str, dtype: str, fault: str) -> None:
    model = make(family, attention).to(getattr(torch, dtype))
    spoil(model.model.layers[1].mlp.gate, fault)
    with torch.no_grad():
        model(torch.arange(3, 13)[None], use_cache=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
