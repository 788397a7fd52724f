"""The PyTorch twin of the BERT demo."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded, mean_pool
from ait_llm.hostatb.models.config import BertConfig
from ait_llm.hostatb.models.weights import bert_weights

CONFIG = BertConfig(16, 1, 2, 24, 50, max_positions=16)


def _norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + CONFIG.layer_norm_eps).sqrt() * weight + bias


def _encode_one(tokens: list[int]) -> Tensor:
    """Hidden states of one sequence, token by token and head by head, in float64."""
    w = {name: tensor.double() for name, tensor in bert_weights(CONFIG, 0).items()}
    e, a, o = "embeddings", "encoder.layer.0.attention", "encoder.layer.0.output"
    x = []
    for position, token in enumerate(tokens):
        total = w[f"{e}.word_embeddings.weight"][token]
        total = total + w[f"{e}.position_embeddings.weight"][position]
        total = total + w[f"{e}.token_type_embeddings.weight"][0]
        x.append(_norm(total, w[f"{e}.LayerNorm.weight"], w[f"{e}.LayerNorm.bias"]))
    q, k, v = (
        [w[f"{a}.self.{part}.weight"] @ t + w[f"{a}.self.{part}.bias"] for t in x]
        for part in ("query", "key", "value")
    )
    out = []
    for i, token in enumerate(x):
        heads = []
        for head in range(CONFIG.num_heads):
            part = slice(head * CONFIG.head_dim, (head + 1) * CONFIG.head_dim)
            scores = [math.exp(float(q[i][part] @ key[part]) / math.sqrt(8)) for key in k]
            mixed = sum(s * value[part] for s, value in zip(scores, v, strict=True))
            heads.append(mixed / sum(scores))
        dense = w[f"{a}.output.dense.weight"] @ torch.cat(heads) + w[f"{a}.output.dense.bias"]
        attended = _norm(
            dense + token, w[f"{a}.output.LayerNorm.weight"], w[f"{a}.output.LayerNorm.bias"]
        )
        up = w["encoder.layer.0.intermediate.dense.weight"] @ attended
        up = up + w["encoder.layer.0.intermediate.dense.bias"]
        up = up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))
        down = w[f"{o}.dense.weight"] @ up + w[f"{o}.dense.bias"]
        out.append(_norm(down + attended, w[f"{o}.LayerNorm.weight"], w[f"{o}.LayerNorm.bias"]))
    return torch.stack(out)


def test_the_twin_equals_the_formulas_written_out() -> None:
    twin = bert_twin(CONFIG, bert_weights(CONFIG, 0))
    tokens = [7, 31, 4, 7, 12]
    hidden = encode_padded(twin, [torch.tensor(tokens)])
    torch.testing.assert_close(hidden.double(), _encode_one(tokens), rtol=1e-4, atol=1e-5)


def test_a_sequence_does_not_see_its_neighbours_or_padding() -> None:
    twin = bert_twin(CONFIG, bert_weights(CONFIG, 0))
    short, long = torch.tensor([3, 4]), torch.tensor([5, 6, 7, 8])
    together = encode_padded(twin, [short, long])
    torch.testing.assert_close(together[:2], encode_padded(twin, [short]))
    torch.testing.assert_close(together[2:], encode_padded(twin, [long]))


def test_pooling_takes_the_mean_and_normalises() -> None:
    hidden = torch.tensor([[1.0, 0.0], [5.0, 8.0], [0.0, 2.0]])
    pooled = mean_pool(hidden, [2, 1])
    torch.testing.assert_close(pooled, torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
