"""``ait llm compare`` with weights that one side has quantised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from quantised_weights import FORMATS
from safetensors.torch import save_file
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

ROWS, COLUMNS, GROUP = 160, 128, 32
NAMES = ("model.layers.0.up_proj", "model.layers.1.up_proj", "model.layers.10.up_proj")


def _compare(golden: Path, mine: Path, output: Path) -> Result:
    words = ["llm", "compare", "-gp", str(golden), "-mp", str(mine), "-o", str(output)]
    return CliRunner().invoke(ait, [*words, "--format", "jsonl"])


def _rows(output: Path) -> list[dict[str, Any]]:
    (report,) = output.rglob("*.jsonl")
    lines = (json.loads(line) for line in report.read_text().splitlines())
    return [line for line in lines if line["type"] == "comparison"]


def _torch(array: np.ndarray) -> Tensor:
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.ascontiguousarray(array))


def _checkpoints(folder: Path, form: str, *, faulty: str = "") -> tuple[Path, Path]:
    draw = np.random.default_rng(3)
    real: dict[str, Tensor] = {}
    stored: dict[str, Tensor] = {}
    for name in NAMES:
        weight = draw.standard_normal((ROWS, COLUMNS)) * 0.05
        real[f"{name}.weight"] = torch.from_numpy(weight).bfloat16()
        for part, array in FORMATS[form](weight, GROUP)[0].items():
            if name == faulty and "scale" in part:
                array = array + 1 if array.dtype == np.uint8 else array * array.dtype.type(1.5)
            stored[f"{name}.{part}"] = _torch(array)
    for side, tensors in (("golden", real), ("mine", stored)):
        (folder / side).mkdir()
        save_file(tensors, folder / side / "model.safetensors")
    return folder / "golden", folder / "mine"


@pytest.mark.parametrize("form", FORMATS)
def test_a_quantised_checkpoint_passes_within_its_step(tmp_path: Path, form: str) -> None:
    found = _compare(*_checkpoints(tmp_path, form), tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert [row["verdict"] for row in _rows(tmp_path / "out")] == ["PASS"] * 3


@pytest.mark.parametrize("form", FORMATS)
def test_wrong_scales_of_one_weight_are_named(tmp_path: Path, form: str) -> None:
    sides = _checkpoints(tmp_path, form, faulty=NAMES[1])
    found = _compare(*sides, tmp_path / "out")
    assert found.exit_code == 1
    (failed,) = (row for row in _rows(tmp_path / "out") if row["verdict"] == "FAIL")
    assert failed["mine"]["op"] == f"{NAMES[1]}.weight"
    assert ", of " in failed["why"]


class PackedLinear(nn.Module):
    """A projection that keeps its weight as GPTQ does."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.shape = tuple(weight.shape)
        for name, array in FORMATS["gptq"](weight.double().numpy(), GROUP)[0].items():
            self.register_buffer(name, _torch(array))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.qweight.unsqueeze(1) >> torch.arange(0, 32, 4)[:, None]
        data = (rows & 15).flatten(0, 1).float()
        zeros = (self.qzeros.unsqueeze(-1) >> torch.arange(0, 32, 4) & 15).flatten(1) + 1
        weight = (data - zeros[self.g_idx].float()) * self.scales[self.g_idx].float()
        return x @ weight


class Model(nn.Module):
    def __init__(self, packed: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        kinds = [nn.LayerNorm(64), nn.Linear(64, 64, bias=False), nn.LayerNorm(64)]
        kinds.append(nn.Linear(64, 32, bias=False))
        self.layers = nn.Sequential(*kinds).requires_grad_(False)
        if packed:
            for place in (1, 3):
                self.layers[place] = PackedLinear(self.layers[place].weight)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


def test_parameters_of_captures_are_dequantised(tmp_path: Path) -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    for side, packed in (("golden", False), ("mine", True)):
        model = Model(packed)
        with register_hook(model, DumpConfig(str(tmp_path / side), weights=True)):
            model(x)
    _compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out")
    rows = [
        row
        for row in _rows(tmp_path / "out")
        if ", of int4 of GPTQ in groups" in row.get("why", "")
    ]
    assert len(rows) == 2
    assert all(row["verdict"] == "PASS" for row in rows)


class Adapted(nn.Module):
    """A projection with an adapter, named and described as peft does."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, base.out_features, bias=False)})
        self.scaling = {"default": 2.0}

    def forward(self, x: Tensor) -> Tensor:
        change = self.lora_B["default"](self.lora_A["default"](x))
        result: Tensor = self.base_layer(x) + change * self.scaling["default"]
        return result


@pytest.mark.parametrize("scaling", [2.0, 1.9])
def test_a_merged_adapter_is_the_base_and_its_product(tmp_path: Path, scaling: float) -> None:
    adapted, merged = Model(packed=False), Model(packed=False)
    for place in (1, 3):
        layer = Adapted(adapted.layers[place]).requires_grad_(False)  # type: ignore[arg-type]
        change = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        merged.layers[place].weight += scaling * change
        adapted.layers[place] = layer
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    for side, model in (("golden", merged), ("mine", adapted)):
        with register_hook(model, DumpConfig(str(tmp_path / side), weights=True)):
            model(x)
    _compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out")
    rows = [row for row in _rows(tmp_path / "out") if "adapter, scaled by 2" in row.get("why", "")]
    assert [row["verdict"] for row in rows] == ["PASS" if scaling == 2 else "FAIL"] * 2
