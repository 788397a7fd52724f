"""The command line of ``ait llm plan``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.dump import dump
from ait_llm.cli.plan import plan
from ait_llm.errors import AitError, FormatError, IncompleteError, UsageError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
}
PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

model = Model()
with torch.no_grad():
    for _ in range(3):
        model(torch.zeros(8, 64))
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, list(words), catch_exceptions=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a program with --exec, or a config.json with --model"),
        (("--exec", "a", "--model", "b"), "give a program with --exec, or a config.json"),
        (("--exec", "a", "--batch", "2"), "--batch is for --model"),
        (("--exec", "a > b"), ">"),
        (("--exec", "no-such-program-here", "--no-measure"), "no-such-program-here"),
        (("--exec", "a", "--budget", "many"), "--budget 'many' is not a size"),
        (("--exec", "a", "--type", "torch", "-ids", "2"), "-ids|--save-operation-ids"),
        (("--model", "nowhere.json", "--no-measure"), "nowhere.json"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = run(*words, "-o", str(tmp_path))
    assert isinstance(result.exception, AitError)
    assert any(each in str(result.exception) for each in message.split("|"))
    assert result.exception.exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "names no model_type"),
        ('{"model_type": 3}', "names no model_type"),
        (json.dumps({**LLAMA, "num_hidden_layers": 10**7}), "num_hidden_layers is 10000000"),
        (json.dumps({"model_type": "x", "text_config": {"vocab_size": 1 << 40}}), "vocab_size"),
        (" " * (5 << 20), "larger than 4 MiB"),
    ],
)
def test_a_config_that_cannot_be_one_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    result = run("--model", str(path), "--no-measure", "-o", str(tmp_path))
    assert isinstance(result.exception, FormatError)
    assert message in str(result.exception)


def test_a_model_has_no_compiled_graphs(config: Path, tmp_path: Path) -> None:
    result = run("--model", str(config), "--type", "fx", "--no-measure", "-o", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert "--type fx" in str(result.exception)


def test_an_encoder_has_no_known_operators_on_atb(config: Path, tmp_path: Path) -> None:
    config.write_text(json.dumps({**LLAMA, "model_type": "bert"}))
    result = run("--model", str(config), "--type", "tensor", "--no-measure", "-o", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert "use --exec, or --type torch" in str(result.exception)


def test_a_program_without_atb_cannot_be_planned(tmp_path: Path) -> None:
    words = shlex.join([sys.executable, "-S", "-c", "raise SystemExit(9)"])
    result = run("--exec", words, "--no-measure", "-o", str(tmp_path / "out"))
    assert isinstance(result.exception, IncompleteError)
    assert "nothing can be planned" in str(result.exception)
    assert "exit code 9" in str(result.exception)
    assert not (tmp_path / "out").exists()


def atb_plan(config: Path, *words: str) -> Result:
    return run(
        *("--model", str(config), "--type", "tensor", "-er", "0,9", "--prompt-len", "64"),
        *("--no-measure", "-o", str(config.parent), *words),
    )


def test_the_text_has_80_columns_but_for_long_words(config: Path) -> None:
    result = atb_plan(config, "--budget", "20M")
    assert result.exit_code == 0, result.output
    for line in result.output.splitlines():
        assert len(line) <= 80 or max(map(len, line.split())) > 40


def test_commands_in_the_text_are_taken_by_a_shell_and_by_the_dump(config: Path) -> None:
    result = atb_plan(config, "--budget", "20M")
    text = result.output.replace("\\\n", " ")
    commands = [
        line[line.index("ait llm dump") :] for line in text.splitlines() if "ait llm dump" in line
    ]
    assert len(commands) > 2
    for command in commands:
        dump.make_context("dump", shlex.split(command)[3:])


def test_nothing_that_fits_ends_with_3(config: Path) -> None:
    result = atb_plan(config, "--budget", "1K")
    assert result.exit_code == 3
    assert "nothing fits; the smallest capture would be" in " ".join(result.output.split())


def test_all_that_fits_is_said(config: Path) -> None:
    result = atb_plan(config, "--budget", "100G", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["fits"] is True
    assert told["proposals"][0]["command"] == told["asked"]["command"]
    assert told["disk"]["measured"] is False
    assert "all of it fits" in result.stderr


def test_a_program_is_planned_within_a_budget(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(PROGRAM)
    result = run(
        *("--exec", shlex.join([sys.executable, str(script)]), "--type", "torch", "-er", "all"),
        *("--budget", "40K", "--json", "--no-measure", "-o", str(tmp_path / "out")),
    )
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert told["fits"] is False
    assert told["asked"]["steps"] == 3
    # Each layer has an output; the input of the first is what the model gets.
    assert told["asked"]["parts"]["tensors"]["files"] == 3 * 5
    assert told["asked"]["parts"]["tensors"]["bytes"] > 3 * 5 * 8 * 64 * 4
    assert all(each["bytes"] <= 40 << 10 for each in told["proposals"])
    assert told["asked"]["seconds"]["program"] > 0
    assert not (tmp_path / "out").exists()


def test_every_option_of_the_dump_is_taken() -> None:
    own = {param.name for param in plan.params}
    others = {
        "allow_skip",
        "inputs",
        "msprobe_config",
        "start",
        "control",
        "most_bytes",
        "record_arguments",
    }  # of a capture that runs
    assert {param.name for param in dump.params if isinstance(param, click.Option)} <= own | others
