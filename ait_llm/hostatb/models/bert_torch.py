"""The PyTorch twin of the BERT demo, with the module names of Hugging Face Transformers.

It works on a padded batch with an attention mask, where the other side works on packed tokens.
Formulas: Devlin et al. (2019); GELU is the exact one, ``x * Phi(x)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ait_llm.hostatb.models.config import BertConfig
from ait_llm.hostatb.models.weights import Weights, unset_embedding


class BertEmbeddings(nn.Module):
    """Sum of word, position and type embedding, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.word_embeddings = unset_embedding(config.vocab_size, hidden)
        self.position_embeddings = unset_embedding(config.max_positions, hidden)
        self.token_type_embeddings = unset_embedding(config.type_vocab_size, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        total = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        total = total + self.token_type_embeddings(torch.zeros_like(input_ids))
        normed: Tensor = self.LayerNorm(total)
        return normed


class BertSelfAttention(nn.Module):
    """Attention of every token to every real token of its sequence."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        batch, seq, hidden = hidden_states.shape
        shape = (batch, seq, self.num_heads, self.head_dim)
        query = self.query(hidden_states).view(shape).float()
        key = self.key(hidden_states).view(shape).float()
        value = self.value(hidden_states).view(shape).float()
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * self.head_dim**-0.5
        scores = scores.masked_fill(~attention_mask[:, None, None, :], float("-inf"))
        context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value)
        return context.to(hidden_states.dtype).reshape(batch, seq, hidden)


class BertSelfOutput(nn.Module):
    """Projection, residual sum and norm; after attention and after the MLP."""

    def __init__(self, config: BertConfig, fan_in: int) -> None:
        super().__init__()
        self.dense = nn.Linear(fan_in, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor, residual: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(hidden_states) + residual)
        return normed


class BertAttention(nn.Module):
    """Self-attention with its output block."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.add_module("self", BertSelfAttention(config))
        self.output = BertSelfOutput(config, config.hidden_size)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        context = self.get_submodule("self")(hidden_states, attention_mask)
        out: Tensor = self.output(context, hidden_states)
        return out


class BertIntermediate(nn.Module):
    """Wide projection and GELU."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, hidden_states: Tensor) -> Tensor:
        activated: Tensor = self.intermediate_act_fn(self.dense(hidden_states))
        return activated


class BertLayer(nn.Module):
    """Attention and MLP, each followed by a residual sum and a norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertSelfOutput(config, config.intermediate_size)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        attended = self.attention(hidden_states, attention_mask)
        out: Tensor = self.output(self.intermediate(attended), attended)
        return out


class BertEncoder(nn.Module):
    """All layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_layers))

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask)
        return hidden_states


class BertModel(nn.Module):
    """Hidden states of a padded batch."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode.

        Args:
            input_ids: token ids ``[batch, seq]``, padded at the end.
            attention_mask: True for real tokens ``[batch, seq]``.

        Returns:
            hidden states ``[batch, seq, hidden]``.
        """
        hidden: Tensor = self.encoder(self.embeddings(input_ids), attention_mask)
        return hidden


def bert_twin(config: BertConfig, weights: Weights) -> BertModel:
    """A twin in evaluation mode that shares the memory of ``weights``."""
    with torch.device("meta"):
        twin = BertModel(config)
    twin.load_state_dict(weights, strict=True, assign=True)
    return twin.requires_grad_(False).eval()


@torch.no_grad()
def encode_padded(twin: BertModel, sequences: Sequence[Tensor]) -> Tensor:
    """Hidden states of the real tokens, packed as ``[tokens, hidden]``."""
    padded = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
    hidden: Tensor = twin(padded, mask)
    return hidden[mask]


def mean_pool(hidden: Tensor, lengths: Sequence[int]) -> Tensor:
    """Unit vectors ``[batch, hidden]`` in float32: the mean over the tokens of each sequence.

    Args:
        hidden: packed hidden states ``[tokens, hidden]``.
        lengths: tokens per sequence.
    """
    means = [part.float().mean(0) for part in torch.split(hidden, list(lengths))]
    return functional.normalize(torch.stack(means), dim=-1)
