"""``ait llm bisect`` on three pairs of programs: the operator for at most 5 % of full dumps."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ait_llm
from ait_llm.probe.library import find_packaged

PROGRAMS = Path(__file__).parent / "programs"
LLAMA = f"{sys.executable} -m ait_llm.hostatb.demo.llama"
TWIN = f"{sys.executable} -m ait_llm.hostatb.demo.llama_torch"
FAULTY_TWIN = f"{sys.executable} {PROGRAMS / 'faulty_llama_twin.py'}"
# Large enough that the fixed cost of statistics, a few hundred bytes for each tensor, is small.
SIZES = "--hidden 512 --intermediate 1408 --layers 2 --vocab 512 --tokens 1"
LONG = f"{SIZES} --prompt-lengths 200,150"
SHARE = 0.05

needs_probe = pytest.mark.skipif(
    find_packaged("libatb_probe_abi1.so", os.environ) is None,
    reason="needs the compiled libraries",
)


@dataclass(frozen=True)
class Ran:
    """A finished ``ait llm bisect``."""

    done: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads(self.done.stdout.splitlines()[-1]))

    @property
    def operator(self) -> str:
        assert self.result["status"] == "found", self.done.stderr
        return str(self.result["origin"]["op"])

    def check_cost(self) -> None:
        """At most 5 %, of which the files that are still there are a part."""
        cost = self.result["bytes"]
        print(  # noqa: T201  # shown with -s
            f"{cost['share']:.2%} of {cost['full_dumps']:,} bytes in {len(self.result['runs'])} "
            f"runs: {self.operator}"
        )
        assert cost["written"] <= SHARE * cost["full_dumps"]
        left = [path for path in self.folder.rglob("*") if path.is_file()]
        assert 0 < sum(path.stat().st_size for path in left) <= cost["written"] + 64 * 1024


def bisect(folder: Path, mine: str, golden: str, *options: str) -> Ran:
    paths = [str(Path(ait_llm.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("ATB_")}
    words = ["bisect", "--exec", mine, "--golden-exec", golden, "--budget", "5%", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", *words, "-o", str(folder / "out"), *options],
        cwd=folder,
        env={
            **environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done, folder / "out")


def normal(text: str) -> list[str]:
    """Lines without what differs between runs and machines, and without those of the programs."""
    text = re.sub(r"\n {12}", " ", text)
    text = re.sub(r"/\S*/(ait_bisect)_\d{14}", r"/\1_STAMP", text)
    text = re.sub(r"[\d.]+ [KM]iB", "SIZE", text)
    text = re.sub(r"[\d.]+ % of SIZE", "SHARE of SIZE", text)
    text = re.sub(r"\[[\d, ]+\] is \S+ and should be [^\s;]+", "ELEMENT", text)
    own = re.compile(r"llama tiny|prompt of|\d x \d")
    return [line for line in text.splitlines() if line and not own.match(line)]


@pytest.mark.native
@needs_probe
def test_atb_against_atb_as_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "bisect.md").read_text(encoding="utf-8")
    example = page.partition("```console\n")[2].partition("```")[0]
    command, _, shown = example.partition("\n")
    words = shlex.split(command.removeprefix("$ ").replace("python -m", f"{sys.executable} -m"))
    # Swapped heads change no maximum and no norm of their own operator.
    mine, golden = (words[words.index(name) + 1] for name in ("--exec", "--golden-exec"))
    ran = bisect(tmp_path, mine, golden)
    assert ran.done.returncode == 1, ran.done.stderr
    assert normal(ran.done.stderr) == normal(shown)
    assert ran.operator == "SelfAttentionOperation_3_0_2_1"
    ran.check_cost()
    assert [run["side"] for run in ran.result["runs"]] == ["mine", "mine", "golden", "mine"]
    assert all(run["written"] <= (run["planned"] or 1e9) * 1.1 for run in ran.result["runs"])


def test_torch_ends_with_the_operator_and_its_number_as_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "bisect.md").read_text(encoding="utf-8")
    example = page.split("```console\n")[2].partition("```")[0]
    command, _, shown = example.partition("\n")
    program = f"{sys.executable} {PROGRAMS / 'attention_net.py'}"
    words = shlex.split(command.removeprefix("$ ").replace("python attention_net.py", program))
    mine, golden = (words[words.index(name) + 1] for name in ("--exec", "--golden-exec"))
    kinds = ("--type", "torch", "--golden-type", "torch", "--runs", "1", "--budget", "200M")
    ran = bisect(tmp_path, mine, golden, *kinds)
    assert ran.done.returncode == 1, ran.done.stderr
    assert normal(ran.done.stderr) == normal(shown)
    assert ran.operator == "root.layers.1.attention.aten.mul.Tensor"
    assert ran.result["module"] == "root.layers.1.attention"


def test_torch_against_torch(tmp_path: Path) -> None:
    mine = f"{FAULTY_TWIN} model.layers.1.mlp.down_proj {LONG}"
    kinds = ("--type", "torch", "--golden-type", "torch", "--clean")
    ran = bisect(tmp_path, mine, f"{TWIN} {LONG}", *kinds)
    assert ran.done.returncode == 1, ran.done.stderr
    assert ran.operator == "root.model.layers.1.mlp.down_proj"
    assert "raise --budget" in ran.result["notes"][-1]  # the operators in it are beyond 5 %
    ran.check_cost()
    (folder,) = ran.folder.iterdir()
    assert [path.name for path in folder.iterdir()] == ["bisect.json"]
    assert json.loads((folder / "bisect.json").read_text()) == ran.result


@pytest.mark.native
@needs_probe
def test_atb_against_torch(tmp_path: Path) -> None:
    mine = f"{LLAMA} {SIZES} --fault scale_1pct:op=3_2_1 --save-outputs tokens.safetensors"
    golden = f"{TWIN} {SIZES} --follow tokens.safetensors"
    ran = bisect(tmp_path, mine, golden, "--runs", "1")
    assert ran.done.returncode == 1, ran.done.stderr
    assert ran.operator == "ActivationOperation_3_2_1"
    assert "recomputed" in ran.result["origin"]["evidence"]
    ran.check_cost()


@pytest.mark.native
@needs_probe
def test_a_wrong_value_in_a_cache_is_found_in_the_step_that_wrote_it(tmp_path: Path) -> None:
    program = f"{LLAMA} --layers 1 --tokens 2"
    options = ("--budget", "100%", "--runs", "1", "--type", "atb", "--golden-type", "atb")
    ran = bisect(tmp_path, f"{program} --fault wrong_element:op=2_0_2_0", program, *options)
    assert ran.done.returncode == 1, ran.done.stderr
    assert ran.operator == "ReshapeAndCacheOperation_2_0_2_0"
    assert "a later step reads what it wrote" in ran.result["origin"]["evidence"]
