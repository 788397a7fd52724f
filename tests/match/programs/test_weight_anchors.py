"""Weights say which columns are which, whatever order they have and whatever is wrong.

One small decoder is written twice: with a projection for each of query, key and value, and with one
for all in an order that the test draws. So every column has its label by construction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.match.model import Match
from ait_llm.match.views import apply
from tests.match.programs.checking import Found, matched, matches_of, wrong_numbers
from tests.match.programs.families import read_torch

HEADS, GROUPS, DIM, LAYERS = 4, 2, 8, 3
HIDDEN = HEADS * DIM
WIDTHS = (HIDDEN, GROUPS * DIM, GROUPS * DIM)


@dataclass(frozen=True)
class Order:
    """Which row of query, key and value, one below the other, each row of the joined one is."""

    rows: tuple[int, ...]
    is_turned: bool = False

    def joined(self, parts: list[Tensor]) -> Tensor:
        return torch.cat(parts)[list(self.rows)]

    def split(self, result: Tensor) -> tuple[Tensor, ...]:
        return result[..., np.argsort(self.rows).tolist()].split(WIDTHS, -1)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Blocks in any order, or interleaved by group, perhaps in another rotary layout."""
    every = np.arange(sum(WIDTHS))
    parts = np.split(every, np.cumsum(WIDTHS)[:-1])
    turn = draw(st.sampled_from(((1, DIM), (2, DIM // 2), (DIM // 2, 2))))
    parts[:2] = [part.reshape(-1, *turn).swapaxes(1, 2).reshape(-1) for part in parts[:2]]
    chosen = [parts[place] for place in draw(st.permutations(range(3)))]
    if draw(st.booleans()):
        grouped = [part.reshape(GROUPS, -1) for part in chosen]
        return Order(tuple(np.concatenate(grouped, 1).reshape(-1).tolist()), turn[0] > 1)
    return Order(tuple(np.concatenate(chosen).tolist()), turn[0] > 1)


class Attention(nn.Module):
    """Without positions, so that any order of columns computes the same."""

    def __init__(self, order: Order | None) -> None:
        super().__init__()
        self.order = order
        if order is None:
            self.a, self.b, self.c = (nn.Linear(HIDDEN, width) for width in WIDTHS)
        else:
            self.mix = nn.Linear(HIDDEN, sum(WIDTHS))
        self.out = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        if self.order is None:
            parts = self.a(x), self.b(x), self.c(x)
        else:
            parts = self.order.split(self.mix(x))
        q, k, v = (part.unflatten(-1, (-1, DIM)).transpose(-2, -3) for part in parts)
        k, v = (part.repeat_interleave(HEADS // GROUPS, -3) for part in (k, v))
        context = (q @ k.transpose(-1, -2) / DIM**0.5).softmax(-1) @ v
        result: Tensor = self.out(context.transpose(-2, -3).flatten(-2))
        return result


class Layer(nn.Module):
    def __init__(self, order: Order | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention(order)
        self.up, self.down = nn.Linear(HIDDEN, 48), nn.Linear(48, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.down(self.up(self.norm2(x)).relu())
        return result


class Model(nn.Module):
    def __init__(self, order: Order | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, HIDDEN)
        self.layers = nn.ModuleList(Layer(order) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.norm(x)
        return result


def _golden() -> Model:
    torch.manual_seed(7)
    model = Model().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.normal_(1.0, 0.2)
    return model


def _joined(golden: Model, order: Order) -> Model:
    """The same model with joined projections."""
    weights = dict(golden.state_dict())
    for layer in range(LAYERS):
        at = f"layers.{layer}.attention"
        for kind in ("weight", "bias"):
            parts = [weights.pop(f"{at}.{part}.{kind}") for part in "abc"]
            weights[f"{at}.mix.{kind}"] = order.joined(parts)
    model = Model(order).requires_grad_(False)
    model.load_state_dict(weights)
    return model


def _found(golden: Model, mine: Model, folder: Path) -> Found:
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for name, model in (("golden", golden), ("mine", mine)):
        with register_hook(model, DumpConfig(str(folder / name), weights=True)):
            model(ids)
    return matched(read_torch(folder / "golden"), read_torch(folder / "mine"))


def _labels(match: Match, order: Order) -> tuple[set[str], set[str]]:
    """The labels of the columns that a match of two projections compares, of either side."""
    sides = []
    for source in (match.golden, match.mine):
        name, _, part = source.record.op.rpartition(".")
        shape = source.tensor.shape
        if part == "mix":
            labels = np.asarray(order.rows)
        else:
            start = int(np.cumsum((0, *WIDTHS))["abc".index(part)])
            labels = np.arange(start, start + WIDTHS["abc".index(part)])
        rows = np.arange(shape[-2])[:, None] * 1000 + labels
        sides.append(apply(np.broadcast_to(rows, shape), source.views))
    np.testing.assert_array_equal(sides[0], sides[1])
    return tuple({f"{name} {each % 1000}" for each in side.reshape(-1)} for side in sides)  # type: ignore[return-value]


def _columns(found: Found, order: Order) -> set[str]:
    """Which columns of which layers of the projections are compared; all with themselves."""
    labels: set[str] = set()
    for match in matches_of(found):
        records = match.golden.record, match.mine.record
        if all(
            each.role == "out" and each.op.split(".")[-2:-1] == ["attention"] for each in records
        ) and not any(each.op.endswith(".out") for each in records):
            labels |= _labels(match, order)[0]
    return labels


EVERY = {
    f"root.layers.{layer}.attention {column}"
    for layer in range(LAYERS)
    for column in range(sum(WIDTHS))
}


@settings(max_examples=12)
@given(orders(), st.booleans())
def test_columns_of_any_order_are_told_by_the_weights(order: Order, swapped: bool) -> None:
    golden = _golden()
    sides = (_joined(golden, order), golden) if swapped else (golden, _joined(golden, order))
    with tempfile.TemporaryDirectory() as folder:
        found = _found(*sides, Path(folder))
        assert wrong_numbers(found, 1e-4) == []
        assert _columns(found, order) == EVERY


def _random(weight: Tensor) -> None:
    weight.normal_(0, 0.2)


def _scale(weight: Tensor) -> None:
    weight *= 1.5


def _few_rows(weight: Tensor) -> None:
    weight[3:5] = 0.25


def _swapped_rows(weight: Tensor) -> None:
    weight[[2, 50]] = weight[[50, 2]].clone()


@pytest.mark.parametrize("fault", [_random, _scale, _few_rows, _swapped_rows])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_faulty_weight_moves_no_pair_and_is_the_one_that_differs(
    tmp_path: Path, fault: Callable[[Tensor], None], layer: int
) -> None:
    blocks = np.split(np.arange(sum(WIDTHS)), np.cumsum(WIDTHS)[:-1])
    order = Order(tuple(np.concatenate([blocks[1], blocks[2], blocks[0]]).tolist()))
    golden = _golden()
    mine = _joined(golden, order)
    fault(mine.layers[layer].attention.mix.weight.data)  # type: ignore[union-attr, arg-type]
    found = _found(golden, mine, tmp_path)
    assert _columns(found, order) == EVERY
    differ = {
        match.mine.record.title
        for match in matches_of(found)
        if match.mine.record.role == "weight" and not _agrees(match)
    }
    assert differ == {f"root.layers.{layer}.attention.mix weight"}


def _agrees(match: Match) -> bool:
    sides = (apply(each.tensor.nd(), each.views) for each in (match.golden, match.mine))
    return bool(np.allclose(*sides, atol=1e-6))


class Other(nn.Module):
    """A layer under other names."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.first, self.mixer, self.second = layer.norm1, layer.attention, layer.norm2
        self.wide, self.narrow = layer.up, layer.down

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.first(x))
        result: Tensor = x + self.narrow(self.wide(self.second(x)).relu())
        return result


class Pruned(nn.Module):
    """The layers of a model but one, under other names."""

    def __init__(self, model: Model, without: int) -> None:
        super().__init__()
        self.table, self.end = model.embed, model.norm
        self.h = nn.ModuleList(Other(each) for n, each in enumerate(model.layers) if n != without)  # type: ignore[arg-type]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for layer in self.h:
            x = layer(x)
        result: Tensor = self.end(x)
        return result


@pytest.mark.parametrize("without", range(LAYERS))
def test_layers_that_one_side_lacks_are_told_by_the_weights(tmp_path: Path, without: int) -> None:
    golden = _golden()
    found = _found(golden, Pruned(_golden(), without), tmp_path)
    left = [layer for layer in range(LAYERS) if layer != without]
    pairs = {
        (match.golden.record.op, match.mine.record.op, match.confidence > 0.5)
        for match in matches_of(found)
        if match.golden.record.op.endswith(".up") and match.golden.record.role == "out"
    }
    assert pairs == {
        (f"root.layers.{layer}.up", f"root.h.{place}.wide", True)
        for place, layer in enumerate(left)
    }
