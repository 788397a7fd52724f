"""A checkpoint of transformers as GGUF, rightly or with a fault: ``gguf_checkpoint.py DIR FILE``.

Needs the packages gguf and safetensors. Families: Llama and Mixtral (rows of queries and keys in
the order of their rotary layout, as ``convert_hf_to_gguf.py`` of llama.cpp does), Qwen2 (with
biases), Qwen3, Qwen3-MoE, and Gemma2 (sliding window; norms hold one plus the checkpoint's weight).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.numpy import load_file

FAULTS = (
    *("weight", "epsilon", "theta", "unpermuted", "swapped", "norm", "embedding", "bias"),
    *("window", "cap", "experts", "expert", "router"),
)
_ARCHITECTURES = {"mixtral": "llama", "qwen3_moe": "qwen3moe"}
_OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_INSIDE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
_INSIDE_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERTS = {
    "gate": ("gate_proj", "w1"),
    "up": ("up_proj", "w3"),
    "down": ("down_proj", "w2"),
}
Array = np.ndarray[Any, np.dtype[Any]]


def rows_of_pairs(weight: Array, heads: int) -> Array:
    """Rows of each head in the order in which llama.cpp turns them, pair by pair."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def names_of(layers: int, family: str = "") -> dict[str, str]:
    """Names of GGUF by those of the checkpoint, without ``.weight`` and ``.bias``."""
    each = {**_INSIDE, **(_INSIDE_GEMMA if family == "gemma2" else {})}
    experts = {f"experts.{kind}": f"ffn_{kind}_exps" for kind in _EXPERTS}
    inside = {
        f"model.layers.{number}.{theirs}": f"blk.{number}.{ours}"
        for number in range(layers)
        for theirs, ours in {**each, **experts}.items()
    }
    return {**_OUTSIDE, **inside}


def join_experts(tensors: dict[str, Array], layers: int) -> dict[str, Array]:
    """The weights of all experts of a layer as one, ``model.layers.0.experts.gate.weight``."""
    joined = {name: each for name, each in tensors.items() if ".experts." not in name}
    for number in range(layers):
        for kind, spellings in _EXPERTS.items():
            ends = tuple(f".{each}.weight" for each in spellings)
            found = {
                int(name.split(".experts.")[1].split(".")[0]): value
                for name, value in tensors.items()
                if name.startswith(f"model.layers.{number}.")
                and ".experts." in name
                and name.endswith(ends)
            }
            if found:
                joined[f"model.layers.{number}.experts.{kind}.weight"] = np.stack(
                    [found[expert] for expert in sorted(found)]
                )
    return joined


def convert(folder: Path, path: Path, kind: str = "F32", fault: str = "") -> None:
    """Write the file."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {
        name: each.astype(np.float32)
        for name, each in load_file(folder / "model.safetensors").items()
    }
    family, layers = config["model_type"], config["num_hidden_layers"]
    tensors = join_experts(tensors, layers)
    if family != "gemma2":
        tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(path, _ARCHITECTURES.get(family, family))
    rope = config.get("rope_parameters") or config
    theta = float(rope.get("rope_theta", 10000.0))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    _add_numbers(writer, config, fault)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-3 if fault == "epsilon" else config["rms_norm_eps"])
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_rope_dimension_count(width)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_freq_base(theta / 2 if fault == "theta" else theta)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    changed = _with_fault(tensors, fault)
    quantised = GGMLQuantizationType[kind]
    for name, ours in names_of(layers, family).items():
        for part in ("weight", "bias"):
            value = changed.get(f"{name}.{part}")
            if value is None:
                continue
            turned = {"q_proj": heads, "k_proj": groups}.get(name.rpartition(".")[2])
            is_left = fault == "unpermuted" and name.endswith("q_proj")
            if family in ("llama", "mixtral") and turned and not is_left:
                value = rows_of_pairs(value, turned)
            if family == "gemma2" and name.endswith("norm"):
                value = value + np.float32(1)
            if value.ndim == 1 or kind == "F32":
                writer.add_tensor(f"{ours}.{part}", value)
            else:
                writer.add_tensor(
                    f"{ours}.{part}", quants.quantize(value, quantised), raw_dtype=quantised
                )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_numbers(writer: GGUFWriter, config: dict[str, Any], fault: str) -> None:
    """What only some families have."""
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        used = config["num_experts_per_tok"]
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used - 1 if fault == "experts" else used)
    if config.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config["model_type"] == "gemma2":
        cap = config["attn_logit_softcapping"]
        window = config["sliding_window"]
        writer.add_attn_logit_softcapping(cap / 8 if fault == "cap" else cap)
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        writer.add_sliding_window(2 * window if fault == "window" else window)


def _with_fault(tensors: dict[str, Array], fault: str) -> dict[str, Array]:
    changed = dict(tensors)
    layer = "model.layers.1."
    if fault == "weight":
        changed[f"{layer}mlp.down_proj.weight"] = tensors[
            f"{layer}mlp.down_proj.weight"
        ] * np.float32(1.02)
    elif fault == "norm":
        name = f"{layer}post_attention_layernorm.weight"
        changed[name] = tensors[name] + np.float32(0.05)
    elif fault == "expert":
        name = f"{layer}experts.down.weight"
        changed[name] = tensors[name] * np.array([1, 1.1, 1, 1], np.float32)[:, None, None]
    elif fault == "router":
        [name] = [each for each in tensors if each.startswith(layer) and ".gate." in each
                  and "experts" not in each]  # fmt: skip
        changed[name] = np.roll(tensors[name], 1, 0)
    elif fault == "embedding":
        changed["model.embed_tokens.weight"] = np.roll(tensors["model.embed_tokens.weight"], 1, 0)
    elif fault == "bias":
        name = f"{layer}self_attn.v_proj.bias"
        if name in tensors:
            changed[name] = np.zeros_like(tensors[name])
    elif fault == "swapped":
        for one, other in (("gate", "up"), ("up", "gate")):
            changed[f"{layer}mlp.{one}_proj.weight"] = tensors[f"{layer}mlp.{other}_proj.weight"]
    return changed


def restore(path: Path, folder: Path) -> None:
    """Write what the weights of a file stand for back into a checkpoint, as float32."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    config = json.loads((folder / "config.json").read_text())
    names = {ours: name for name, ours in names_of(config["num_hidden_layers"]).items()}
    found = {}
    for tensor in GGUFReader(path).tensors:
        ours, _, part = tensor.name.rpartition(".")
        value = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = names[ours]
        heads = {"q": "num_attention_heads", "k": "num_key_value_heads"}.get(name[-6:-5])
        if config["model_type"] == "llama" and name.endswith(("q_proj", "k_proj")) and heads:
            count = config[heads]
            pairs = value.reshape(count, value.shape[0] // count // 2, 2, *value.shape[1:])
            value = pairs.swapaxes(1, 2).reshape(value.shape)
        found[f"{name}.{part}"] = np.ascontiguousarray(value)
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--type", default="F32", dest="kind")
    parser.add_argument("--fault", default="", choices=("", *FAULTS))
    parser.add_argument("--restore", action="store_true", help="from FILE into DIR")
    given = parser.parse_args()
    if given.restore:
        restore(given.file, given.folder)
    else:
        convert(given.folder, given.file, given.kind, given.fault)
