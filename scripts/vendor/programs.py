"""The vendor's tests of its Python module ``torch_atb``, run as they are on hostatb.

Each of their modules runs in a process of its own, with :mod:`vendor.stand_ins` in the place of
the device's modules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vendor.outcome import Disagreement, Outcome

PROGRAMS = Path("tests/apitest/torch_atb_test")
SECONDS = 300
_HERE = Path(__file__).resolve().parent


def run(checkout: Path, operators: Sequence[str] = (), *, largest: int = 0) -> Outcome:
    """All modules that have tests; with operators, those in a folder of one of these names."""
    del largest
    outcome = Outcome()
    for path in sorted((checkout / PROGRAMS).rglob("*.py")):
        name = path.relative_to(checkout / PROGRAMS).with_suffix("").as_posix()
        if "unittest" not in path.read_text("utf-8") or (operators and name not in operators):
            continue
        ended = _run(checkout, path)
        if isinstance(ended, str):
            outcome.skip(name, ended)
            continue
        outcome.agree(name, sum(not said for _, said in ended))
        outcome.disagreed += [
            Disagreement(name, test.rpartition(".")[2], said) for test, said in ended if said
        ]
    return outcome


def _run(checkout: Path, path: Path) -> list[tuple[str, str]] | str:
    """Its tests and how they ended, or why there is nothing to say."""
    root = (checkout / PROGRAMS).parent
    module = path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
    paths = [str(_HERE / "stand_ins"), str(root), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "ended.json"
        command = [sys.executable, "-W", "ignore", str(_HERE / "program.py"), module, str(record)]
        try:
            subprocess.run(
                command, cwd=folder, env=env, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"it takes more than {SECONDS} s"
        if not record.exists():
            return [(module, "its process ended before its tests")]
        ended: list[tuple[str, str]] = json.loads(record.read_text("utf-8"))
        return ended or "it has no tests that unittest finds"
