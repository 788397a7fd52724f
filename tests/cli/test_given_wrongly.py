"""What users give wrongly is found first and said in its own words, by the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from generating import PROMPT, model
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

Spoil = Callable[[nn.Module], None]


def run(folder: Path, spoil: Spoil | None = None, **given: Any) -> Path:
    """A capture of one forward call with weights; ``spoil`` changes the model before."""
    made = model()
    if spoil is not None:
        spoil(made)
    arguments = {
        "input_ids": PROMPT,
        "attention_mask": torch.ones_like(PROMPT),
        "position_ids": torch.arange(PROMPT.shape[1])[None],
        **given,
    }
    with torch.no_grad(), register_hook(made, DumpConfig(str(folder), weights=True)):
        made(**arguments)
    return folder / "ait_dump"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("golden"))


def compared(golden: Path, mine: Path, out: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of the command."""
    words = ["compare", "-gp", str(golden), "-mp", str(mine), "-o", str(out), "--json"]
    result = CliRunner().invoke(ait, ["llm", *words])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def louder(made: nn.Module) -> None:
    """A kernel that computes 1.3 times what it should."""
    kernel = made.model.layers[1].mlp.down_proj
    kernel.register_forward_hook(lambda _module, _inputs, output: output * 1.3)


def test_exchanged_sides_are_told_by_the_side_that_computes_wrongly(
    golden: Path, tmp_path: Path
) -> None:
    faulty = run(tmp_path / "faulty", louder)
    code, told = compared(faulty, golden, tmp_path / "a")
    [origin] = told["origins"]
    assert code == 1
    assert origin["op"] == "root.model.layers.1.mlp.down_proj"
    assert origin["evidence"].startswith("golden is the wrong side here: outtensor0 of golden's ")
    assert "exchange -gp and -mp" in origin["evidence"]
    assert not origin["certain"]
    _, told = compared(golden, faulty, tmp_path / "b")
    assert "golden is the wrong side" not in told["origins"][0]["evidence"]


def test_one_folder_for_both_sides_is_no_result(golden: Path, tmp_path: Path) -> None:
    code, told = compared(golden, golden, tmp_path)
    assert code == 3
    assert f"golden and mine are both {golden}" in told["problems"][0]


def test_one_folder_is_known_however_it_is_written(golden: Path, tmp_path: Path) -> None:
    code, told = compared(golden, golden.parent, tmp_path)
    assert code == 3
    assert "golden and mine are both" in told["problems"][0]


def test_another_weight_is_named(golden: Path, tmp_path: Path) -> None:
    def spoil(made: nn.Module) -> None:
        with torch.no_grad():
            made.model.layers[0].self_attn.v_proj.weight *= 1.02

    code, told = compared(golden, run(tmp_path / "mine", spoil), tmp_path)
    assert code == 1
    text = told["origins"][0]["evidence"]
    assert text.startswith(
        "`weight` of `root.model.layers.0.self_attn.v_proj` is not that of golden, 100 % of its"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"input_ids": PROMPT + (torch.arange(4) == 2)},
            "inputs differ already: `input_ids` of `root` differ at position 2: 6 instead of 5",
        ),
        (
            {"position_ids": torch.arange(4)[None] + 1},
            "inputs differ already: `position_ids` of `root` differ at position 0: 1 instead of 0",
        ),
        (
            {"attention_mask": (torch.arange(4) != 0).long()[None]},
            "inputs differ already: `attention_mask` of `root` hides position 0 only in mine",
        ),
    ],
    ids=["tokens", "positions", "mask"],
)
def test_another_input_is_named_with_its_place(
    golden: Path, tmp_path: Path, given: dict[str, torch.Tensor], text: str
) -> None:
    code, told = compared(golden, run(tmp_path / "mine", **given), tmp_path)
    assert code == 1
    assert text in told["origins"][0]["evidence"]


PROGRAM = """
import sys, torch
torch.manual_seed(int(sys.argv[1]))
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
net(torch.ones(2, 4))
"""


def test_two_runs_in_one_folder_are_told_and_the_newest_is_compared(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(PROGRAM)

    def dump(folder: str, seed: int) -> tuple[str, list[str]]:
        command = f"{sys.executable} {tmp_path / 'net.py'} {seed}"
        words = ["dump", "--exec", command, "--type", "torch", "-o", str(tmp_path / folder)]
        result = CliRunner().invoke(ait, ["llm", *words, "--json"])
        assert result.exit_code == 0, result.output
        return result.stderr, json.loads(result.stdout.splitlines()[-1])["notes"]

    text = "holds the capture of 1 process already"
    first, notes = dump("mine", 1)
    assert text not in first + str(notes)
    dump("golden", 2)
    before, after = dump("mine", 2)
    assert text in before
    assert text in str(after)
    golden, mine = (tmp_path / name / "ait_dump" for name in ("golden", "mine"))
    code, told = compared(golden, mine, tmp_path)
    assert code == 0, told
    [note] = [each for each in told["problems"] if "earlier run" in each]
    assert "lies in the same folder and was left out" in note
