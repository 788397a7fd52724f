"""Experts in one operation against experts in modules of their own, operator by operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from matching_truth.program import Captured, Program, capture
from matching_truth.scoring import Side, difference, score_captures
from torch import Tensor, nn

from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply

WIDTH, INNER, EXPERTS, CHOSEN, WORDS, TOKENS, LAYERS = 16, 24, 4, 2, 40, 9, 2


class JoinedExperts(nn.Module):
    """All tokens sorted by expert, products in groups, chances applied at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(EXPERTS, 2 * INNER, WIDTH))
        self.down_proj = nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor, chosen: Tensor, chances: Tensor) -> Tensor:
        order = chosen.reshape(-1).argsort(stable=True)
        ends = torch.bincount(chosen.reshape(-1), minlength=EXPERTS).cumsum(0).int()
        sent = x[order // CHOSEN]
        gate, up = torch._grouped_mm(sent, self.gate_up_proj.transpose(-2, -1), offs=ends).split(
            INNER, -1
        )
        made = torch._grouped_mm(
            self.act_fn(gate) * up, self.down_proj.transpose(-2, -1), offs=ends
        )
        made = made * chances.reshape(-1)[order][:, None]
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        return made[back].view(x.shape[0], CHOSEN, WIDTH).sum(1)


class LoopedExperts(JoinedExperts):
    """The same weights, but expert by expert, each with its share of them."""

    def forward(self, x: Tensor, chosen: Tensor, chances: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            rows, places = torch.where(chosen == number)
            both = nn.functional.linear(x[rows], self.gate_up_proj[number])
            gate, up = both.chunk(2, dim=-1)
            made = nn.functional.linear(self.act_fn(gate) * up, self.down_proj[number])
            total.index_add_(0, rows, made * chances[rows, places, None])
        return total


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, WIDTH))
        self.is_whole = True

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = nn.functional.linear(x, self.weight)
        chances, chosen = scores.softmax(-1).topk(CHOSEN, dim=-1)
        return scores, chances / chances.sum(-1, keepdim=True) if self.is_whole else chances, chosen


class JoinedMoe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Router()
        self.experts: nn.Module = JoinedExperts()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        _, chances, chosen = self.gate(flat)
        return self.experts(flat, chosen, chances).view(x.shape)


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class ApartMoe(nn.Module):
    """A softmax of the chosen scores alone; expert by expert adds what it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, WIDTH)
        scores, chosen = self.gate(flat).topk(CHOSEN, dim=-1)
        chances = scores.softmax(-1)
        total = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            total[rows] += chances[rows, places, None] * expert(flat[rows])
        return total.view(x.shape)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Layer(nn.Module):
    def __init__(self, *, joined: bool) -> None:
        super().__init__()
        self.norm = Norm()
        self.mlp = JoinedMoe() if joined else ApartMoe()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, *, joined: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(joined=joined) for _ in range(LAYERS))
        self.norm = Norm()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def _model(*, joined: bool) -> nn.Module:
    """With the same weights either way."""
    torch.manual_seed(5)
    apart = Model(joined=False)
    for name, weight in apart.named_parameters():
        nn.init.normal_(weight, 1 if "norm" in name else 0, 0.4)
    if not joined:
        return apart
    found = Model(joined=True)
    state = apart.state_dict()
    for layer in range(LAYERS):
        stem = f"layers.{layer}.mlp.experts"
        parts = {
            part: [state.pop(f"{stem}.{number}.{part}_proj.weight") for number in range(EXPERTS)]
            for part in ("gate", "up", "down")
        }
        pairs = zip(parts["gate"], parts["up"], strict=True)
        state[f"{stem}.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in pairs])
        state[f"{stem}.down_proj"] = torch.stack(parts["down"])
    found.load_state_dict(state)
    return found


def _captured(folder: Path, name: str) -> Captured:
    ids = torch.arange(TOKENS)[None] * 7 % WORDS

    def make() -> nn.Module:
        model = _model(joined=name != "apart")
        for module in model.modules():
            if isinstance(module, Router):
                module.is_whole = name != "chances of all"
            if name == "looped" and isinstance(module, JoinedMoe):
                looped = LoopedExperts()
                looped.load_state_dict(module.experts.state_dict())
                module.experts = looped
        return model

    return capture(Program(name, make, lambda model: model(ids), operators=True), folder)


def _matches(golden: Captured, mine: Captured) -> list[Match]:
    [pair] = pair_runs(find_scenario(golden.dump, mine.dump)).pairs
    found = match_runs(pair.golden, pair.mine, MatchOptions())
    return [each for each in found if isinstance(each, Match)]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Captured, Captured]:
    folder = tmp_path_factory.mktemp("experts")
    return _captured(folder, "joined"), _captured(folder, "apart")


@pytest.mark.parametrize("order", [1, -1], ids=["joined is golden", "apart is golden"])
def test_rows_of_experts_are_found_operator_by_operator(
    sides: tuple[Captured, Captured], order: int
) -> None:
    golden, mine = sides[::order]
    found = score_captures(golden, mine)
    assert found.total > 200
    assert found.wrong == 0, "\n".join(found.details)
    assert found.recall >= 0.95, "\n".join(found.details)


@pytest.mark.parametrize("other", ["joined", "apart"])
def test_rows_of_experts_that_a_loop_computes_are_found(
    sides: tuple[Captured, Captured], tmp_path: Path, other: str
) -> None:
    looped = _captured(tmp_path, "looped")
    found = score_captures(looped, sides[other == "apart"])
    assert found.wrong == 0, "\n".join(found.details)
    assert found.recall >= 0.95, "\n".join(found.details)


def test_each_expert_meets_its_share_of_the_weights_of_all(
    sides: tuple[Captured, Captured], tmp_path: Path
) -> None:
    golden, mine = _captured(tmp_path, "looped"), sides[1]
    shares = {
        each.mine.record.op: each
        for each in _matches(golden, mine)
        if each.golden.record.role == "weight" and each.golden.record.name == "down_proj"
    }
    sent = {
        each.mine.record.op
        for each in _matches(golden, mine)
        if each.mine.record.op.endswith(".down_proj") and 0 not in each.mine.tensor.shape
    }
    assert set(shares) == sent
    for each in shares.values():
        weights = [apply(side.tensor.nd(), side.views) for side in (each.golden, each.mine)]
        np.testing.assert_array_equal(*weights)


def test_chances_that_are_not_divided_by_their_sum_answer_no_softmax_of_the_chosen(
    sides: tuple[Captured, Captured], tmp_path: Path
) -> None:
    def answered(golden: Captured) -> set[str]:
        return {
            each.mine.record.op
            for each in _matches(golden, sides[1])
            if "mlp.aten._softmax" in each.mine.record.op and each.mine.record.name == "outtensor0"
        }

    assert len(answered(sides[0])) == LAYERS
    assert not answered(_captured(tmp_path, "chances of all"))


def test_what_each_expert_gives_is_compared_with_its_rows(
    sides: tuple[Captured, Captured],
) -> None:
    golden, mine = (Side(each) for each in sides)
    given = {
        each.mine.record.op: each
        for each in _matches(*sides)
        if each.mine.record.op.endswith(".down_proj.aten.mm.default")
        and each.mine.record.name == "outtensor0"
    }
    sent = {op for op, each in given.items() if 0 not in each.mine.tensor.shape}
    assert len(sent) > LAYERS
    for op in sent:
        assert "_grouped_mm" in given[op].golden.record.op
        assert difference(golden, mine, given[op], 1e-9) == ""
