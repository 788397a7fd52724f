"""The runtime makes exactly the calls of the real library, with the same arguments."""

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
TRACES = HERE.parents[1] / "data" / "atb-trace"
INDEX = json.loads((TRACES / "index.json").read_text())
API_PROGRAMS = (
    "single",
    "graph3",
    "noname",
    "nested1",
    "nested3",
    "twosame",
    "model",
    "multikernel",
)
API_INDEX = [
    entry
    for entry in INDEX
    if entry["program"] in API_PROGRAMS and not entry["stubSettings"].get("deviceSatMode")
]

pytestmark = pytest.mark.native

Event = tuple[Any, ...]


def _trace(entry: dict[str, Any]) -> str:
    with gzip.open(TRACES / f"{entry['file']}.gz", "rt") as file:
        return file.read()


def _answers(entry: dict[str, Any]) -> dict[str, str]:
    """What the probe answered: one value per function, or the recorded ones in turn."""
    constant = entry["probeReturns"]
    if isinstance(constant, dict):
        return {name: str(int(v)) if isinstance(v, bool) else v for name, v in constant.items()}
    sequences: dict[str, str] = {}
    for line in _trace(entry).splitlines():
        event = json.loads(line)
        if "ret" in event:
            sequences[event["fn"]] = sequences.get(event["fn"], "seq:") + str(int(event["ret"]))
    return sequences


def _job(entry: dict[str, Any], directory: Path) -> dict[str, Any]:
    settings = entry["stubSettings"]
    answers = _answers(entry)
    environment = {
        "RECORDING_PROBE_FILE": str(directory / entry["file"]),
        "RECORDING_PROBE_ANSWERS": ";".join(f"{k}={v}" for k, v in answers.items()),
        "HOSTATB_SAT_MODE": "saturation" if settings.get("deviceSatMode") == "0" else "infnan",
    }
    if entry["program"] == "threads":
        # In the recording both threads looked for cached tilings before either stored its own.
        environment["RECORDING_PROBE_WAIT"] = "IsExecuteCountInRange:UpdateConfig:2"
    program = entry["program"]
    if settings.get("executeExpectedToFail") == "1":
        program += "_stopped"
    return {
        "name": entry["file"],
        "program": program,
        "device": settings,
        "environment": environment,
    }


def _record(
    script: str, entries: list[dict[str, Any]], environment: dict[str, str], directory: Path
) -> Path:
    """Run the entries' programs; each leaves a file of its trace's name in the directory."""
    jobs = directory / "jobs.json"
    jobs.write_text(json.dumps([_job(entry, directory) for entry in entries]))
    done = subprocess.run(
        [sys.executable, HERE / script, jobs],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="module", params=[0, 1], ids=["abi0", "abi1"])
def recorded(
    request: pytest.FixtureRequest,
    native_environment: Callable[[int], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Directory with what every program recorded on the runtime."""
    directory = tmp_path_factory.mktemp("recorded")
    return _record("programs.py", INDEX, native_environment(request.param), directory)


@pytest.fixture(scope="module")
def recorded_by_api(
    native_environment: Callable[[int], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same of the programs that the public interface can express."""
    directory = tmp_path_factory.mktemp("api")
    return _record("api_programs.py", API_INDEX, native_environment(1), directory)


def _events(text: str) -> dict[str, list[Event]]:
    """Probe calls and kernel launches per thread; threads named by their first Probe call."""
    threads: dict[str, list[Event]] = {}
    for line in text.splitlines():
        event = json.loads(line)
        if event["ev"] == "probe":
            calls = threads.setdefault(event["tid"], [])
            calls.append((event["fn"], event.get("args", {}), event.get("ret")))
        elif event["ev"] == "kernel_launch":
            threads.setdefault(event["tid"], []).append(("launch", event["kernel"]))
    return {f"T{index}": calls for index, calls in enumerate(threads.values())}


def _without_launches(threads: dict[str, list[Event]]) -> dict[str, list[Event]]:
    return {t: [call for call in calls if call[0] != "launch"] for t, calls in threads.items()}


def _assert_same_calls(entry: dict[str, Any], directory: Path) -> None:
    expected = _events(_trace(entry))
    text = (directory / entry["file"]).read_text()
    actual = _events(re.sub(r'(?<=")0_\d+/', "0_${PID}/", text))
    if entry["program"] == "graphmode":  # launches are not where they were recorded: see the docs
        actual, expected = _without_launches(actual), _without_launches(expected)
    assert actual.keys() == expected.keys()
    for thread, calls in expected.items():
        for number, (mine, theirs) in enumerate(zip(actual[thread], calls, strict=False)):
            assert mine == theirs, f"call {number} of {thread}"
        assert len(actual[thread]) == len(calls)


def _name(entry: dict[str, Any]) -> str:
    name: str = entry["file"]
    return name.removesuffix(".jsonl")


@pytest.mark.parametrize("entry", INDEX, ids=_name)
def test_program_makes_the_recorded_calls(entry: dict[str, Any], recorded: Path) -> None:
    _assert_same_calls(entry, recorded)


@pytest.mark.parametrize("entry", API_INDEX, ids=_name)
def test_torch_atb_program_makes_the_recorded_calls(
    entry: dict[str, Any], recorded_by_api: Path
) -> None:
    _assert_same_calls(entry, recorded_by_api)
