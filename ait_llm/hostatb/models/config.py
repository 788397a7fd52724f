"""Shapes of the demo models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ait_llm.errors import UsageError

# What the rotary, split and attention kernels of the acceleration library take.
ATB_DTYPES: dict[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message)


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """A Llama decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    Raises:
        UsageError: the sizes do not fit together.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    vocab_size: int
    dtype: torch.dtype = torch.float16
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_positions: int = 2048

    def __post_init__(self) -> None:
        sizes = {
            "hidden size": self.hidden_size,
            "number of layers": self.num_layers,
            "number of heads": self.num_heads,
            "number of key-value heads": self.num_kv_heads,
            "intermediate size": self.intermediate_size,
            "vocabulary size": self.vocab_size,
        }
        for what, value in sizes.items():
            _require(value > 0, f"the {what} must be positive, not {value}")
        _require(
            self.hidden_size % (2 * self.num_heads) == 0,
            f"hidden size {self.hidden_size} does not split into {self.num_heads} heads of even "
            "size; rotary positions turn pairs of elements",
        )
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value heads evenly",
        )

    @property
    def head_dim(self) -> int:
        """Elements of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def kv_size(self) -> int:
        """Elements of all key (or value) heads of one token."""
        return self.num_kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights, with separate input and output embeddings."""
        layer = self.hidden_size * (2 * self.hidden_size + 2 * self.kv_size)
        layer += 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        return self.num_layers * layer + self.hidden_size * (2 * self.vocab_size + 1)


# "1b" has the shape of Llama 3.2 1B.
LLAMA_PRESETS: dict[str, LlamaConfig] = {
    "tiny": LlamaConfig(64, 2, 4, 2, 128, 256),
    "small": LlamaConfig(512, 4, 8, 4, 1408, 4096),
    "1b": LlamaConfig(2048, 16, 32, 8, 8192, 128256, rope_theta=500000.0),
}


@dataclass(frozen=True, slots=True)
class BertConfig:
    """A BERT encoder: learned positions, LayerNorm after each residual sum, exact GELU.

    Raises:
        UsageError: the sizes do not fit together.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    vocab_size: int
    max_positions: int = 512
    type_vocab_size: int = 2
    dtype: torch.dtype = torch.float32
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for value in (self.hidden_size, self.num_layers, self.num_heads, self.vocab_size):
            _require(value > 0, f"sizes of a BERT model must be positive, not {value}")
        _require(
            self.hidden_size % self.num_heads == 0,
            f"hidden size {self.hidden_size} does not split into {self.num_heads} heads",
        )

    @property
    def head_dim(self) -> int:
        """Elements of one attention head."""
        return self.hidden_size // self.num_heads

    def with_dtype(self, dtype: torch.dtype) -> BertConfig:
        """The same shape computed in another dtype."""
        return replace(self, dtype=dtype)


BERT_PRESETS: dict[str, BertConfig] = {
    "tiny": BertConfig(64, 2, 4, 128, 512),
    "minilm": BertConfig(384, 6, 12, 1536, 30522),
}
