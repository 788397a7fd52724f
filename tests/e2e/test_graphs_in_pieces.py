"""A model that the compiler takes in pieces, against the same one run eagerly or compiled whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ait_llm
from ait_llm.cli.main import ait

PROGRAM = Path(__file__).parent / "programs" / "decoder_in_pieces.py"
RUNS = {
    "eager": ("torch-op", ""),
    "modules": ("torch", ""),
    "pieces": ("fx", "compiled"),
    "whole": ("fx", "compiled whole"),
    "kernels": ("inductor", "compiled"),
    "wrong": ("fx", "compiled wrong"),
}


def _dump(kind: str, words: str, folder: Path, cache: Path) -> None:
    """A capture of both calls."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    command = f"{sys.executable} {PROGRAM} {words}"
    options = ["--type", kind, "--exec", command, "-er", "all", "-o", str(folder), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", *options],
        env={
            **kept,
            "PYTHONPATH": str(Path(ait_llm.__file__).parent.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    cache = tmp_path_factory.mktemp("cache")
    for name, (kind, words) in RUNS.items():
        found[name] = tmp_path_factory.mktemp(name)
        _dump(kind, words, found[name], cache)
    return found


def _compared(golden: Path, mine: Path, output: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of ``ait llm compare``."""
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("golden", "mine", "passing"),
    [
        ("eager", "pieces", 80),
        ("modules", "pieces", 40),
        ("eager", "kernels", 40),
        ("eager", "whole", 80),
        ("whole", "pieces", 100),
        ("pieces", "whole", 100),
        ("whole", "kernels", 40),
        ("pieces", "kernels", 20),
    ],
)
def test_a_healthy_model_is_compared_however_it_was_taken_apart(
    captured: Mapping[str, Path], tmp_path: Path, golden: str, mine: str, passing: int
) -> None:
    code, summary = _compared(captured[golden], captured[mine], tmp_path)
    assert code == 0, summary
    assert summary["counts"]["FAIL"] == summary["counts"]["ERROR"] == 0
    assert summary["counts"]["PASS"] > passing
    assert summary["problems"] == summary["origins"] == []


@pytest.mark.parametrize("golden", ["eager", "modules", "whole", "pieces"])
def test_a_wrong_operator_of_the_second_piece_is_named(
    captured: Mapping[str, Path], tmp_path: Path, golden: str
) -> None:
    code, summary = _compared(captured[golden], captured["wrong"], tmp_path)
    assert code == 1
    first = summary["origins"][0]
    assert (first["op"], first["op_id"].partition("_")[0]) == ("silu", "2")


def test_the_graphs_of_a_call_are_one_pass_of_the_program(captured: Mapping[str, Path]) -> None:
    words = ["llm", "show", str(captured["pieces"]), "--program", "--json"]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["pass"] for line in lines if "operations" in line] == [0, 1]
