"""The BERT demo on ATB: an encoder over packed tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.errors import UsageError
from ait_llm.hostatb.models import blocks
from ait_llm.hostatb.models.config import BertConfig
from ait_llm.hostatb.models.model import Model
from ait_llm.hostatb.models.weights import Weights

_ATTENTION_WEIGHTS = ("qkv_weight", "qkv_bias", "out_weight", "out_bias")
_NORM_WEIGHTS = ("attention_norm_weight", "attention_norm_bias")
_MLP_WEIGHTS = ("up_weight", "up_bias", "down_weight", "down_bias")
_OUTPUT_NORM_WEIGHTS = ("output_norm_weight", "output_norm_bias")
LAYER_WEIGHTS = (*_ATTENTION_WEIGHTS, *_NORM_WEIGHTS, *_MLP_WEIGHTS, *_OUTPUT_NORM_WEIGHTS)
_TABLES = ("word_table", "position_table", "type_table")


def _embeddings(config: BertConfig) -> torch_atb.Operation:
    """Sum of three gathered rows per token, normalised."""
    ids = ("input_ids", "position_ids", "token_type_ids")
    return (
        torch_atb.GraphBuilder("BertEmbeddings")
        .set_input_output([*_TABLES, "norm_weight", "norm_bias", *ids], ["output"])
        .add_operation(blocks.gather(), ["word_table", "input_ids"], ["words"])
        .add_operation(blocks.gather(), ["position_table", "position_ids"], ["positions"])
        .add_operation(blocks.gather(), ["type_table", "token_type_ids"], ["types"])
        .add_operation(blocks.add(), ["words", "positions"], ["placed"])
        .add_operation(blocks.add(), ["placed", "types"], ["total"])
        .add_operation(
            blocks.layer_norm(config.layer_norm_eps),
            ["total", "norm_weight", "norm_bias"],
            ["output"],
        )
        .build()
    )


def _qkv(config: BertConfig) -> torch_atb.Operation:
    return (
        torch_atb.GraphBuilder("QKVLinearSplitPack")
        .set_input_output(["input", "weight", "bias"], ["query", "key", "value"])
        .add_operation(blocks.linear(bias=True), ["input", "weight", "bias"], ["packed"])
        .add_operation(
            blocks.split([config.hidden_size] * 3), ["packed"], ["query", "key", "value"]
        )
        .build()
    )


def _attention(config: BertConfig) -> torch_atb.Operation:
    """Attention without mask: every token of a sequence sees all of it."""
    core = torch_atb.SelfAttentionParam(
        head_num=config.num_heads,
        kv_head_num=config.num_heads,
        qk_scale=config.head_dim**-0.5,
        calc_type=torch_atb.SelfAttentionParam.CalcType.PA_ENCODER,
    )
    return (
        torch_atb.GraphBuilder("Attention")
        .set_input_output([*_ATTENTION_WEIGHTS, "hidden_states", "seq_len"], ["output"])
        .add_operation(
            _qkv(config), ["hidden_states", "qkv_weight", "qkv_bias"], ["query", "key", "value"]
        )
        .add_operation(torch_atb.Operation(core), ["query", "key", "value", "seq_len"], ["context"])
        .add_operation(blocks.linear(bias=True), ["context", "out_weight", "out_bias"], ["output"])
        .build()
    )


def _mlp() -> torch_atb.Operation:
    gelu = torch_atb.ActivationParam(
        activation_type=torch_atb.ActivationType.ACTIVATION_GELU,
        gelu_mode=torch_atb.ActivationParam.GeLUMode.NONE_MODE,  # x * Phi(x), not the tanh form
    )
    return (
        torch_atb.GraphBuilder("Mlp")
        .set_input_output([*_MLP_WEIGHTS, "hidden_states"], ["output"])
        .add_operation(blocks.linear(bias=True), ["hidden_states", "up_weight", "up_bias"], ["up"])
        .add_operation(torch_atb.Operation(gelu), ["up"], ["activated"])
        .add_operation(
            blocks.linear(bias=True), ["activated", "down_weight", "down_bias"], ["output"]
        )
        .build()
    )


def bert_layer(config: BertConfig) -> torch_atb.Operation:
    """One layer as one top-level graph operation.

    Inputs are :data:`LAYER_WEIGHTS`, ``hidden_states [tokens, hidden]`` and ``seq_len [batch]``;
    the output has the shape of ``hidden_states``.
    """
    epsilon = config.layer_norm_eps
    return (
        torch_atb.GraphBuilder("Bert_layer")
        .set_input_output([*LAYER_WEIGHTS, "hidden_states", "seq_len"], ["output"])
        .add_operation(
            _attention(config), [*_ATTENTION_WEIGHTS, "hidden_states", "seq_len"], ["attention_out"]
        )
        .add_operation(blocks.add(), ["attention_out", "hidden_states"], ["attention_sum"])
        .add_operation(blocks.layer_norm(epsilon), ["attention_sum", *_NORM_WEIGHTS], ["attended"])
        .add_operation(_mlp(), [*_MLP_WEIGHTS, "attended"], ["mlp_out"])
        .add_operation(blocks.add(), ["mlp_out", "attended"], ["mlp_sum"])
        .add_operation(blocks.layer_norm(epsilon), ["mlp_sum", *_OUTPUT_NORM_WEIGHTS], ["output"])
        .build()
    )


def _pack_weights(config: BertConfig, weights: Weights) -> Weights:
    """Weights as the graphs take them, with q, k, v in one matrix."""
    packed = {
        "word_table": weights["embeddings.word_embeddings.weight"],
        "position_table": weights["embeddings.position_embeddings.weight"],
        "type_table": weights["embeddings.token_type_embeddings.weight"],
        "embedding_norm_weight": weights["embeddings.LayerNorm.weight"],
        "embedding_norm_bias": weights["embeddings.LayerNorm.bias"],
    }
    for layer in range(config.num_layers):
        prefix = f"encoder.layer.{layer}"
        parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        tensors = (
            torch.cat([weights[f"{part}.weight"] for part in parts]),
            torch.cat([weights[f"{part}.bias"] for part in parts]),
            *(weights[f"{prefix}.attention.output.dense.{kind}"] for kind in ("weight", "bias")),
            *(
                weights[f"{prefix}.attention.output.LayerNorm.{kind}"]
                for kind in ("weight", "bias")
            ),
            *(weights[f"{prefix}.intermediate.dense.{kind}"] for kind in ("weight", "bias")),
            *(weights[f"{prefix}.output.dense.{kind}"] for kind in ("weight", "bias")),
            *(weights[f"{prefix}.output.LayerNorm.{kind}"] for kind in ("weight", "bias")),
        )
        for name, tensor in zip(LAYER_WEIGHTS, tensors, strict=True):
            packed[f"{name}.{layer}"] = tensor
    return packed


class BertForAtb:
    """The encoder.

    Args:
        config: shape and dtype.
        weights: by Hugging Face name.
    """

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        self.config = config
        inputs = ("input_ids", "position_ids", "token_type_ids", "seq_len")
        packed = _pack_weights(config, weights)
        self.model = Model("BertModel_Encoder", inputs, ("output",), packed)
        self.model.add(
            _embeddings(config),
            [*_TABLES, "embedding_norm_weight", "embedding_norm_bias", *inputs[:3]],
            ["hidden.0"],
        )
        for layer in range(config.num_layers):
            last = layer == config.num_layers - 1
            self.model.add(
                bert_layer(config),
                [*(f"{name}.{layer}" for name in LAYER_WEIGHTS), f"hidden.{layer}", "seq_len"],
                ["output" if last else f"hidden.{layer + 1}"],
            )

    def encode(self, sequences: Sequence[Tensor]) -> Tensor:
        """Hidden states of all tokens, packed as ``[tokens, hidden]``.

        Args:
            sequences: token ids of each sequence, 1-D int64.

        Raises:
            UsageError: a sequence is longer than the model has positions.
        """
        lengths = [len(sequence) for sequence in sequences]
        if max(lengths) > self.config.max_positions:
            raise UsageError(
                f"a sequence has {max(lengths)} tokens and the model has "
                f"{self.config.max_positions} positions; shorten it"
            )
        input_ids = torch.cat(list(sequences))
        inputs = {
            "input_ids": input_ids,
            "position_ids": torch.cat([torch.arange(length) for length in lengths]),
            "token_type_ids": torch.zeros_like(input_ids),
            "seq_len": torch.tensor(lengths, dtype=torch.int32),
        }
        return self.model.run(inputs)["output"]
