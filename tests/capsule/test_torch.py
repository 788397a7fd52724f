"""Capsules of operators, modules and nodes of torch."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capsules import run_alone, unpacked
from capture_models import capture
from click.testing import CliRunner
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.capsule import make_capsule
from ait_llm.cli.main import ait
from ait_llm.errors import UsageError

RECORDED = Path(__file__).parents[1] / "data" / "torchair" / "fx_fp16_dynamic.tar.xz"
X = torch.linspace(-2, 2, 6 * 32).reshape(6, 32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.norm, self.second = nn.Linear(32, 48), nn.LayerNorm(48), nn.Linear(48, 32)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.second(self.norm(self.first(x) * 0.5)), dim=-1)


class Wrong(TorchDispatchMode):
    """Softmax and norm are a little off, and one row of the second product."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._softmax.default:
            return found * 1.05
        if func is torch.ops.aten.native_layer_norm.default:
            return (found[0] * 1.05, *found[1:])
        if func is torch.ops.aten.addmm.default and found.shape[-1] == 32:
            found[2] += 0.5
        return found


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    with Wrong():
        capture(Net(), folder, X, operators=True, modules=False, weights=True)
    return folder


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    with Wrong():
        capture(Net(), folder, X, weights=True)
    return folder


def test_a_wrong_operator_fails_anywhere_and_passes_when_it_runs_again(
    operators: Path, tmp_path: Path
) -> None:
    made = make_capsule(operators, "root.aten._softmax.default", tmp_path / "a.zip", smaller=True)
    assert not made.passed
    assert made.shrunk is not None
    assert "the output from [6, 32] to [1, " in made.shrunk["text"]
    script = unpacked(made.path)
    (own, told), (again, _), (kernel, _) = run_alone(
        [
            [script],
            [script, "--rerun"],
            [script, "--kernel", f"{script.parent}/kernel.py:kernel"],
        ]
    )
    assert (own, again, kernel) == (1, 0, 0), told
    assert "FAIL dumped" in told
    assert '"operator": "aten._softmax.default"' in told


def test_an_operator_is_packed_with_the_weight_and_the_numbers_that_it_reads(
    operators: Path, tmp_path: Path
) -> None:
    product = make_capsule(operators, "root.second.aten.addmm.default", tmp_path / "a.zip")
    assert not product.passed
    scaled = make_capsule(operators, "root.aten.mul.Tensor", tmp_path / "b.zip")
    assert scaled.passed
    scripts = [unpacked(each.path) for each in (product, scaled)]
    (first, told), (second, again) = run_alone([[scripts[0]], [scripts[1], "--rerun"]])
    assert (first, second) == (1, 0), told + again
    assert "first bad index [2, 0]" in told
    case = json.loads((scripts[1].parent / "case.json").read_text())
    assert case["calls"][0]["params"]["input_1"] == 0.5
    assert case["operator"]["type"] == "aten.mul.Tensor"


@pytest.mark.parametrize("smaller", [False, True])
@pytest.mark.parametrize(
    ("name", "source"), [("root.norm", "norms.py"), ("root.second", "layers.py")]
)
def test_a_module_is_packed_with_its_weights_and_its_definition(
    modules: Path, tmp_path: Path, name: str, source: str, smaller: bool
) -> None:
    made = make_capsule(modules, name, tmp_path / "a.zip", smaller=smaller)
    assert not made.passed
    script = unpacked(made.path)
    (own, told), (again, _) = run_alone([[script], [script, "--rerun"]])
    assert (own, again) == (1, 0), told
    assert (script.parent / "source" / source).exists()


def test_a_node_of_a_graph_is_packed(tmp_path: Path) -> None:
    step = "graph_1/0"
    with tarfile.open(RECORDED) as archive:
        for member in archive.getmembers():
            if f"/{step}/" in member.name:
                archive.extract(member, tmp_path, filter="data")
    path = min(tmp_path.glob(f"**/{step}/*-aten.mm.default*.OUTPUT.0.*.npy"))
    values = np.load(path)
    np.save(path, (values * 1.05).astype(values.dtype))
    dump = path.parents[2]
    made = make_capsule(dump, path.name.partition("-")[0], tmp_path / "a.zip")
    assert not made.passed
    script = unpacked(made.path)
    (own, told), (again, _) = run_alone([[script], [script, "--rerun"]])
    assert (own, again) == (1, 0), told


def test_the_command_packs_an_operator_by_its_name(operators: Path, tmp_path: Path) -> None:
    words = ["repro", "-d", str(operators), "--op", "root.second.aten.addmm.default"]
    ran = CliRunner().invoke(ait, ["llm", *words, "-o", str(tmp_path / "a.zip")])
    assert ran.exit_code == 0, ran.output
    assert "FAIL: root.second.aten.addmm.default outtensor0, step 0" in ran.output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("root.second", "of those in it give one, such as root.second.aten.t.default"),
        ("root.third", "there is no operator root.third; ait llm show"),
        ("root.second.aten.t.default", "look at a parameter of the model in another way"),
    ],
)
def test_what_cannot_be_packed_is_told(
    operators: Path, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_capsule(operators, name, tmp_path / "a.zip")


def test_a_module_that_leaves_a_choice_cannot_be_packed(modules: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="root: no capsule can be made of it"):
        make_capsule(modules, "root", tmp_path / "a.zip")
