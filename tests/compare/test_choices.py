"""Experts that two healthy runs choose differently, and choices that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

EXPERTS, WIDTH, TOKENS, CHOSEN = 8, 16, 12, 2
NEAR = 5  # token of which two experts have almost equal scores


class Router(nn.Module):
    """Scores of all experts, and the two highest of each token."""

    def __init__(self, change: float = 0.0, *, lowest: bool = False) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.change, self.lowest = change, lowest

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.proj(x)
        order = scores.argsort(-1, descending=True)
        second, third = order[NEAR, 1], order[NEAR, 2]
        scores = scores.clone()
        scores[NEAR, third] = scores[NEAR, second] + self.change
        scores = scores.softmax(-1)
        chosen = scores.topk(CHOSEN, -1).indices
        return scores, chosen.flip(-1) * 0 + 1 if self.lowest else chosen


class Experts(nn.Module):
    """The mean of what the chosen experts make of a token."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        return torch.einsum("td,tkde->te", x, self.weight[chosen]) / CHOSEN


class Routed(nn.Module):
    """Two layers of it."""

    def __init__(self, change: float = 0.0, *, lowest: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.routers = nn.ModuleList([Router(change, lowest=lowest), Router(1.0)])
        self.experts = nn.ModuleList([Experts(), Experts()])
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for router, experts in zip(self.routers, self.experts, strict=True):
            _, chosen = router(x)
            x = x + experts(x, chosen)
        return self.last(x)


def compared(folder: Path, golden: nn.Module, mine: nn.Module, *, operators: bool) -> Report:
    x = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    for name, model in (("golden", golden), ("mine", mine)):
        config = DumpConfig(dump_path=folder / name, operators=operators)
        with torch.no_grad(), register_hook(model.eval(), config):
            model(x)
    return compare(folder / "golden", folder / "mine")


@pytest.mark.parametrize("operators", [False, True])
def test_other_experts_of_nearly_equal_scores_are_no_failure(
    operators: bool, tmp_path: Path
) -> None:
    found = compared(tmp_path, Routed(-1e-7), Routed(1e-7), operators=operators)
    assert [each for each in found.comparisons if each.verdict is Verdict.FAIL] == []
    assert found.origins == ()
    (note,) = (each.text for each in found.problems if "chose otherwise" in each.text)
    assert f"1 of {TOKENS} rows chose otherwise, row {NEAR} " in note
    assert note.endswith("is not compared, and --deep computes it again from its own inputs")
    assert found.exit_code() == 0


def test_a_fault_behind_another_choice_is_found_by_computing_again(tmp_path: Path) -> None:
    mine = Routed(1e-7)
    right = mine.last.forward
    mine.last.forward = lambda x: right(x) * 1.5  # type: ignore[method-assign]
    for name, model in (("golden", Routed(-1e-7)), ("mine", mine)):
        config = DumpConfig(dump_path=tmp_path / name, weights=True)
        with torch.no_grad(), register_hook(model.eval(), config):
            model(torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1)))
    found = compare(tmp_path / "golden", tmp_path / "mine", deep=True)
    (origin,) = found.origins
    assert (origin.op, origin.certain) == ("root.last", True)
    assert origin.evidence.endswith("because the runs chose differently before it")
    assert found.exit_code() == 1


def test_the_same_choice_made_wrongly_is_a_failure(tmp_path: Path) -> None:
    found = compared(tmp_path, Routed(-1e-7), Routed(-1e-7, lowest=True), operators=False)
    assert [each.op for each in found.origins] == ["root.routers.0"]
    assert found.exit_code() == 1


def test_other_experts_of_other_scores_are_a_failure(tmp_path: Path) -> None:
    mine = Routed(-1e-7)
    with torch.no_grad():
        mine.routers[0].proj.weight[2] *= 1.5
    found = compared(tmp_path, Routed(-1e-7), mine, operators=False)
    assert found.exit_code() == 1
    assert found.origins[0].op.startswith("root.routers.0")


class Gated(nn.Module):
    """A router whose scores an operator of the block around it orders."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.into = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        chosen = self.gate(x).softmax(-1).topk(CHOSEN, -1).indices
        return self.last(x + self.experts(x, chosen))


class Functions(Gated):
    """The same without modules."""

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.linear(x, self.into.weight, self.into.bias)
        scores = nn.functional.linear(x, self.gate.weight)
        chosen = scores.softmax(-1).topk(CHOSEN, -1).indices
        x = x + self.experts(x, chosen)
        return nn.functional.linear(x, self.last.weight, self.last.bias)


@pytest.mark.parametrize("turned", [0, 1])
def test_rows_of_a_router_in_another_order_are_another_weight(turned: int, tmp_path: Path) -> None:
    x = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    model = Functions()
    model.gate.weight.data = model.gate.weight.data.roll(turned, 0)
    sides = {"golden": (Gated(), False), "mine": (model, True)}
    for name, (side, operators) in sides.items():
        config = DumpConfig(
            dump_path=tmp_path / name, operators=operators, modules=not operators, weights=True
        )
        with torch.no_grad(), register_hook(side.eval(), config):
            side(x)
    found = compare(tmp_path / "golden", tmp_path / "mine")
    assert found.exit_code() == turned
    assert [each.op for each in found.origins] == ["root.aten.mm.default"][:turned]
