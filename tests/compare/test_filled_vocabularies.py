"""Tables of tokens that one side filled up to more rows, as engines and trainers do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generating import model
from torch import nn
from transformers import LlamaForCausalLM

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
ROWS = 128
KINDS = pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])


def filled_up(made: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same with further rows that no token has."""
    table, head = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    width = table.shape[1]
    more = torch.randn(ROWS - len(table), width)
    made.set_input_embeddings(
        nn.Embedding.from_pretrained(torch.cat([table.detach(), more]), freeze=True)
    )
    projection = nn.Linear(width, ROWS, bias=False)
    with torch.no_grad():
        projection.weight.copy_(torch.cat([head.detach(), more]))
    made.set_output_embeddings(projection)
    return made


def compared(
    folder: Path, golden: nn.Module, mine: nn.Module, *, operators: bool, weights: bool = False
) -> Report:
    for name, made in (("golden", golden), ("mine", mine)):
        config = DumpConfig(str(folder / name), operators=operators, weights=weights)
        with torch.no_grad(), register_hook(made, config):
            made(PROMPT)
    return compare(folder / "golden", folder / "mine", jobs=1)


@KINDS
@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("turned", [False, True], ids=["mine", "golden"])
def test_logits_of_the_tokens_that_both_have_are_compared(
    turned: bool, weights: bool, operators: bool, tmp_path: Path
) -> None:
    sides = model(), filled_up(model())
    sides = sides[::-1] if turned else sides
    report = compared(tmp_path, *sides, operators=operators, weights=weights)
    assert report.counts[Verdict.FAIL] == 0
    assert report.exit_code() == 0
    of_logits = [item for item in report.comparisons if item.mine and "lm_head" in item.mine.op]
    assert any(item.verdict is Verdict.PASS and item.mine.role == "out" for item in of_logits)


@KINDS
def test_a_wrong_row_of_the_head_is_named(operators: bool, tmp_path: Path) -> None:
    mine = filled_up(model())
    with torch.no_grad():
        mine.get_output_embeddings().weight[5] *= 1.1
    report = compared(tmp_path, model(), mine, operators=operators)
    assert report.exit_code() == 1
    assert report.origins[0].op.startswith("root.lm_head")
