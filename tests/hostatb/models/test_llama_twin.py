"""The PyTorch twin of the Llama demo against itself and against loops written out."""

from __future__ import annotations

import math

import torch

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.generate import follow
from ait_llm.hostatb.models.llama_torch import (
    DenseCache,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    llama_twin,
)
from ait_llm.hostatb.models.weights import llama_weights

CONFIG = LlamaConfig(32, 2, 4, 2, 48, 97, dtype=torch.float32)


def test_rms_norm_equals_its_formula() -> None:
    norm = LlamaRMSNorm(4, 1e-5)
    norm.weight.data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    x = [0.5, -1.0, 2.0, 0.0]
    scale = 1 / math.sqrt(sum(v * v for v in x) / 4 + 1e-5)
    expected = [v * scale * w for v, w in zip(x, (1.0, 2.0, 3.0, 4.0), strict=True)]
    torch.testing.assert_close(norm(torch.tensor(x)), torch.tensor(expected))


def test_rotary_angles_fall_with_the_pair_and_grow_with_the_position() -> None:
    cos, sin = LlamaRotaryEmbedding(CONFIG)(torch.tensor([[3]]))
    angle = 3 * 10000.0 ** (-2 * 1 / CONFIG.head_dim)  # second pair
    assert math.isclose(cos[0, 0, 1].item(), math.cos(angle), rel_tol=1e-6)
    assert math.isclose(sin[0, 0, 1 + CONFIG.head_dim // 2].item(), math.sin(angle), rel_tol=1e-6)


def _all_at_once(tokens: torch.Tensor) -> torch.Tensor:
    """Logits of the last token, computed without reusing any cache."""
    twin = llama_twin(CONFIG, llama_weights(CONFIG, 0))
    cache = DenseCache(CONFIG, 1, len(tokens))
    positions = torch.arange(len(tokens)).unsqueeze(0)
    with torch.no_grad():
        return twin(tokens.unsqueeze(0), positions, cache, torch.tensor([len(tokens) - 1]))[0]


def test_decoding_with_a_cache_equals_recomputing_everything() -> None:
    prompts = [torch.tensor([5, 17, 90, 2, 41]), torch.tensor([8, 1])]
    new = torch.tensor([[11, 12], [21, 22], [31, 32]])
    twin = llama_twin(CONFIG, llama_weights(CONFIG, 0))
    logits = follow(twin, CONFIG, prompts, new)
    for sequence, prompt in enumerate(prompts):
        for step in range(3):
            tokens = torch.cat([prompt, new[:step, sequence]])
            torch.testing.assert_close(
                logits[step, sequence], _all_at_once(tokens), rtol=1e-5, atol=1e-5
            )


def test_later_tokens_do_not_change_earlier_ones() -> None:
    twin = llama_twin(CONFIG, llama_weights(CONFIG, 0))
    with torch.no_grad():
        outputs = [
            twin.model(
                torch.tensor([[3, 4, last]]), torch.arange(3).unsqueeze(0), DenseCache(CONFIG, 1, 3)
            )
            for last in (5, 6)
        ]
    torch.testing.assert_close(outputs[0][0, :2], outputs[1][0, :2])
    assert not torch.allclose(outputs[0][0, 2], outputs[1][0, 2])


def test_module_names_are_those_of_published_checkpoints() -> None:
    twin = llama_twin(CONFIG, llama_weights(CONFIG, 0))
    names = {name for name, _ in twin.named_modules()}
    assert {
        "model.embed_tokens",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.self_attn.o_proj",
        "model.layers.1.mlp.gate_proj",
        "model.layers.1.mlp.down_proj",
        "model.layers.1.input_layernorm",
        "model.layers.1.post_attention_layernorm",
        "model.norm",
        "lm_head",
    } <= names
