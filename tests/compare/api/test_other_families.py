"""Tables of models that check their inputs, count tokens, and fill memory that nobody made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    JetMoeConfig,
    JetMoeForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)
from transformers.modeling_utils import PreTrainedModel

from ait_llm.compare.api.outcome import Outcome
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.core.comparison import Verdict
from ait_llm.dump.api import PrecisionDebugger

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
COMMON = {"vocab_size": 97, "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}


def mixtral() -> PreTrainedModel:
    sizes = {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return MixtralForCausalLM(MixtralConfig(num_local_experts=4, **sizes, **heads, **COMMON))


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=64, **COMMON))


def jetmoe() -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_key_value_heads": 2, "kv_channels": 8}
    return JetMoeForCausalLM(JetMoeConfig(num_local_experts=4, **sizes, **heads, **COMMON))


def captured(
    folder: Path, make: Callable[[], PreTrainedModel], *, scaled: str = "", **options: object
) -> Path:
    """Each forward pass of a generation is a step."""
    torch.manual_seed(3)
    made = make().eval()
    if scaled:
        with torch.no_grad():
            made.get_parameter(scaled).mul_(1.1)
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="mix")
    handles = [
        made.register_forward_pre_hook(lambda *_: debugger.start(made)),
        made.register_forward_hook(lambda *_: (debugger.stop(), debugger.step(), None)[-1]),
    ]
    try:
        with torch.no_grad():
            made.generate(PROMPT, max_new_tokens=3, do_sample=False, **options)
    finally:
        for handle in handles:
            handle.remove()
        PrecisionDebugger._reset()
    return folder


def compared(golden: Path, mine: Path, output: Path) -> Outcome:
    return compare_api_dumps(mine, golden, output, "0", ApiOptions(jobs=1), formats=("csv",))


PAIRS = {
    "experts, without a cache": (mixtral, {"use_cache": False}),
    "experts, in chunks": (mixtral, {"prefill_chunk_size": 5}),
    "a product for each expert, without a cache": (jetmoe, {"use_cache": False}),
    "a product for each expert, in chunks": (jetmoe, {"prefill_chunk_size": 5}),
    "checks for padding, without a cache": (gpt2, {"use_cache": False}),
    "checks for padding, in chunks": (gpt2, {"prefill_chunk_size": 5}),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_healthy_program_that_reads_its_tokens_in_other_calls_passes(
    pair: str, tmp_path: Path
) -> None:
    make, options = PAIRS[pair]
    plain = captured(tmp_path / "plain", make)
    other = captured(tmp_path / "other", make, **options)
    for sides in ((plain, other), (other, plain)):
        outcome = compared(*sides, tmp_path / "report")
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0
        assert outcome.counts[Verdict.PASS] > 200


def test_a_wrong_weight_of_experts_is_named_among_other_calls(tmp_path: Path) -> None:
    weight = "model.layers.1.mlp.experts.down_proj"
    plain = captured(tmp_path / "plain", mixtral)
    mine = captured(tmp_path / "mine", mixtral, scaled=weight, prefill_chunk_size=5)
    outcome = compared(plain, mine, tmp_path / "report")
    assert outcome.exit_code() == 1
    blamed = next(each.blamed for each in outcome.pairs if each.blamed is not None)
    # rows of experts are in no order that is known, up to the sum over the experts of a token
    assert blamed.item.record == "Tensor.sum.3.forward"
    assert "relative Euclidean distance" in blamed.judged.reason


@pytest.mark.parametrize("options", [{"use_cache": False}, {"prefill_chunk_size": 5}])
def test_a_wrong_expert_is_named_where_each_has_a_product_of_its_own(
    options: dict[str, object], tmp_path: Path
) -> None:
    weight = "model.layers.1.mlp.output_linear.weight"
    plain = captured(tmp_path / "plain", jetmoe)
    mine = captured(tmp_path / "mine", jetmoe, scaled=weight, **options)
    outcome = compared(plain, mine, tmp_path / "report")
    assert outcome.exit_code() == 1
    blamed = next(each.blamed for each in outcome.pairs if each.blamed is not None)
    assert blamed.item.record.startswith("Functional.linear.")
    assert blamed.item.name.endswith("input.1")
