"""A weight that is not golden's is told in its own words: transposed, scaled, of another layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matching_truth import families
from matching_truth.drives import once
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare

Change = Callable[[nn.Module], None]


def _captured(folder: Path, change: Change | None, dtype: torch.dtype) -> Path:
    model = families.make("llama", sizes="equal").eval()
    with torch.no_grad():
        if change is not None:
            change(model)
        model = model.to(dtype)
        with register_hook(model, DumpConfig(dump_path=folder, weights=True)):
            once(model)
    return folder


def _said(folder: Path, change: Change, dtype: torch.dtype = torch.float32) -> str:
    golden = _captured(folder / "golden", None, torch.float32)
    report = compare(golden, _captured(folder / "mine", change, dtype), jobs=1)
    (origin,) = report.origins
    assert origin.kind == "other weight"
    return origin.evidence


def _transposed(model: nn.Module) -> None:
    weight = model.model.layers[1].self_attn.q_proj.weight
    weight.copy_(weight.t().clone())


def _scaled(model: nn.Module) -> None:
    model.model.layers[1].mlp.down_proj.weight.mul_(1.25)


def _stale(model: nn.Module) -> None:
    model.model.layers[1].load_state_dict(model.model.layers[0].state_dict())


def _one_element(model: nn.Module) -> None:
    model.model.layers[1].self_attn.q_proj.weight[3, 5] += 0.5


def _other_checkpoint(model: nn.Module) -> None:
    torch.manual_seed(99)
    for each in model.parameters():
        if each.dim() > 1:
            each.copy_(0.1 * torch.randn(each.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_transposed, "; it is that of golden, transposed;"),
        (_scaled, "; it is that of golden times 1.25;"),
        (_stale, "; it is golden's `root.model.layers.0.self_attn.q_proj.weight`;"),
    ],
)
def test_what_a_wrong_weight_is_instead_is_told(
    change: Change, words: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    assert words in _said(tmp_path, change, dtype)


def test_of_another_checkpoint_it_is_told_how_many_weights_are_others(tmp_path: Path) -> None:
    said = _said(tmp_path, _other_checkpoint)
    assert "; so are " in said
    assert " other weights, as of another checkpoint;" in said


def test_a_weight_with_one_other_element_is_nothing_else(tmp_path: Path) -> None:
    said = _said(tmp_path, _one_element)
    assert "it is" not in said
    assert "so are" not in said
