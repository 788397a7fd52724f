"""The Llama demo on the embedded library against its PyTorch twin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.errors import UsageError
from ait_llm.hostatb.models import blocks
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import ATB_DTYPES, LLAMA_PRESETS, LlamaConfig
from ait_llm.hostatb.models.generate import (
    Generation,
    follow,
    generate,
    make_llama,
    random_prompts,
)
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.model import Model
from ait_llm.hostatb.models.weights import llama_weights

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
TINY = LLAMA_PRESETS["tiny"]
LENGTHS = (7, 4)


def _run(
    config: LlamaConfig,
    prompts: Sequence[Tensor],
    steps: int,
    block_size: int = 16,
) -> Generation:
    lengths = [len(prompt) for prompt in prompts]
    model = make_llama(config, llama_weights(config, 0), lengths, steps, block_size)
    return generate(model, prompts, steps)


def _limit(config: LlamaConfig) -> float:
    return tolerance(config.dtype, config.num_layers, config.hidden_size)


@pytest.mark.parametrize("dtype", ATB_DTYPES.values(), ids=ATB_DTYPES)
def test_every_token_agrees_with_the_twin(dtype: torch.dtype) -> None:
    config = replace(TINY, dtype=dtype)
    prompts = random_prompts(config, LENGTHS, 0)
    mine = _run(config, prompts, 4)
    twin = llama_twin(config, llama_weights(config, 0))
    golden = follow(twin, config, prompts, mine.tokens)
    for expected, got in zip(golden, mine.logits, strict=True):
        assert agree(expected, got, _limit(config)).passed


@pytest.mark.parametrize("heads", [(4, 4), (4, 1)], ids=["own-kv-heads", "one-kv-head"])
def test_head_sharing_agrees_with_the_twin(heads: tuple[int, int]) -> None:
    config = replace(TINY, num_heads=heads[0], num_kv_heads=heads[1])
    prompts = random_prompts(config, LENGTHS, 1)
    mine = _run(config, prompts, 2)
    golden = follow(llama_twin(config, llama_weights(config, 0)), config, prompts, mine.tokens)
    assert agree(golden.flatten(0, 1), mine.logits.flatten(0, 1), _limit(config)).passed


def test_decoding_from_the_paged_cache_equals_a_prefill_of_all_tokens() -> None:
    prompts = random_prompts(TINY, LENGTHS, 0)
    mine = _run(TINY, prompts, 4, block_size=4)
    for step in range(1, 4):
        longer = [torch.cat([p, mine.tokens[:step, row]]) for row, p in enumerate(prompts)]
        at_once = _run(TINY, longer, 1).logits[0]
        assert agree(at_once, mine.logits[step], _limit(TINY)).passed


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_the_block_size_does_not_change_the_result(block_size: int) -> None:
    prompts = random_prompts(TINY, LENGTHS, 0)
    mine = _run(TINY, prompts, 3, block_size)
    torch.testing.assert_close(mine.logits, _run(TINY, prompts, 3, 128).logits, rtol=0, atol=0)


def test_a_sequence_does_not_depend_on_its_neighbours() -> None:
    prompts = random_prompts(TINY, LENGTHS, 0)
    together = _run(TINY, prompts, 3)
    for row, prompt in enumerate(prompts):
        alone = _run(TINY, [prompt], 3)
        assert agree(alone.logits[:, 0], together.logits[:, row], _limit(TINY)).passed


def test_the_same_run_twice_gives_the_same_bits() -> None:
    prompts = random_prompts(TINY, LENGTHS, 0)
    first, second = _run(TINY, prompts, 3), _run(TINY, prompts, 3)
    assert torch.equal(first.logits, second.logits)


def test_keys_lie_in_the_cache_where_the_block_table_says() -> None:
    prompts = random_prompts(TINY, LENGTHS, 0)
    weights = llama_weights(TINY, 0)
    model = make_llama(TINY, weights, LENGTHS, 3, 2)
    generate(model, prompts, 3)
    slots = [model.cache.slot(0, position) for position in range(LENGTHS[0])]
    stored = model.cache.values[0].flatten(0, 1)[slots].flatten(1)
    twin = llama_twin(TINY, weights)
    layer = twin.model.layers[0]
    normed = layer.get_submodule("input_layernorm")(twin.model.embed_tokens(prompts[0]))
    golden = layer.get_submodule("self_attn.v_proj")(normed)
    assert agree(golden, stored, _limit(TINY)).passed


def test_a_run_that_exceeds_the_positions_of_the_model_is_refused() -> None:
    config = replace(TINY, max_positions=8)
    with pytest.raises(UsageError, match="take 9 positions and the model has 8"):
        _run(config, random_prompts(config, LENGTHS, 0), 3)


@pytest.mark.parametrize("lengths", [(), (3, 0)])
def test_empty_prompts_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="prompt lengths must be positive"):
        random_prompts(TINY, lengths, 0)


def _topology(model: Model) -> dict[str, Any]:
    topology: dict[str, Any] = json.loads(model.topology.to_json())
    return topology


def test_both_phases_have_the_keys_of_a_model_report() -> None:
    model = make_llama(TINY, llama_weights(TINY, 0), LENGTHS, 2, 16)
    for phase, name in (
        (model.prefill_model, "DecoderModel_Prefill"),
        (model.decode_model, "DecoderModel_Decoder"),
    ):
        topology = _topology(phase)
        assert list(topology) == [
            "inTensors",
            "internalTensors",
            "kCacheTensors",
            "modelName",
            "nodes",
            "outTensors",
            "vCacheTensors",
            "weightTensors",
        ]
        assert topology["modelName"] == name
        assert topology["kCacheTensors"] == [f"{name}_kCache_0", f"{name}_kCache_1"]


def test_the_nodes_of_a_model_are_named_as_inference_engines_do() -> None:
    model = make_llama(TINY, llama_weights(TINY, 0), LENGTHS, 2, 16)
    nodes = _topology(model.decode_model)["nodes"]
    assert [node["opName"] for node in nodes] == [
        "WordEmbedding",
        "PositionalEmbeddingGather",
        "Decoder_layer",
        "Decoder_layer",
        "RmsNormOperation",
        "LmHead",
    ]
    assert nodes[-1]["outTensors"] == ["DecoderModel_Decoder_output_0"]
    assert nodes[3]["inTensors"][6] == nodes[2]["outTensors"][0]  # hidden states, layer to layer


def test_a_node_that_reads_an_unknown_tensor_is_refused() -> None:
    model = make_llama(TINY, llama_weights(TINY, 0), LENGTHS, 2, 16).decode_model
    with pytest.raises(UsageError, match="node RmsNormOperation of model DecoderModel_Decoder"):
        model.add(blocks.rms_norm(1e-5), ["nowhere", "norm"], ["out"])
