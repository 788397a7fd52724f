"""Worker processes of our own, and Ctrl-C while they work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray")

from compare_dumps import AtbPair
from ray_cluster import wait_until

# Blocks at the pairs of a later unit of work; the first one is finished by then.
_METRIC = """
import pathlib, time

def block(golden: "np.ndarray", mine: "np.ndarray"):
    if golden.size > 1 and golden[0] == 2:
        pathlib.Path({marker!r}).touch()
        time.sleep(600)
    return 1.0, ""
"""
_FIRST_UNIT = 128  # pairs


def descendants(mark: str) -> list[int]:
    """Processes that were started with that in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def folders_of(mark: str) -> set[Path]:
    """Folders of Ray that those processes were given."""
    texts = [Path(f"/proc/{pid}/cmdline").read_text() for pid in descendants(mark)]
    return {Path(found) for text in texts for found in re.findall(r"/tmp/ait-ray-[\w-]+", text)}


def written(folder: Path) -> int:
    """Lines of the journal in a folder."""
    return sum(path.read_text().count("\n") for path in folder.glob("*.jsonl"))


def test_ctrl_c_leaves_a_partial_report_and_no_process(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    for number in range(_FIRST_UNIT + 40):
        array = np.full(8, 1 + number // _FIRST_UNIT, np.float16)
        pair.add(f"{number}_LinearOperation", array, array)
    with subprocess.Popen(["true"]) as ended:
        pass
    abandoned = Path(f"/tmp/ait-ray-{ended.pid}-killed")  # of a command that was killed
    abandoned.mkdir()
    marker, mark = tmp_path / "blocked", f"AIT_TEST_{uuid.uuid4().hex}"
    metric = tmp_path / "metric.py"
    metric.write_text(_METRIC.format(marker=str(marker)))
    words = ["-gp", pair.golden, "-mp", pair.mine, "-o", tmp_path / "out", "--json"]
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "ait_llm", "llm", "compare", *map(str, words)),
            *("--engine", "ray", "-j", "1", "-alg", f"{metric}:block"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, mark: "1"},
        start_new_session=True,
    )
    try:
        wait_until(lambda: marker.exists() or running.poll() is not None)
        assert running.poll() is None, running.communicate()
        folders = folders_of(mark)
        wait_until(lambda: written(tmp_path / "out") > _FIRST_UNIT // 2)  # it has come home
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does it
        output, errors = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert running.returncode == 3
    report = json.loads(output)
    assert report["partial"] is True
    assert "Traceback" not in errors
    assert "raylet" not in errors
    [journal] = (tmp_path / "out").glob("*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    pairs = [line for line in lines if line["type"] == "comparison"]
    assert len(pairs) == _FIRST_UNIT
    wait_until(lambda: not descendants(mark))
    assert len(folders) == 1
    assert not abandoned.exists()
    assert not any(folder.exists() for folder in folders)
