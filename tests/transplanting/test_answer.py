"""How far an answer is from golden's, against torch in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from ait_llm.transplanting.answer import Answer, Damage
from ait_llm.transplanting.places import Numbers


class Known:
    """A place whose numbers are known."""

    key = "0/root/output_logits"

    def __init__(self, values: Any) -> None:
        self._values = values

    def mine_at(self, _run: Path, _numbers: Numbers) -> Any:
        return self._values


def damage(golden: torch.Tensor, mine: torch.Tensor | None, *, is_logits: bool = True) -> Damage:
    numbers = Numbers(golden.numpy().reshape(-1), None)
    place: Any = Known(None if mine is None else mine.numpy().reshape(-1))
    return Answer([place], [numbers], golden.shape[-1], is_logits).damage(Path())


@pytest.fixture
def logits() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(2)
    golden = torch.randn(7, 50, generator=drawn)
    return golden, golden + 0.3 * torch.randn(7, 50, generator=drawn)


def test_the_divergence_is_that_of_torch(logits: tuple[torch.Tensor, torch.Tensor]) -> None:
    golden, mine = (functional.log_softmax(each.double(), -1) for each in logits)
    each = functional.kl_div(mine, golden, reduction="none", log_target=True).sum(-1)
    found = damage(*logits)
    assert found.kl == pytest.approx(float(each.mean()), rel=1e-9)
    assert found.worst_kl == pytest.approx(float(each.max()), rel=1e-9)
    assert found.rows == 7


def test_rows_with_another_largest_token_are_counted_with_their_distance(
    logits: tuple[torch.Tensor, torch.Tensor],
) -> None:
    golden, mine = logits
    chosen = golden.argmax(-1)
    lost = mine.max(-1).values - mine[torch.arange(7), chosen]
    found = damage(golden, mine)
    assert found.flipped == int((lost > 0).sum()) > 0
    assert found.margin == pytest.approx(float(lost[lost > 0].min()), rel=1e-6)


def test_what_changes_no_probability_is_no_damage(
    logits: tuple[torch.Tensor, torch.Tensor],
) -> None:
    golden, _ = logits
    found = damage(golden, golden + torch.arange(7.0)[:, None])
    assert found.error < 1e-6
    assert found.flipped == 0


def test_an_answer_that_is_not_finite_or_not_there_is_infinitely_far(
    logits: tuple[torch.Tensor, torch.Tensor],
) -> None:
    golden, mine = logits
    mine[3, 4] = math.nan
    assert damage(golden, mine).error == math.inf
    assert damage(golden, None).error == math.inf


def test_numbers_that_are_no_logits_have_no_divergence() -> None:
    golden = torch.from_numpy(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    found = damage(golden, 2 * golden, is_logits=False)
    assert found.kl is None
    assert found.flipped is None
    assert found.error == pytest.approx(1.0)


@pytest.mark.parametrize("mask", [-math.inf, torch.finfo(torch.float32).min])
def test_tokens_that_both_programs_mask_are_no_part_of_it(
    logits: tuple[torch.Tensor, torch.Tensor], mask: float
) -> None:
    without = damage(*logits)
    padded = [torch.nn.functional.pad(each, (0, 14), value=mask) for each in logits]
    found = damage(*padded)
    assert found.error == pytest.approx(without.error, rel=1e-9)
    assert found.kl == pytest.approx(without.kl, rel=1e-9)
    assert (found.flipped, found.margin) == (without.flipped, without.margin)


def test_a_token_that_one_program_masks_is_infinitely_far(
    logits: tuple[torch.Tensor, torch.Tensor],
) -> None:
    golden, mine = logits
    golden[3, 4] = -math.inf
    assert damage(golden, mine).error == math.inf
    assert damage(mine, golden).error == math.inf


def test_low_numbers_that_are_no_logits_are_no_masks() -> None:
    golden = torch.tensor([[-1e5, 1e5, 0.0, 0.0]])
    mine = torch.tensor([[-2e5, 2e5, 0.0, 0.0]])
    assert damage(golden, mine, is_logits=False).error == pytest.approx(1.0)
    assert damage(golden[:, :1], mine[:, :1]).error == 0  # one token: of no other probability
