"""Faulty runs in memory: who is named, what kind of bug it is, and what the page says of all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "localisation.md"
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import asdict
from fault_kinds import kind_of
from fault_runs import Trial, outcomes
trials = [
    Trial(dtype="bfloat16"),
    Trial("wrong_epsilon", "input norm", 1, "decode", "bfloat16"),
    Trial("dropped_tail", "down", 2, "prefill", "float16"),
    Trial("swapped_heads", "attention", 0, "decode", "float16"),
]
for trial, outcome in outcomes(trials):
    wanted = [trial.op_id, kind_of(trial.fault, trial.place)] if trial.fault else ["", ""]
    print(json.dumps([wanted, [outcome.blamed[0] if outcome.blamed else "", outcome.kind]]))
"""


def test_faults_in_memory_are_named_with_their_kinds_and_nobody_without() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "tests" / "support")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(rows) == 4
    assert [found for _, found in rows] == [wanted for wanted, _ in rows]


def test_the_page_reaches_its_aims() -> None:
    rates = dict(re.findall(r"^\| ([^|]+) \| (\d+ of \d+)[^|]*\|", PAGE.read_text(), re.M))

    def share(name: str) -> float:
        some, _, all_ = rates[name].partition(" of ")
        return int(some) / int(all_)

    assert share("faulty operator first") >= 0.95
    assert share("among the first 3") >= 0.99
    assert share("kind named") >= 0.85
    assert share("wrong kind named") <= 0.03
    assert rates["runs without fault that blame somebody"] == "0 of 50"


def test_the_page_explains_every_kind() -> None:
    from ait_llm.diagnosis import Kind

    page = PAGE.read_text()
    table = page[page.index("| kind |") : page.index("Two numbers decide")]
    missing = [kind.value for kind in Kind if kind.value not in table]
    assert missing == []
