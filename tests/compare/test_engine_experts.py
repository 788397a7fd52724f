"""An engine whose router takes another of two experts with equal scores, and routers that err."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_model
import pytest
import torch
from engine_program import PROMPTS, capture_golden, capture_server, golden_mixtral
from torch import Tensor

from ait_llm import compare
from ait_llm.core.comparison import Comparison, Report, Verdict

EXPERTS = "root.model.layers.0.block_sparse_moe.experts"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden")
    capture_golden(place, golden_mixtral(), PROMPTS, 3)
    return place


def captured(folder: Path) -> Path:
    with torch.no_grad():
        capture_server(folder, golden_mixtral(), weights=True)
    return folder


@pytest.fixture(scope="module")
def healthy(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return compare(golden, captured(tmp_path_factory.mktemp("mine")))


def narrowed(report: Report) -> list[Comparison]:
    return [item for item in report.comparisons if "follow from other experts" in item.reason]


def test_equal_scores_are_no_fault(healthy: Report) -> None:
    assert healthy.verdict is Verdict.PASS
    assert healthy.origins == ()
    assert any("chose other experts" in problem.text for problem in healthy.problems)


def test_the_other_rows_of_such_values_are_compared(healthy: Report) -> None:
    found = [item for item in narrowed(healthy) if item.verdict is Verdict.PASS]
    outputs = [item for item in found if item.mine and item.mine.op == EXPERTS]
    assert len(found) > 20
    assert outputs
    assert all("rows of axis 0" in item.my_view for item in outputs)
    assert all(item.values["relative_euclidean_distance"] < 1e-4 for item in found)


def test_what_has_no_other_rows_is_not_compared(healthy: Report) -> None:
    left = [item for item in narrowed(healthy) if item.verdict is Verdict.SKIPPED]
    assert left
    assert not any(item.comparable for item in left)
    assert all(item.mine is not None and item.golden is not None for item in left)


def second_best(chosen: Tensor, logits: Tensor) -> Tensor:
    return logits.sort(dim=-1, descending=True).indices[:, 1:3]


def one_row(chosen: Tensor, logits: Tensor) -> Tensor:
    """The two worst experts for a row behind one with equal scores, in the same request."""
    worst = logits.sort(dim=-1).indices[-2:-1, :2]
    return torch.cat([chosen[:-2], worst, chosen[-1:]])


@pytest.mark.parametrize("wrong", [second_best, one_row])
def test_a_router_that_takes_other_experts_fails(
    wrong: Callable[[Tensor, Tensor], Tensor],
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forward(self: Any, hidden_states: Tensor, router_logits: Tensor) -> Tensor:
        shares = torch.softmax(router_logits, dim=-1)
        chosen = wrong(shares.topk(self.top_k).indices, router_logits)
        taken = shares.gather(-1, chosen)
        return self._experts(hidden_states, chosen, taken / taken.sum(dim=-1, keepdim=True))

    monkeypatch.setattr(engine_model.FusedMoE, "forward", forward)
    report = compare(golden, captured(tmp_path / "mine"))
    assert report.verdict is Verdict.FAIL
    assert report.origins[0].op == EXPERTS
