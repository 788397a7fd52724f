"""``ait llm dump --type inductor`` around compiled programs that know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ait_llm
from ait_llm.cli.main import ait
from ait_llm.dumps import open_dump

PROGRAM = """
import sys, torch
torch.manual_seed(0)
weight = torch.randn(4, 4)
compiled = torch.compile(
    lambda x: torch.nn.functional.silu(x @ weight) + 1,
    options={"cpp_cache_precompile_headers": False},
)
with torch.no_grad():
    for _ in range(2):
        print(round(compiled(torch.ones(2, 4)).sum().item(), 3))
"""


def dump(
    folder: Path, kind: str, program: str, cache: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(program)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    command = f"{sys.executable} {folder / 'program.py'}"
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", kind, "--exec", command]
    return subprocess.run(
        [*words, "-o", str(folder), "--json", *options],
        env={
            **kept,
            "PYTHONPATH": str(Path(ait_llm.__file__).parent.parent),
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernels_and_nodes_of_one_program_agree(tmp_path: Path) -> None:
    printed = []
    for kind in ("inductor", "fx"):
        done = dump(tmp_path / kind, kind, PROGRAM, tmp_path / "cache", "-er", "all")
        assert done.returncode == 0, done.stderr
        *lines, summary = done.stdout.splitlines()
        printed.append(lines)
        assert json.loads(summary)["complete"] is True
    assert printed[0] == printed[1]
    kernels = list(open_dump(tmp_path / "inductor").operations())
    assert {each.step for each in kernels} == {0, 1}
    assert any("silu" in each.type for each in kernels)
    words = ["llm", "compare", "-gp", str(tmp_path / "fx"), "-mp", str(tmp_path / "inductor")]
    result = CliRunner().invoke(ait, [*words, "-o", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["verdict"] == "PASS"


def test_a_program_that_compiles_with_another_backend_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import torch\n"
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).sum().item())\n"
    )
    done = dump(tmp_path, "inductor", program, tmp_path / "cache")
    assert done.stdout.splitlines()[0] == "4.0"
    assert done.returncode == 3
    assert "the backend eager, which makes no kernels of Inductor" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("fx",), "run once for each"),
        (("torch",), "run once for each"),
        (("--layers", "0,1"), "--layers is not for --type inductor"),
        (("-ids", "0_1"), "is for ATB types"),
    ],
)
def test_options_that_mean_nothing_to_kernels_are_refused(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    words = ["llm", "dump", "--exec", "true", "-o", str(tmp_path), "--type", "inductor", *options]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 2
    assert reason in result.stderr
