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


class Head(nn.Module):
    """A projection."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, 32) / 5)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class CappingHead(Head):
    """The same that caps what it makes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(super().forward(x) / 30) * 30


CappingHead.__name__ = Head.__name__
CappingHead.__qualname__ = Head.__qualname__


class Capped(nn.Module):
    """A model whose last result is capped, as that of Gemma 2 is."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32))
        self.head = CappingHead() if how == "by the head" else Head()

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.layers(x))
        if self.how in ("nowhere", "by the head"):
            return logits
        if self.how == "by the inverse":
            return torch.tanh(logits * (1 / 30)) * 30
        if self.how == "in float32":
            return (torch.tanh(logits.float() / 30) * 30).to(logits.dtype)
        logits = logits / 30
        return (logits if self.how == "not" else torch.tanh(logits)) * 30


def capped(
    folder: Path, how: str, dtype: torch.dtype = torch.float16, *, operators: bool = True
) -> Path:
    torch.manual_seed(5)
    net = Capped(how).to(dtype)
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    config = DumpConfig(str(folder), operators=operators, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(x)
    return folder


def test_a_cap_that_the_model_lacks_is_named_within_every_tolerance(tmp_path: Path) -> None:
    golden, mine = capped(tmp_path / "golden", "as it should be"), capped(tmp_path / "mine", "not")
    (origin,) = compare(golden, mine).origins
    assert origin.op == "root"
    assert "runs less of `aten.tanh` than golden's" in origin.evidence
    assert "to the bit" in origin.evidence


def test_a_cap_that_the_model_lacks_is_named_by_its_modules_alone(tmp_path: Path) -> None:
    golden = capped(tmp_path / "golden", "in float32", operators=False)
    mine = capped(tmp_path / "mine", "nowhere", operators=False)
    (origin,) = compare(golden, mine).origins
    assert (origin.op, origin.certain) == ("root", True)
    text = "behind `root.head`, whose results agree: it hands it on to the bit, and golden's makes"
    assert text in origin.evidence
    (origin,) = compare(mine, golden).origins
    assert (origin.op, origin.certain) == ("root", True)
    assert "it makes another value of it (" in origin.evidence


@pytest.mark.parametrize("golden", ["as it should be", "in float32", "by the head"])
@pytest.mark.parametrize("mine", ["by the head", "by the inverse"])
def test_a_cap_of_another_module_is_the_same_cap(tmp_path: Path, golden: str, mine: str) -> None:
    sides = (
        capped(tmp_path / side, how, operators=False)
        for side, how in (("golden", golden), ("mine", mine))
    )
    found = compare(*sides)
    assert (found.exit_code(), found.origins) == (0, ())


@pytest.mark.parametrize("how", ["by the inverse", "in float32"])
def test_a_cap_that_is_computed_otherwise_is_no_other_one(tmp_path: Path, how: str) -> None:
    golden, mine = capped(tmp_path / "golden", "as it should be"), capped(tmp_path / "mine", how)
    found = compare(golden, mine)
    assert (found.exit_code(), found.origins) == (0, ())
    found = compare(mine, golden)
    assert (found.exit_code(), found.origins) == (0, ())


class Norm(nn.Module):
    """A norm that works in float32, or forgets to."""

    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))
        self.forgets = forgets

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.forgets else x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Steep(nn.Module):
    """What multiplies the relative error of what it is given, as the decay of Mamba does."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(20 * x)


def normed(folder: Path, kind: str, forgetting: set[int], last: nn.Module | None = None) -> Path:
    torch.manual_seed(5)
    layers = [layer for at in range(4) for layer in (Norm(at in forgetting), nn.Linear(32, 32))]
    net = nn.Sequential(*layers, last or nn.Identity()).to(_TYPES[kind])
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.no_grad(), register_hook(net, DumpConfig(str(folder), operators=True)):
        net(x.to(_TYPES[kind]))
    return folder


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_norm_that_alone_forgets_to_widen_is_named_beside_a_program_that_need_not(
    tmp_path: Path, kind: str
) -> None:
    golden, mine = normed(tmp_path / "g", "float32", set()), normed(tmp_path / "m", kind, {0})
    (origin,) = compare(golden, mine).origins
    assert origin.op == "root.0"
    assert "runs less of `aten._to_copy to float32` than those of the 3 other" in origin.evidence


@pytest.mark.parametrize("forgetting", [set(), {0, 1}, {0, 1, 2}, {0, 1, 2, 3}])
def test_norms_of_two_kinds_are_no_fault_of_one(tmp_path: Path, forgetting: set[int]) -> None:
    golden = normed(tmp_path / "g", "float32", set())
    found = compare(golden, normed(tmp_path / "m", "float16", forgetting))
    assert (found.exit_code(), found.origins) == (0, ())


def test_what_is_named_within_tolerance_fails_beside_errors_that_are_explained(
    tmp_path: Path,
) -> None:
    golden = normed(tmp_path / "g", "float32", set(), Steep())
    healthy = compare(golden, normed(tmp_path / "h", "float16", set(), Steep()))
    assert any("its inputs explain" in each.reason for each in healthy.comparisons)
    assert (healthy.exit_code(), healthy.origins) == (0, ())
    found = compare(golden, normed(tmp_path / "m", "float16", {0}, Steep()))
    assert ([each.op for each in found.origins], found.exit_code()) == (["root.0"], 1)
