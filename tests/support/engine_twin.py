"""The model of the recorded graph-engine dumps, built again from ``transformers``.

The recorded decoder joins query, key and value in one projection and is written by hand; Qwen2 of
``transformers`` computes the same with three. Its weights are those that the FX dump holds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook

_LAYERS, _WIDTH, _KEYS = 2, 32, 16


def _array(folder: Path, node: str, argument: int) -> Tensor:
    [file] = folder.glob(f"{node}-*.INPUT.{argument}.*")
    return torch.from_numpy(np.ascontiguousarray(np.load(file)))


def _nth(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name


def engine_twin(fx: Path) -> nn.Module:
    """The model in float16, with the weights of an FX dump."""
    folder = fx / "worldsize1_global_rank0/graph_1/0"
    config = transformers.Qwen2Config(
        hidden_size=_WIDTH,
        intermediate_size=64,
        num_hidden_layers=_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        rms_norm_eps=1e-6,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.to(torch.float16).eval()
    norms = iter(["mul_22", "mul_307", "mul_382", "mul_667", "mul_742"])
    state = {"model.embed_tokens.weight": _array(folder, "embedding", 0)}
    for layer in range(_LAYERS):
        path = f"model.layers.{layer}."
        joined = _array(folder, _nth("t", 5 * layer), 0).split([_WIDTH, _KEYS, _KEYS])
        biases = _array(folder, _nth("addmm", layer), 0).split([_WIDTH, _KEYS, _KEYS])
        for name, weight, bias in zip("qkv", joined, biases, strict=True):
            state[f"{path}self_attn.{name}_proj.weight"] = weight
            state[f"{path}self_attn.{name}_proj.bias"] = bias
        for place, name in enumerate(
            ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        ):
            state[f"{path}{name}.weight"] = _array(folder, f"t_{5 * layer + 1 + place}", 0)
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"{path}{name}.weight"] = _array(folder, next(norms), 0)
    state["model.norm.weight"] = _array(folder, next(norms), 0)
    state["lm_head.weight"] = _array(folder, "t_10", 0)
    model.load_state_dict(state)
    return model


def requests(fx: Path) -> list[Tensor]:
    """Token ids of each call: the prompt, then one token per decode step."""
    root = fx / "worldsize1_global_rank0"
    folders = [root / "graph_1/0", root / "graph_2/0", *(root / f"graph_3/{n}" for n in range(3))]
    return [_array(folder, "embedding", 1) for folder in folders]


def capture_twin(folder: Path, model: nn.Module, ids: list[Tensor], **config: object) -> None:
    """Run the calls with a cache; the capture of the modules lies in ``folder``."""
    cache = transformers.DynamicCache()
    tokens = list(range(len(ids)))
    with (
        torch.no_grad(),
        register_hook(model, DumpConfig(str(folder), token_range=tokens, **config)),
    ):
        for each in ids:
            model(input_ids=each, past_key_values=cache, use_cache=True)
