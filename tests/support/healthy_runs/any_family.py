"""Tiny random models of whatever family ``transformers`` has, from its name alone.

A configuration of the family with every width that it knows made small. What comes out is no model
that anybody tuned for these comparisons.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ait_llm import DumpConfig, register_hook

_WORDS = 96
_WIDTHS: Mapping[int, tuple[str, ...]] = {
    48: ("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "embedding_size"),
    80: ("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"),
    2: (
        *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_key_value_heads"),
        *("encoder_layers", "decoder_layers", "num_decoder_layers", "num_experts_per_tok"),
        *("n_groups", "n_group", "type_vocab_size", "eos_token_id", "moe_k"),
    ),
    4: (
        *("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
        *("decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"),
        *("time_step_rank", "patch_size", "moe_num_experts"),
    ),
    12: ("head_dim", "d_kv", "kv_lora_rank", "v_head_dim"),
    64: ("max_position_embeddings", "n_positions", "max_seq_len"),
    24: ("moe_intermediate_size",),
    8: ("rotary_dim", "state_size", "qk_nope_head_dim", "qk_rope_head_dim"),
    20: ("q_lora_rank",),
    16: ("image_size", "num_mel_bins"),
    3: ("num_channels",),
    1: ("bos_token_id", "decoder_start_token_id", "topk_group", "n_shared_experts"),
    0: ("pad_token_id",),
    _WORDS: ("vocab_size",),
}
_PROMPT = torch.tensor([[11, 47, 5, 88, 29, 63, 17]])
_ANSWER = torch.tensor([[54, 22, 71, 3, 66]])

# What families are asked for, by the end of the name of the table of their classes.
KINDS: Mapping[str, Callable[[nn.Module], Mapping[str, Tensor]]] = {
    "CAUSAL_LM": lambda model: {"input_ids": _PROMPT},
    "MASKED_LM": lambda model: {"input_ids": _PROMPT},
    "SEQ_TO_SEQ_CAUSAL_LM": lambda model: {"input_ids": _PROMPT, "decoder_input_ids": _ANSWER},
    "IMAGE_CLASSIFICATION": lambda model: {"pixel_values": _image(model)},
}


def _image(model: nn.Module) -> Tensor:
    size = model.config.image_size
    drawn = torch.randint(1, 256, (1, 3, size, size), generator=torch.Generator().manual_seed(3))
    return drawn.to(next(model.parameters()).dtype) / 256


def _configuration(family: str) -> Any:
    made = CONFIG_MAPPING[family]
    usual = made()
    sizes = {name: size for size, names in _WIDTHS.items() for name in names}
    known = {
        name: size
        for name, size in sizes.items()
        if hasattr(usual, name) and name not in getattr(made, "attribute_map", {})
    }
    if getattr(usual, "num_key_value_heads", None) == getattr(usual, "num_attention_heads", None):
        known["num_key_value_heads"] = 4
    if isinstance(getattr(usual, "layer_types", None), list):
        known["layer_types"] = None
    if getattr(usual, "sliding_window", None):
        known["sliding_window"] = 4
    while True:
        try:
            return made(**known, tie_word_embeddings=False)
        except AttributeError as error:  # a width that follows from others
            known.pop(re.findall(r"'(\w+)'", str(error))[0])


def model_of(kind: str, family: str, attention: str, dtype: torch.dtype) -> nn.Module:
    """A model of a family with drawn weights."""
    table = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")
    configuration = _configuration(family)
    configuration._attn_implementation = attention
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some small weight is empty, say
        named = table[family]  # some families have several models, the plain one first
        name = named if isinstance(named, str) else named[0]
        model: nn.Module = getattr(transformers, name)(configuration)
    drawn = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            size = 0.05 if weight.dim() > 1 else 0.02
            weight.add_(torch.randn(weight.shape, generator=drawn) * size)
    return model.eval().to(dtype)


def capture(
    kind: str, family: str, attention: str, dtype: torch.dtype, level: str, folder: Path
) -> Path:
    """The capture of one pass; one that is there already is not made again.

    Args:
        kind: of :data:`KINDS`.
        family: its name in ``transformers``.
        attention: ``eager`` or ``sdpa``.
        dtype: in which it runs.
        level: ``modules``, ``operators`` or ``both``.
        folder: where captures lie.
    """
    dump = folder / f"{family}-{attention}-{str(dtype).removeprefix('torch.')}-{level}"
    if (dump / "done").exists():
        return dump
    rmtree(dump, ignore_errors=True)  # what an interrupted run left
    model = model_of(kind, family, attention, dtype)
    config = DumpConfig(
        dump_path=dump, operators=level != "modules", modules=level != "operators", weights=True
    )
    with torch.no_grad(), register_hook(model, config):
        model(**KINDS[kind](model))
    (dump / "done").touch()
    return dump


def source(
    kind: str, family: str, level: str, attention: str = "eager", dtype: str = "float32"
) -> Callable[[Path], Path]:
    """What makes the capture in a folder."""
    return partial(capture, kind, family, attention, getattr(torch, dtype), level)
