"""Programs written for torch_atb make the recorded calls of the Probe, tensor values aside."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TRACES = HERE.parent / "data" / "atb-trace"
PROGRAMS = {
    "graph3": "trace-02-graph3-all.jsonl",
    "nested3": "trace-03b-nested-3rounds-all-false.jsonl",
    "model": "trace-07-model-2steps-all.jsonl",
    "multikernel": "trace-08h-multi-kernel-and-misc-ops.jsonl",
}
ANSWERS = {
    entry["file"]: entry["probeReturns"]
    for entry in json.loads((TRACES / "index.json").read_text())
}

pytestmark = pytest.mark.native


def probe_calls(text: str) -> list[tuple[str, Any, Any]]:
    """Calls with arguments and answers; checksums left out, as the data differs."""
    calls = []
    for line in text.splitlines():
        event = json.loads(line)
        if event["ev"] == "probe":
            args = {k: v for k, v in event.get("args", {}).items() if k != "dataCrc32"}
            calls.append((event["fn"], args, event.get("ret")))
    return calls


@pytest.mark.parametrize("program", PROGRAMS)
def test_torch_atb_program_makes_the_recorded_calls(
    program: str, native_environment: Callable[[int], dict[str, str]], tmp_path: Path
) -> None:
    trace = PROGRAMS[program]
    answers = {name: int(v) if isinstance(v, bool) else v for name, v in ANSWERS[trace].items()}
    done = subprocess.run(
        [sys.executable, HERE / "torch_atb_programs.py", program],
        env={
            **native_environment(1),
            "RECORDING_PROBE_FILE": str(tmp_path / trace),
            "RECORDING_PROBE_ANSWERS": ";".join(f"{k}={v}" for k, v in answers.items()),
            "HOSTATB_SAT_MODE": "infnan",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / trace).read_text()
    actual = probe_calls(re.sub(r'(?<=")0_\d+/', "0_${PID}/", text))
    expected = probe_calls(gzip.decompress((TRACES / f"{trace}.gz").read_bytes()).decode())
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=False)):
        assert mine == theirs, f"call {number}"
    assert len(actual) == len(expected)
