"""A checkpoint of transformers as GGUF, rightly or with a fault: ``gguf_checkpoint.py DIR FILE``.

Needs the packages gguf and safetensors. Families: Llama (rows of queries and keys in the order of
its rotary layout, as ``convert_hf_to_gguf.py`` of llama.cpp does), Qwen2 (with biases), Qwen3.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.numpy import load_file

FAULTS = ("weight", "epsilon", "theta", "unpermuted", "swapped", "norm", "embedding", "bias")
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
}
Array = np.ndarray[Any, np.dtype[Any]]


def rows_of_pairs(weight: Array, heads: int) -> Array:
    """Rows of each head in the order in which llama.cpp turns them, pair by pair."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def names_of(layers: int) -> dict[str, str]:
    """Names of GGUF by those of the checkpoint, without ``.weight`` and ``.bias``."""
    inside = {
        f"model.layers.{number}.{theirs}": f"blk.{number}.{ours}"
        for number in range(layers)
        for theirs, ours in _INSIDE.items()
    }
    return {**_OUTSIDE, **inside}


def convert(folder: Path, path: Path, kind: str = "F32", fault: str = "") -> None:
    """Write the file."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {
        name: each.astype(np.float32)
        for name, each in load_file(folder / "model.safetensors").items()
    }
    tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(path, config["model_type"])
    rope = config.get("rope_parameters") or config
    theta = float(rope.get("rope_theta", 10000.0))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
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
    for name, ours in names_of(config["num_hidden_layers"]).items():
        for part in ("weight", "bias"):
            value = changed.get(f"{name}.{part}")
            if value is None:
                continue
            turned = {"q_proj": heads, "k_proj": groups}.get(name.rpartition(".")[2])
            is_left = fault == "unpermuted" and name.endswith("q_proj")
            if config["model_type"] == "llama" and turned and not is_left:
                value = rows_of_pairs(value, turned)
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
