"""Batch norms that inference folds into the module before them, against the norms themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

LEVELS: dict[str, dict[str, bool]] = {
    "modules": {},
    "operators": {"operators": True},
    "operators and weights": {"operators": True, "weights": True},
}


class Tower(nn.Module):
    """Two convolutions and a projection with norms behind them, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.first_norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.second_norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head, self.head_norm = nn.Linear(8, 10), nn.BatchNorm1d(10)
        for norm in (self.first_norm, self.second_norm, self.head_norm):
            for tensor in (norm.weight, norm.running_var):
                nn.init.uniform_(tensor, 0.5, 2.0)
            for tensor in (norm.bias, norm.running_mean):
                nn.init.normal_(tensor)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first_norm(self.first(x)))
        x = functional.relu(self.second_norm(self.second(x)) + x)
        found: Tensor = self.head_norm(self.head(x.mean((2, 3))))
        return found


def folded(*, eps: float | None = None) -> nn.Module:
    """With identities in place of the norms."""
    model = Tower().eval()
    if eps is not None:
        model.first_norm.eps = eps
    model.first = fuse_conv_bn_eval(model.first, model.first_norm)
    model.second = fuse_conv_bn_eval(model.second, model.second_norm)
    model.head = fuse_linear_bn_eval(model.head, model.head_norm)
    for name in ("first_norm", "second_norm", "head_norm"):
        setattr(model, name, nn.Identity())
    return model


def without_norms() -> nn.Module:
    """The same from which the identities were erased, as compilers do."""
    traced = fx.symbolic_trace(folded())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and node.target.endswith("norm"):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def left_out() -> nn.Module:
    """A norm is gone, and its weights with it."""
    model = Tower().eval()
    model.first_norm = nn.Identity()
    return model


def captured(folder: Path, model: nn.Module, level: str) -> Path:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), register_hook(model, DumpConfig(str(folder), **LEVELS[level])):
        model(x)
    return folder


def compared(folder: Path, golden: nn.Module, mine: nn.Module, level: str) -> Report:
    sides = [captured(folder / n, m, level) for n, m in (("golden", golden), ("mine", mine))]
    return compare(*sides, jobs=1, ledger=False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("made", [folded, without_norms])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_norm_in_the_weights_before_it_is_no_error(
    made: Callable[[], nn.Module], level: str, swapped: bool, tmp_path: Path
) -> None:
    models = Tower().eval(), made()
    report = compared(tmp_path, *(models[::-1] if swapped else models), level)
    assert report.origins == ()
    assert report.verdict is Verdict.PASS
    pairs = [
        (each.mine, each.golden) if swapped else (each.golden, each.mine)
        for each in report.comparisons
        if each.verdict is Verdict.PASS
    ]
    assert any(
        (norm.op, norm.role) == ("root.head_norm", "out") and other.op.startswith("root.head")
        for norm, other in pairs
        if norm is not None and other is not None
    )


@pytest.mark.parametrize("level", ["modules", "operators"])
def test_a_norm_that_was_folded_wrongly_is_found_where_it_was_folded(
    level: str, tmp_path: Path
) -> None:
    report = compared(tmp_path, Tower().eval(), folded(eps=0.1), level)
    assert report.verdict is Verdict.FAIL
    assert report.origins[0].op.startswith("root.first")


def test_a_norm_that_was_left_out_is_found(tmp_path: Path) -> None:
    report = compared(tmp_path, Tower().eval(), left_out(), "modules")
    assert report.verdict is Verdict.FAIL
