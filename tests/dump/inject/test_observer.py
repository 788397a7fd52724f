"""Digests differ exactly where what a model returns differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from ait_llm.dump.inject.channel import read_reports
from ait_llm.dump.inject.observer import digest, observe_outputs
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: X.clone(),
        lambda: X.clone().T.contiguous().T,
        lambda: X.to_sparse(),
        lambda: X.to(torch.bfloat16),
        lambda: {"logits": X.clone(), "cache": [(X + 1, X + 2)], "loss": 0.5},
        lambda: X.to(torch.complex64).conj(),
        lambda: torch.empty(0, 3),
        lambda: torch.empty(2, 3, device="meta"),
        lambda: torch.tensor(float("nan")),
    ],
)
def test_equal_values_have_equal_digests(make: Callable[[], object]) -> None:
    assert digest(make()) == digest(make())


def test_the_layout_of_a_tensor_does_not_count() -> None:
    assert digest(X) == digest(X.T.contiguous().T)


@pytest.mark.parametrize(
    "other",
    [
        X + torch.tensor([0.0, 0.0, 1e-6]),
        X.double(),
        X.reshape(3, 2),
        (X, X),
        {"a": X},
        X.to(torch.complex64),
        torch.where(X == 0, -0.0, X),
        1.0,
        None,
    ],
)
def test_unlike_values_have_unlike_digests(other: object) -> None:
    assert digest(X) != digest(other)


def test_each_output_of_a_model_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CHANNEL_VARIABLE, str(tmp_path))
    model = nn.Linear(3, 2)
    observe_outputs(model, "root")
    outputs = [model(X), model(X + 1)]
    reports = list(read_reports(tmp_path))
    assert [report.facts["sha256"] for report in reports] == [digest(o) for o in outputs]
    assert {(report.event, report.facts["root"]) for report in reports} == {("output", "root")}
