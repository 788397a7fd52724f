"""A table of words that only one run ties to its output: told, and never taken for equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matching_truth import families
from matching_truth.drives import DRIVES, once
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.core.comparison import Report, Verdict


def _captured(folder: Path, *, untied: bool, operators: bool, weights: bool = True) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval()
    if untied:
        other = model.lm_head.weight + 0.05 * torch.randn(128, 32)
        model.lm_head.weight = nn.Parameter(other.detach())
    dump = DumpConfig(dump_path=folder, operators=operators, weights=weights)
    with torch.no_grad(), register_hook(model, dump):
        once(model)
    return folder


def _report(folder: Path, **how: bool) -> Report:
    golden = _captured(folder / "golden", untied=False, **how)
    return compare(golden, _captured(folder / "mine", untied=True, **how), jobs=1)


@pytest.mark.parametrize("operators", [False, True])
def test_a_weight_that_only_golden_ties_is_told(operators: bool, tmp_path: Path) -> None:
    report = _report(tmp_path, operators=operators)
    (origin,) = report.origins
    assert (origin.op, origin.kind) == ("root.lm_head", "other weight")
    assert origin.evidence.startswith("`weight` of `root.lm_head` is not that of golden, 100 % of")


def test_a_module_that_reads_another_weight_is_not_excused_by_equal_inputs(tmp_path: Path) -> None:
    report = _report(tmp_path, operators=False)
    failed = [each.mine for each in report.comparisons if each.verdict is Verdict.FAIL]
    assert ("root.lm_head", "outtensor0") in [
        (each.op, each.name) for each in failed if each is not None
    ]


def test_a_tied_weight_on_both_sides_is_compared_once(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", untied=False, operators=False)
    report = compare(golden, _captured(tmp_path / "mine", untied=False, operators=False), jobs=1)
    weights = [
        each.mine.path for each in report.comparisons if each.mine and each.mine.role == "weight"
    ]
    assert len(weights) == len(set(weights))


def test_a_table_that_two_halves_of_a_model_share_is_told_where_it_differs(tmp_path: Path) -> None:
    def captured(folder: Path, factor: float) -> Path:
        model = families.make("t5").eval()
        with torch.no_grad():
            model.shared.weight.mul_(factor)
            with register_hook(model, DumpConfig(dump_path=folder, weights=True)):
                DRIVES["t5"](model)
        return folder

    report = compare(captured(tmp_path / "golden", 1), captured(tmp_path / "mine", 1.5), jobs=1)
    (origin,) = report.origins
    assert (origin.op, origin.kind) == ("root.encoder.embed_tokens", "other weight")
    assert "; it is that of golden times 1.5;" in origin.evidence
