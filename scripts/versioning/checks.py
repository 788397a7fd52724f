"""What an installed ait-llm must be able to do, as commands with the exit codes they end with."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TORCH_DEMO = "python -m ait_llm.hostatb.demo.llama_torch --dtype bfloat16 --tokens 2"
ATB_DEMO = "python -m ait_llm.hostatb.demo.llama --dtype bfloat16 --tokens 2"
FAULT = "--fault swapped_heads@SelfAttention:layer=1"
PROGRAMS = Path(__file__).with_name("programs")
_LIMIT = 600  # seconds of one command


@dataclass(frozen=True, slots=True)
class Check:
    """One command of ``ait llm``.

    Attributes:
        name: what the table calls it.
        words: behind ``ait llm``; folders are relative to the one it runs in.
        code: the exit code that it must end with.
        origin: the operator that it must name, by a part of its type; empty if none.
    """

    name: str
    words: tuple[str, ...]
    code: int = 0
    origin: str = ""


def _capture(name: str, program: str, kind: str, out: str, *more: str) -> Check:
    words = ("dump", "--exec", program, "--type", *kind.split(), "-o", out, *more)
    return Check(name, words)


def _comparison(name: str, golden: str, mine: str, code: int = 0, origin: str = "") -> Check:
    words = ("compare", "-gp", golden, "-mp", mine, "-o", "report", "--json")
    return Check(name, words, code, origin)


CHECKS = (
    Check("doctor", ("doctor", "-o", "doctor")),
    _capture("ATB capture", ATB_DEMO, "tensor layer model", "atb", "-er", "0,1"),
    _capture("ATB capture", f"{ATB_DEMO} {FAULT}", "tensor layer", "bad", "-er", "0,1"),
    _capture("modules", TORCH_DEMO, "torch", "modules", "--weights", "-er", "0,1"),
    _capture("operators", TORCH_DEMO, "torch-op", "operators", "--weights", "-er", "0,1"),
    _capture("statistics", TORCH_DEMO, "torch-stats", "statistics", "-er", "0,0"),
    _capture("API calls", TORCH_DEMO, "api", "calls", "-er", "0,0"),
    _capture("API calls", TORCH_DEMO, "api", "same", "-er", "0,0"),
    _capture("ranks", "python ranks.py", "torch-op", "ranks", "--weights"),
    _capture("ranks", "python ranks.py", "torch-op", "parts", "--weights"),
    _capture("compiled, modules", "python compiled.py", "torch", "traced", "--weights"),
    _capture("compiled, nodes", "python compiled.py", "fx", "nodes"),
    _capture("compiled, kernels", "python compiled.py", "inductor", "kernels"),
    _comparison("compare", "modules", "atb"),
    _comparison("compare", "modules", "bad", 1, "SelfAttention"),
    _comparison("compare", "operators", "modules"),
    _comparison("compare", "calls", "same"),
    _comparison("compare", "ranks", "parts"),
    _comparison("compare", "nodes", "kernels"),
    _comparison("compare", "nodes", "traced"),
    Check("opcheck", ("opcheck", "-i", "ranks", "-o", "checked")),
    Check("opcheck", ("opcheck", "-i", "operators", "-o", "checked")),
    Check("opcheck", ("opcheck", "-i", "atb", "-o", "checked")),
    Check("show", ("show", "operators")),
)


def run(check: Check, binaries: Path, folder: Path) -> str:
    """Run a check in a folder with the programs of an environment.

    Returns:
        Why it failed, in a line; empty where it did what it must.
    """
    path = f"{binaries}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [binaries / "ait", "llm", *check.words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(check.words[:1])} did not end within {_LIMIT} s"
    if done.returncode != check.code:
        said = (done.stderr or done.stdout).strip().splitlines()
        told = [line.strip().replace(f"{folder}/", "") for line in said if line.strip()]
        ours = [line for line in told if line.startswith("ait: ")]
        last = (ours or told or ["nothing was printed"])[-1]
        return f"exit {done.returncode} instead of {check.code}: {last}"
    if check.origin:
        named = [each["op_type"] for each in _result(done.stdout).get("origins", [])]
        if len(named) != 1 or check.origin not in named[0]:
            return f"named {', '.join(named) or 'nothing'} instead of {check.origin}"
    return ""


def failures(binaries: Path, folder: Path) -> Iterator[tuple[Check, str]]:
    """Each check in order, run in an environment, with why it failed; empty where it did not."""
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    for check in CHECKS:
        yield check, run(check, binaries, folder)


def _result(printed: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(printed.splitlines()[-1])
    return found
