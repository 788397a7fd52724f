"""Prompts that lack tokens or have more of them: said as such, and no operation is blamed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generating import model
from torch import Tensor

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
BEGINNING = PROMPT[:, :5]
KINDS = pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])


def compared(
    folder: Path, golden: Tensor, mine: Tensor, *, operators: bool = False, scaled: str = ""
) -> Report:
    for name, ids in (("golden", golden), ("mine", mine)):
        made = model()
        if scaled and name == "mine":
            with torch.no_grad():
                made.get_parameter(scaled).mul_(1.1)
        config = DumpConfig(str(folder / name), operators=operators)
        with torch.no_grad(), register_hook(made, config):
            made(ids, logits_to_keep=1)
    return compare(folder / "golden", folder / "mine", jobs=1)


OTHERS = {
    "no first token": (PROMPT[:, 1:], "mine lacks the first token (27)"),
    "a second first token": (
        torch.cat([PROMPT[:, :1], PROMPT], 1),
        "mine adds the first token (27)",
    ),
    "cut off before": (PROMPT[:, 7:], "mine lacks the first 7 tokens (27 25 14 77 21 …)"),
    "one left out": (
        torch.cat([PROMPT[:, :6], PROMPT[:, 7:]], 1),
        "mine lacks a token (11) at place 6",
    ),
    "one more, and another one": (
        torch.cat([PROMPT[:, :3], torch.tensor([[5, 6]]), PROMPT[:, 4:]], 1),
        "at place 3 it has 5 instead of 77",
    ),
}


@KINDS
@pytest.mark.parametrize("prompt", OTHERS)
def test_another_prompt_is_named_and_no_operation(
    prompt: str, operators: bool, tmp_path: Path
) -> None:
    mine, told = OTHERS[prompt]
    report = compared(tmp_path, PROMPT, mine, operators=operators)
    assert report.exit_code() == 1
    (origin,) = report.origins
    assert origin.kind == "other input"
    assert "not the same prompt" in origin.evidence
    assert told in origin.evidence


@KINDS
@pytest.mark.parametrize(
    ("golden", "mine", "told"),
    [
        (PROMPT, BEGINNING, "mine lacks the last 7 tokens (20 11 89 24 51 …)"),
        (BEGINNING, PROMPT, "mine adds the last 7 tokens (20 11 89 24 51 …)"),
    ],
    ids=["mine", "golden"],
)
def test_the_beginning_of_a_prompt_accuses_nobody_and_is_no_pass(
    golden: Tensor, mine: Tensor, told: str, operators: bool, tmp_path: Path
) -> None:
    report = compared(tmp_path, golden, mine, operators=operators)
    assert report.counts[Verdict.FAIL] == 0
    assert report.counts[Verdict.PASS] > 50
    assert report.exit_code() == 3
    assert any(told in each.text for each in report.problems)


@KINDS
def test_a_wrong_weight_is_named_in_the_beginning_of_a_prompt(
    operators: bool, tmp_path: Path
) -> None:
    weight = "model.layers.1.mlp.down_proj.weight"
    report = compared(tmp_path, PROMPT, BEGINNING, operators=operators, scaled=weight)
    assert report.exit_code() == 1
    assert "layers.1.mlp.down_proj" in report.origins[0].op


def test_tokens_chosen_behind_another_prompt_name_the_prompt(tmp_path: Path) -> None:
    longer = torch.cat([PROMPT, torch.tensor([[3, 4]])], 1)
    for name, ids in (("golden", PROMPT), ("mine", longer)):
        made = model(eos_token_id=None)
        config = DumpConfig(str(tmp_path / name), token_range=range(9))
        with torch.no_grad(), register_hook(made, config):
            made.generate(ids, max_new_tokens=3, do_sample=False)
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert report.exit_code() == 1
    assert "mine adds the last 2 tokens (3 4)" in report.origins[0].evidence


def test_padding_that_no_mask_hides_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    padded = torch.cat([PROMPT, torch.zeros(1, 4, dtype=torch.long)], 1)
    for name, ids, last in (("golden", PROMPT, 11), ("mine", padded, 11)):
        made = model()
        with torch.no_grad(), register_hook(made, DumpConfig(str(tmp_path / name))):
            made(ids, logits_to_keep=torch.tensor([last]))
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert report.exit_code() == 0


@KINDS
def test_requests_in_another_order_are_told_as_such(operators: bool, tmp_path: Path) -> None:
    batch = torch.cat([PROMPT, PROMPT.flip(1), PROMPT.roll(3, 1)])
    report = compared(tmp_path, batch, batch[[2, 0, 1]], operators=operators)
    assert report.exit_code() == 1
    text = "of `root` are those of golden in another order of requests: 2, 0, 1"
    assert text in report.origins[0].evidence


def test_a_mask_that_hides_more_is_no_other_prompt(tmp_path: Path) -> None:
    for name, hidden in (("golden", 0), ("mine", 2)):
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, :hidden] = 0
        made = model()
        with torch.no_grad(), register_hook(made, DumpConfig(str(tmp_path / name))):
            made(torch.cat([PROMPT, PROMPT.flip(1)]), attention_mask=mask)
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert report.exit_code() == 1
    assert "`attention_mask`" in report.origins[0].evidence
    told = [each.text for each in report.problems] + [each.evidence for each in report.origins]
    assert not any("prompt" in text for text in told)
