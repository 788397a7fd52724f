"""Projections whose modules compute more than their product, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.program.one_pass import Pass
from tests.match.programs.checking import Found, matched, matches_of, outputs, wrong_numbers
from tests.match.programs.families import read_torch

WORDS, HIDDEN, INNER, LAYERS = 40, 32, 48, 2
_PRODUCT = "_linear.aten.mm.default"
SCALE = 2.0**-6


class Plain(nn.Linear):
    """One product."""

    def __init__(self, width: int, result: int) -> None:
        super().__init__(width, result, bias=False)
        torch.manual_seed(width * result)
        with torch.no_grad():
            self.weight.copy_(torch.randint(-100, 100, (result, width)) * SCALE)


class Scaled(Plain):
    """What comes out is scaled, and so is what was taken from it: a module with code around it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 4.0 * 0.25


class Coded(nn.Module):
    """Whole numbers and a scale, of which each call makes the weight."""

    def __init__(self, width: int, result: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(Plain(width, result).weight.div(SCALE).to(torch.int8), False)
        self.scale = nn.Parameter(torch.tensor(SCALE), False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.codes.float() * self.scale)


class ScaledBehind(Coded):
    """The product is of the codes; it is scaled afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.codes.float()) * self.scale


class Layer(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up_linear, self.down_linear = make(HIDDEN, INNER), make(INNER, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.down_linear(self.up_linear(self.norm(x)).relu())
        return result


class Model(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList(Layer(make) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.norm(x)
        return result


def _read(make: Callable[[int, int], nn.Module], folder: Path) -> Pass:
    model = Model(make).eval()
    with torch.no_grad(), register_hook(model, DumpConfig(folder, operators=True, weights=True)):
        model(torch.arange(9)[None] * 7 % WORDS)
    return read_torch(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pass:
    return _read(Plain, tmp_path_factory.mktemp("plain"))


@pytest.fixture(params=[True, False], ids=["plain is golden", "plain is mine"])
def order(request: pytest.FixtureRequest) -> int:
    return 1 if request.param else -1


def _matched(plain: Pass, other: Pass, order: int) -> Found:
    return matched(*(plain, other)[::order])


def test_a_product_is_compared_though_its_module_computes_more(
    plain: Pass, tmp_path: Path, order: int
) -> None:
    found = _matched(plain, _read(Scaled, tmp_path), order)
    assert not wrong_numbers(found)
    products = {pair for pair in outputs(found) if all(op.endswith(_PRODUCT) for op in pair)}
    assert len(products) == 2 * LAYERS
    assert all(golden == mine for golden, mine in products)


def test_a_weight_that_is_made_of_others_is_compared_where_it_is_made(
    plain: Pass, tmp_path: Path, order: int
) -> None:
    found = _matched(plain, _read(Coded, tmp_path), order)
    assert not wrong_numbers(found)
    made = [
        (each.golden, each.mine)[::order][1].record
        for each in matches_of(found)
        if "weight" in (each.golden.record.role, each.mine.record.role)
        and "aten" in each.golden.record.op + each.mine.record.op
    ]
    kinds = {(record.op.rpartition(".aten.")[2], record.role) for record in made}
    assert {("mul.Tensor", "out"), ("mm.default", "in")} <= kinds
    assert len({record.op for record in made if record.op.endswith("mm.default")}) == 2 * LAYERS


def test_a_product_with_another_weight_is_compared_with_nothing(
    plain: Pass, tmp_path: Path, order: int
) -> None:
    found = _matched(plain, _read(ScaledBehind, tmp_path), order)
    assert not wrong_numbers(found)
    products = {pair for pair in outputs(found) if all(op.endswith(_PRODUCT) for op in pair)}
    assert not products
    assert len(matches_of(found)) > 20
