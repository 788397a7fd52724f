"""Calls of functions and modules: captures of ours, of msprobe, and those it recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import copytree

import msprobe_samples

from healthy_runs.model import Healthy, kept

PEER = os.environ.get("AIT_LLM_PEER_PYTHON")
"""Python of an environment with mindstudio-probe; pairs against it are left out without."""
_SUPPORT = Path(__file__).resolve().parents[1]
_WAYS = [
    ("statistics", "L0", "statistics"),
    ("statistics", "L1", "statistics"),
    ("statistics", "mix", "statistics"),
    ("statistics", "L1", "md5"),
    ("tensor", "L0", "statistics"),
    ("tensor", "L1", "statistics"),
    ("tensor", "mix", "md5"),
    ("tensor", "debug", "statistics"),
]
# what differs there is in the values, of one side alone
_RECORDED = ("L0_stat", "L1_md5", "L1_tensor", "mix_tensor", "zoo_stat", "zoo_tensor", "debug_stat")


def _captured(tool: str, task: str, level: str, summary: str, dump: Path) -> None:
    config = {
        "task": task,
        "dump_path": str(dump),
        "rank": [],
        "step": [],
        "level": level,
        "risk_level": "ALL",
        task: {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary},
    }
    path = dump.with_suffix(".json")
    path.write_text(json.dumps(config))
    python = str(PEER) if tool == "msprobe" else sys.executable
    words = [python, str(_SUPPORT / "api_program.py"), tool, str(path)]
    environment = dict(os.environ)
    if tool == "ait":
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    else:
        environment.pop("PYTHONPATH", None)
    more = ["save"] if level == "debug" else []
    subprocess.run([*words, *more], check=True, capture_output=True, env=environment)


def _sample(name: str, folder: Path) -> Path:
    return msprobe_samples.sample(name) / "golden"


def _copy(name: str, folder: Path) -> Path:
    def make(dump: Path) -> None:
        copytree(_sample(name, folder), dump)

    return kept(f"calls-copy-{name}", make, folder)


def pairs() -> Iterator[Healthy]:
    """One training program at each level, and what msprobe recorded against a copy."""
    for way in _WAYS:

        def run(tool: str, again: str = "", way: tuple[str, str, str] = way) -> partial[Path]:
            name = "-".join(["calls", tool, *way, again])
            return partial(kept, name, partial(_captured, tool, *way))

        start = f"l/{'-'.join(way)}"
        yield Healthy(f"{start}/ours-again", run("ait"), run("ait", "again"), table=True)
        if PEER is not None:
            yield Healthy(f"{start}/msprobe-ours", run("msprobe"), run("ait"), table=True)
            yield Healthy(f"{start}/ours-msprobe", run("ait"), run("msprobe"), table=True)
    for name in _RECORDED:
        yield Healthy(f"l/{name}/copy", partial(_sample, name), partial(_copy, name), table=True)
