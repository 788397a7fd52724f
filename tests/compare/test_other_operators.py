"""Modules that run other operators than golden's, in programs of one type and of several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook

_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Block(nn.Module):
    """A block as that of Mamba: what goes from block to block is float32 behind the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.mixer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.norm.weight
        return x.float() + self.mixer(self.norm(x.to(weight.dtype)))


class Cutting(Block):
    """What the first one passes on has been a bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16().to(x.dtype))


Cutting.__name__ = Block.__name__
Cutting.__qualname__ = Block.__qualname__


def captured(folder: Path, kind: str, cutting: int = -1, blocks: int = 3) -> Path:
    torch.manual_seed(5)
    made: Mapping[bool, type[Block]] = {False: Block, True: Cutting}
    net = nn.Sequential(*(made[number == cutting]() for number in range(blocks))).to(_TYPES[kind])
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    config = DumpConfig(str(folder), operators=True, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(x.to(_TYPES[kind]))
    return folder


@pytest.mark.parametrize("mine", _TYPES)
@pytest.mark.parametrize("golden", _TYPES)
def test_a_program_of_another_type_converts_elsewhere(
    tmp_path: Path, golden: str, mine: str
) -> None:
    # two blocks: only one of them takes float32
    sides = (
        captured(tmp_path / side, kind, blocks=2)
        for side, kind in (("golden", golden), ("mine", mine))
    )
    found = compare(*sides)
    assert (found.exit_code(), found.origins) == (0, ())


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_one_block_that_goes_through_a_coarser_type_is_named(tmp_path: Path, kind: str) -> None:
    mine = captured(tmp_path / "mine", kind, cutting=1)
    found = compare(captured(tmp_path / "golden", kind), mine)
    assert "root.1" in [each.op.partition(".aten")[0] for each in found.origins]


def test_a_block_that_goes_through_another_half_is_named_beside_a_program_of_that_half(
    tmp_path: Path,
) -> None:
    mine = captured(tmp_path / "mine", "float16", cutting=1)
    found = compare(captured(tmp_path / "golden", "bfloat16"), mine)
    assert [each.op for each in found.origins] == ["root.1"]


class Capped(nn.Module):
    """A model whose last result is capped, as that of Gemma 2 is."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32))
        self.head = nn.Linear(32, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.layers(x))
        if self.how == "by the inverse":
            return torch.tanh(logits * (1 / 30)) * 30
        if self.how == "in float32":
            return (torch.tanh(logits.float() / 30) * 30).to(logits.dtype)
        logits = logits / 30
        return (logits if self.how == "not" else torch.tanh(logits)) * 30


def capped(folder: Path, how: str, dtype: torch.dtype = torch.float16) -> Path:
    torch.manual_seed(5)
    net = Capped(how).to(dtype)
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    config = DumpConfig(str(folder), operators=True, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(x)
    return folder


def test_a_cap_that_the_model_lacks_is_named_within_every_tolerance(tmp_path: Path) -> None:
    golden, mine = capped(tmp_path / "golden", "as it should be"), capped(tmp_path / "mine", "not")
    (origin,) = compare(golden, mine).origins
    assert origin.op == "root"
    assert "runs less of `aten.tanh` than golden's" in origin.evidence
    assert "to the bit" in origin.evidence


@pytest.mark.parametrize("how", ["by the inverse", "in float32"])
def test_a_cap_that_is_computed_otherwise_is_no_other_one(tmp_path: Path, how: str) -> None:
    golden, mine = capped(tmp_path / "golden", "as it should be"), capped(tmp_path / "mine", how)
    found = compare(golden, mine)
    assert (found.exit_code(), found.origins) == (0, ())
    found = compare(mine, golden)
    assert (found.exit_code(), found.origins) == (0, ())
