"""Random weights of the demo models."""

from __future__ import annotations

from dataclasses import replace

import torch

from ait_llm.hostatb.models.config import BERT_PRESETS, LLAMA_PRESETS
from ait_llm.hostatb.models.weights import bert_weights, llama_weights

TINY = LLAMA_PRESETS["tiny"]


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second = llama_weights(TINY, 3), llama_weights(TINY, 3)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_seed_gives_other_weights() -> None:
    first, second = llama_weights(TINY, 3), llama_weights(TINY, 4)
    assert not torch.equal(first["lm_head.weight"], second["lm_head.weight"])


def test_a_tensor_does_not_depend_on_the_number_of_layers() -> None:
    deep = llama_weights(replace(TINY, num_layers=3), 0)
    shallow = llama_weights(TINY, 0)
    assert all(torch.equal(shallow[name], deep[name]) for name in shallow)


def test_two_tensors_of_one_shape_differ() -> None:
    weights = llama_weights(TINY, 0)
    gate = weights["model.layers.0.mlp.gate_proj.weight"]
    assert not torch.equal(gate, weights["model.layers.0.mlp.up_proj.weight"])


def test_weights_have_the_dtype_of_the_model() -> None:
    weights = llama_weights(replace(TINY, dtype=torch.bfloat16), 0)
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


def test_the_number_of_weights_is_what_the_configuration_says() -> None:
    assert sum(t.numel() for t in llama_weights(TINY, 0).values()) == TINY.parameters


def test_the_1b_preset_has_the_size_of_its_name() -> None:
    # Llama 3.2 1B: 1,235,814,400 parameters with one matrix for input and output embedding.
    preset = LLAMA_PRESETS["1b"]
    assert preset.parameters - preset.vocab_size * preset.hidden_size == 1_235_814_400


def test_projections_keep_the_scale_of_their_input() -> None:
    weight = bert_weights(BERT_PRESETS["tiny"], 0)["encoder.layer.0.intermediate.dense.weight"]
    out = torch.randn(256, 64, generator=torch.Generator().manual_seed(0)) @ weight.T
    assert 0.9 < out.std().item() < 1.1
