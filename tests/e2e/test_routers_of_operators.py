"""Routers in captures of operators alone (``--type torch-op``), from the command to the verdict."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait
from ait_llm.match.programs.routers import is_router
from ait_llm.program.adapt_operators import program_of_operators
from ait_llm.program.passes import passes_of

PROGRAM = Path(__file__).parent / "programs" / "routed_experts.py"
PROGRAMS = runpy.run_path(str(PROGRAM))
PROCESSES = {  # these pairs go from command to verdict
    ("mixtral", "eager", "float32", "none"),
    ("mixtral", "eager", "float32", "sum"),
    ("qwen3-moe", "sdpa", "bfloat16", "none"),
}
ROUTER = "root.model.layers.1.mlp.gate."


def _run(words: tuple[str, ...], folder: Path) -> None:
    """Capture a program in a process of its own, as a user does."""
    command = shlex.join([sys.executable, str(PROGRAM), *words])
    options = ["--exec", command, "--type", "torch-op", "--weights", "-o", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _captured_here(words: tuple[str, ...], folder: Path) -> None:
    """The same in this process: importing transformers takes longer than all of the program."""
    family, attention, dtype, fault = words
    model = PROGRAMS["make"](family, attention).to(getattr(torch, dtype))
    PROGRAMS["spoil"](model.model.layers[1].mlp.gate, fault)
    config = DumpConfig(dump_path=folder, operators=True, modules=False, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(torch.arange(3, 13)[None], use_cache=False)


@pytest.fixture(scope="module", name="captured")
def _captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Captures a program, each once: family, attention, type and fault."""
    folder = tmp_path_factory.mktemp("routers")

    @cache
    def captured(*words: str) -> Path:
        path = folder / "-".join(words)
        (_run if words in PROCESSES else _captured_here)(words, path)
        return path

    return captured


@pytest.fixture(scope="module", name="compared")
def _compared(
    captured: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Compares a run with golden's, which is of float32 and eager."""
    report = tmp_path_factory.mktemp("report")

    @cache
    def compared(family: str, *words: str) -> tuple[int, dict[str, Any]]:
        golden, mine = captured(family, "eager", "float32", "none"), captured(family, *words)
        given = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", report, "-j", "1", "--json"]
        result = CliRunner().invoke(ait, list(map(str, given)))
        return result.exit_code, json.loads(result.stdout.splitlines()[-1])

    return compared


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe"])
def test_a_router_is_known_by_the_choice_that_follows_it(
    captured: Callable[..., Path], family: str, dtype: str
) -> None:
    dump = open_dump(captured(family, "eager" if dtype == "float32" else "sdpa", dtype, "none"))
    (process,) = dump.processes
    (run,) = passes_of(dump, process)
    program = program_of_operators(run)
    routers = {
        program.operations[unit.op].name for unit in program.units if is_router(program, unit)
    }
    assert routers == {f"root.model.layers.{layer}.mlp.gate.aten.mm.default" for layer in (0, 1)}


@pytest.mark.parametrize("fault", ["weight", "order", "number", "sum"])
@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe"])
def test_a_wrong_router_is_named_and_no_expert(
    compared: Callable[..., tuple[int, dict[str, Any]]], family: str, fault: str
) -> None:
    code, result = compared(family, "eager", "float32", fault)
    (origin,) = result["origins"]
    assert code == 1
    assert result["verdict"] == "FAIL"
    assert origin["op"].startswith(ROUTER)


def test_weights_that_the_router_does_not_divide_are_told_of_its_code(
    compared: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    _, result = compared("mixtral", "eager", "float32", "sum")
    assert (
        "the code of `root.model.layers.1.mlp.gate` leaves out `aten.div_.Tensor`: it hands on "
        "what `aten.topk.default` makes, and golden's makes `aten.div_.Tensor` of it first"
    ) in result["origins"][0]["evidence"]


def test_another_number_of_experts_is_told_of_the_choice(
    compared: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    _, result = compared("mixtral", "eager", "float32", "number")
    assert (
        f"`k` of `{ROUTER}aten.topk.default` is 1 instead of 2" in result["origins"][0]["evidence"]
    )


@pytest.mark.parametrize(("attention", "dtype"), [("sdpa", "float32"), ("sdpa", "bfloat16")])
@pytest.mark.parametrize("family", ["mixtral", "qwen3-moe"])
def test_healthy_experts_raise_no_alarm(
    compared: Callable[..., tuple[int, dict[str, Any]]], family: str, attention: str, dtype: str
) -> None:
    code, result = compared(family, attention, dtype, "none")
    assert result["verdict"] == "PASS"
    assert result["origins"] == []
    assert code in (0, 3)  # kernels of attention have parts that only one of them runs
