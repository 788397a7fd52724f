"""Healthy programs pass against their golden run, whatever captured them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from generating import captured, model
from matching_truth.recordings import DATA, unpack
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from ait_llm import compare
from ait_llm.core import StepRange
from ait_llm.core.comparison import Report, Verdict
from ait_llm.dump.golden.run import GoldenSettings, plan_golden, run_golden

ENGINES = Path(__file__).resolve().parents[3] / "scripts" / "engines"


@pytest.fixture(scope="module")
def checkpoints() -> ModuleType:
    """What makes the checkpoints that were recorded."""
    sys.path.insert(0, str(ENGINES))
    try:
        import checkpoints
    finally:
        sys.path.remove(str(ENGINES))
    return checkpoints


def compared(checkpoint: Path, mine: Path, output: Path) -> Report:
    summary = run_golden(plan_golden(GoldenSettings(checkpoint, mine, output)))
    assert summary.complete
    report = compare(output, mine, jobs=1)
    assert [each.text for each in report.problems if each.decides] == []
    return report


def counts(report: Report) -> tuple[int, int]:
    """Comparisons that passed, and those that failed or could not be made."""
    verdicts = [each.verdict for each in report.comparisons]
    passed = verdicts.count(Verdict.PASS)
    return passed, verdicts.count(Verdict.FAIL) + verdicts.count(Verdict.ERROR)


@pytest.mark.parametrize(
    ("family", "values"), [("llama", 270), ("qwen3", 288), ("mixtral", 240), ("gemma2", 288)]
)
def test_recorded_vllm_passes(
    family: str, values: int, checkpoints: ModuleType, tmp_path: Path
) -> None:
    made = checkpoints.make(family).to(torch.bfloat16)
    made.save_pretrained(tmp_path / "checkpoint")
    recorded = unpack(DATA / f"{family}.tar.xz", tmp_path) / "vllm"
    report = compared(tmp_path / "checkpoint", recorded, tmp_path / "golden")
    assert counts(report) == (values, 0)


def test_chunks_and_cached_prefixes_are_compared_row_by_row(engine: Path, tmp_path: Path) -> None:
    report = compared(engine / "checkpoint", engine / "mine", tmp_path)
    passed, failed = counts(report)
    assert failed == 0
    steps = {each.record.step for each in report.comparisons if each.verdict is Verdict.PASS}
    assert steps == set(range(max(steps) + 1))
    assert passed > 200


def test_a_part_of_the_layers_and_steps_accuses_nobody(tmp_path: Path) -> None:
    made = model()
    made.save_pretrained(tmp_path / "checkpoint")
    captured(made, tmp_path / "mine", torch.tensor([[0, 0, 23, 5], [11, 23, 5, 42]]))
    part = {"steps": StepRange.parse("0,0"), "layers": ((1, 1),)}
    settings = GoldenSettings(tmp_path / "checkpoint", tmp_path / "mine", tmp_path / "o", **part)
    run_golden(plan_golden(settings))
    report = compare(tmp_path / "o", tmp_path / "mine", jobs=1)
    assert counts(report)[0] > 40
    assert counts(report)[1] == 0
    assert {each.record.step for each in report.comparisons if each.golden} == {0}


def latent() -> Any:
    """Keys and values of one vector, which its projection reads with an axis of its own."""
    torch.manual_seed(2)
    ranks = {"q_lora_rank": 24, "kv_lora_rank": 16, "n_group": 1, "topk_group": 1}
    heads = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1}
    config = DeepseekV3Config(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        **ranks,
        **heads,
        **experts,
    )
    return DeepseekV3ForCausalLM(config).eval()


def shifted() -> Any:
    """Positions that are counted from the mask of all tokens so far."""
    torch.manual_seed(2)
    config = OPTConfig(
        vocab_size=96,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return OPTForCausalLM(config).eval()


@pytest.mark.parametrize("make", [latent, shifted])
def test_padded_batches_of_other_families_pass(make: Any, tmp_path: Path) -> None:
    made = make()
    made.save_pretrained(tmp_path / "checkpoint")
    captured(made, tmp_path / "mine", torch.tensor([[0, 0, 23, 5], [11, 23, 5, 42]]))
    report = compared(tmp_path / "checkpoint", tmp_path / "mine", tmp_path / "golden")
    passed, failed = counts(report)
    assert failed == 0
    assert passed > 200


def routed(nearer: float) -> Any:
    """Two of its experts have almost the same scores, of which one is the higher."""
    torch.manual_seed(6)
    config = GraniteMoeConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=1,
        initializer_range=0.3,
    )
    made = GraniteMoeForCausalLM(config).eval()
    with torch.no_grad():
        weight = made.model.layers[0].block_sparse_moe.router.weight
        weight[1] = weight[0] * (1 + nearer)
    return made.to(torch.bfloat16)


def test_other_experts_of_a_padded_batch_are_no_fault(tmp_path: Path) -> None:
    routed(2**-7).save_pretrained(tmp_path / "checkpoint")
    prompts = torch.tensor([[0, 0, 23, 5, 8, 9], [11, 23, 5, 42, 77, 60]])
    captured(routed(-(2**-7)), tmp_path / "mine", prompts)
    report = compared(tmp_path / "checkpoint", tmp_path / "mine", tmp_path / "golden")
    assert any("rows chose otherwise" in each.reason for each in report.comparisons)
    assert counts(report)[1] == 0
