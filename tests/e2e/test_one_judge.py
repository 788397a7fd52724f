"""One judge for every kind of run: healthy ones are not accused, and the wrong operator is named.

Each program is captured and compared by the command line, as a user would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from matching_truth import families
from matching_truth.drives import DRIVES, once
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

HALVES = [torch.bfloat16, torch.float16]


def captured(
    folder: Path,
    model: nn.Module,
    drive: Any = once,
    *,
    operators: bool = False,
    weights: bool = True,
) -> Path:
    """A capture of one pass of a model."""
    config = DumpConfig(dump_path=folder, operators=operators, weights=weights)
    with torch.no_grad(), register_hook(model.eval(), config):
        drive(model)
    return folder


def family(name: str, folder: Path, *, operators: bool = False, **how: Any) -> Path:
    """A capture of a model of ``transformers``; ``change`` puts a bug into it."""
    change = how.pop("change", None)
    dtype = how.pop("dtype", torch.float32)
    torch.manual_seed(7)  # some models draw where nobody gives them weights
    model = families.make(name, **how).to(dtype)
    if change is not None:
        change(model)
    return captured(folder, model, DRIVES.get(name, once), operators=operators)


def ran(command: str, *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and result of a command."""
    result = CliRunner().invoke(ait, ["llm", command, *map(str, words), "-j", "1", "--json"])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def compared(golden: Path, mine: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result of a comparison."""
    out = golden.parent / "out"
    return ran("compare", "-gp", golden, "-mp", mine, "-o", out, *words)


class Net(nn.Module):
    """A few layers, of which two compute in float32 whatever the type of the model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(32, 48)
        self.norm = nn.LayerNorm(48)
        self.first = nn.Linear(48, 64)
        self.second = nn.Linear(64, 32)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.norm(self.embedding(ids).float()).to(self.first.weight.dtype)
        return self.second(torch.relu(self.first(hidden))).float().softmax(-1)


def ids_of(model: nn.Module) -> None:
    """One pass over some ids."""
    model(torch.arange(24).view(2, 12))


def net(dtype: torch.dtype) -> Net:
    """The network, whose norm stays in float32."""
    model = Net().to(dtype)
    model.norm.float()
    return model


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_16_bit_run_is_not_accused_for_being_compared_with_float32(
    dtype: torch.dtype, operators: bool, tmp_path: Path
) -> None:
    golden = captured(tmp_path / "golden", net(torch.float32), ids_of, operators=operators)
    mine = captured(tmp_path / "mine", net(dtype), ids_of, operators=operators)
    code, found = compared(golden, mine)
    assert (code, found["counts"]["FAIL"], found["origins"]) == (0, 0, [])


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_a_16_bit_llama_is_not_accused_for_being_compared_with_float32(
    dtype: torch.dtype, operators: bool, tmp_path: Path
) -> None:
    golden = family("llama", tmp_path / "golden", operators=operators)
    mine = family("llama", tmp_path / "mine", operators=operators, dtype=dtype)
    code, found = compared(golden, mine)
    assert (code, found["counts"]["FAIL"], found["origins"]) == (0, 0, [])


@pytest.mark.parametrize("name", families.FAMILIES)
def test_identical_runs_of_operators_are_healthy(name: str, tmp_path: Path) -> None:
    golden, mine = (family(name, tmp_path / side, operators=True) for side in ("golden", "mine"))
    code, found = compared(golden, mine)
    assert (code, found["counts"]["FAIL"], found["counts"]["ERROR"]) == (0, 0, 0)


def biased(dtype: torch.dtype) -> nn.Module:
    """Projections with biases, in front of which cancels much."""
    torch.manual_seed(11)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)]
    return nn.Sequential(*layers).to(dtype)


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_healthy_projections_with_biases_pass_the_check_of_one_dump(
    dtype: torch.dtype, operators: bool, tmp_path: Path
) -> None:
    def drive(model: nn.Module) -> None:
        model(torch.randn(20, 64, generator=torch.Generator().manual_seed(1)).to(dtype))

    dump = captured(tmp_path / "dump", biased(dtype), drive, operators=operators)
    code, found = ran("opcheck", "-i", dump, "-o", tmp_path / "out")
    assert (code, found["counts"]["FAIL"], found["counts"]["ERROR"]) == (0, 0, 0)
    assert found["counts"]["PASS"] >= 18


class Int8(nn.Module):
    """A projection whose weights are whole numbers with one scale for each row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.detach().abs().amax(-1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(linear.weight.detach() / scale).to(torch.int8))
        self.register_buffer("weight_scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.get_buffer("weight_scale")
        return nn.functional.linear(x, self.get_buffer("weight").to(x.dtype) * scale)


def quantised(model: nn.Module) -> None:
    """Replace all projections of the layers."""
    for name, each in list(model.named_modules()):
        if isinstance(each, nn.Linear) and "layers" in name:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Int8(each))


@pytest.mark.parametrize("operators", [False, True])
def test_int8_weights_are_healthy_without_a_tolerance_of_the_users_own(
    operators: bool, tmp_path: Path
) -> None:
    golden = family("llama", tmp_path / "golden", operators=operators)
    mine = family("llama", tmp_path / "mine", operators=operators, change=quantised)
    code, found = compared(golden, mine)
    assert (code, found["counts"]["FAIL"], found["origins"]) == (0, 0, [])


def coarse(model: nn.Module) -> None:
    """An epsilon of 0.01 in the first norm."""
    model.get_submodule("model.layers.0.input_layernorm").variance_epsilon = 0.01


def coarse_within(model: nn.Module) -> None:
    """The same written into the code, where nobody can read it."""
    norm = model.get_submodule("model.layers.0.input_layernorm")

    def forward(x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 0.01)
        return norm.weight * wide.to(x.dtype)

    norm.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize("change", [coarse, coarse_within])
@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("golden_dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_epsilon_in_bfloat16_does_not_pass(
    golden_dtype: torch.dtype, operators: bool, change: Any, tmp_path: Path
) -> None:
    golden = family("llama", tmp_path / "golden", operators=operators, dtype=golden_dtype)
    mine = family(
        "llama", tmp_path / "mine", operators=operators, dtype=torch.bfloat16, change=change
    )
    code, found = compared(golden, mine)
    assert code == 1
    [origin] = found["origins"]
    assert origin["op"].startswith("root.model.layers.0.input_layernorm")
