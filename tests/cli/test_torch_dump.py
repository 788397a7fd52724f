"""``ait llm dump`` with torch types: its options, and what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ait_llm.cli import torch_dump
from ait_llm.cli.main import ait
from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_ledger import TorchProcess
from ait_llm.dump.torch_run import TorchDumpPlan
from ait_llm.dump.torch_summary import Observation, TorchSummary


class Recorder:
    """Stands in for the capture; keeps what the command asked for."""

    def __init__(self) -> None:
        self.settings: TorchSettings | None = None
        self.summary = summary()

    def plan(
        self, words: Sequence[str], settings: TorchSettings, _environ: Mapping[str, str]
    ) -> TorchDumpPlan:
        self.settings = settings
        return TorchDumpPlan(tuple(words), settings, 2**30)

    def run(self, _plan: TorchDumpPlan, _environ: Mapping[str, str]) -> TorchSummary:
        return self.summary


def summary(**changes: Any) -> TorchSummary:
    process = TorchProcess(
        Path("/o/ait_dump/ledger/cpu_7.jsonl"), "cpu", 7, "here", {0, 1}, modules=4, operators=9,
        tensors=12, bytes=96, weights=3, end="exit",
    )  # fmt: skip
    return TorchSummary(
        **{"exit_code": 0, "dump_dir": Path("/o/ait_dump"), "processes": (process,), **changes}
    )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(torch_dump, "plan_torch_dump", made.plan)
    monkeypatch.setattr(torch_dump, "run_torch_dump", made.run)
    return made


def invoke(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "dump", "--exec", "python x.py", *words])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {}),
        ("torch-stats", {"types": ("torch", "torch-stats")}),
        ("torch-op --weights", {"types": ("torch", "torch-op"), "weights": True}),
        ("-er 1,3", {"steps": StepRange(((1, 3),))}),
        ("-er all", {"steps": StepRange(((0, 2**64 - 1),))}),
        ("-opname Llama, mlp", {"type_prefixes": ("llama", "mlp")}),
        ("-stp 0", {"outputs": False}),
        ("-stp 1", {"inputs": False}),
        ("-device 2", {"device_id": 2}),
        ("-sd", {"description_only": True}),
        ("--module-name *.mlp", {"module_names": ("*.mlp",)}),
        ("--module-name *.mlp,*.attn", {"module_names": ("*.mlp", "*.attn")}),
        (
            "--module-name re:a{1,2} --module-name b",
            {"module_names": ("re:a{1,2}", "b")},
        ),
        ("--layers 0,3, 31,31", {"layers": ((0, 3), (31, 31))}),
        ("--warmup 2", {"warmup": 2}),
        ("--follow /golden", {"follow": Path("/golden")}),
        ("--start off --control /switch", {"start": False, "control": Path("/switch")}),
        ("--queue-size 1M", {"queue_bytes": 2**20}),
        ("--verify-observer", {"observe": True}),
    ],
)
def test_every_option_reaches_the_settings(
    recorder: Recorder, words: str, expected: dict[str, Any]
) -> None:
    result = invoke("--type", "torch", *words.split())
    assert result.exit_code == 0, result.output
    settings = recorder.settings
    assert settings is not None
    plain = TorchSettings(output=settings.output)
    names = TorchSettings.__dataclass_fields__
    changed = {n: getattr(settings, n) for n in names if getattr(settings, n) != getattr(plain, n)}
    assert changed == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--type torch tensor", "run once for each kind"),
        ("--type torch -ids 2", "--save-operation-ids is for ATB types, not for --type torch; "
         "select modules with --module-name or --layers"),
        ("--type torch-op -time 2", "--save-time is for ATB types, not for --type torch-op"),
        ("--type torch -child False", "is for ATB types"),
        ("--type torch --dedupe", "is for ATB types"),
        ("--type tensor --weights", "--weights is for torch types, not for --type tensor"),
        ("--verify-observer", "--verify-observer is for torch types"),
        ("--type tensor --follow golden", "--follow is for torch types"),
        ("--type tensor --control file", "--control is for torch types"),
        ("--type fx --control file", "--control is not for --type fx"),
        ("--type torch --module-name re:(", "module pattern"),
        ("--type torch --module-name ,", "names no module"),
        ("--type torch --layers 3", "has 1 numbers"),
        ("--type torch --warmup -1", "-1 is not in the range"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_clear_sentence_and_2(
    recorder: Recorder, words: str, message: str
) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert recorder.settings is None


@pytest.mark.parametrize(
    ("changes", "words", "code"),
    [
        ({}, [], 0),
        ({"problems": ("lost",)}, [], 3),
        ({"problems": ("lost",)}, ["--allow-skip"], 0),
        ({"exit_code": 7, "problems": ("lost",)}, [], 7),
        ({"observation": Observation("same", 2, "equal")}, [], 0),
        ({"observation": Observation("changed", 2, "why"), "problems": ("lost",)}, [], 1),
        ({"observation": Observation("changed", 2, "why")}, ["--allow-skip"], 1),
        ({"observation": Observation("undecided", 2, "why")}, [], 3),
    ],
)
def test_the_exit_code_is_the_programs_the_observers_or_3(
    recorder: Recorder, changes: dict[str, Any], words: list[str], code: int
) -> None:
    recorder.summary = summary(**changes)
    assert invoke("--type", "torch", *words).exit_code == code


def test_it_says_before_and_after_what_it_does_on_stderr_only(recorder: Recorder) -> None:
    recorder.summary = summary(observation=Observation("same", 2, "2 outputs are equal"))
    words = "--type torch-op torch-stats -opname rms --layers 0,1 --module-name *.mlp --weights"
    result = invoke(*words.split(), "-o", "/o", "--verify-observer")
    text = " ".join(result.stderr.split())
    assert result.stdout == ""
    for part in (
        "run python x.py",
        "write statistics of inputs and outputs of operators, weights",
        "of modules of classes starting with rms and named *.mlp and in layers 0,1; step 0; "
        "all devices",
        "into /o/ait_dump (1.0 GiB free)",
        "then run it again without the capture",
        "process 7 on cpu: tokens 0-1, 4 module calls, 9 operator calls, 12 tensors (3 of them "
        "weights), 96 B; sealed at exit",
        "lost nothing; every process sealed its ledger",
        "observer same: 2 outputs are equal",
        "next ait llm show /o/ait_dump",
    ):
        assert part in text


def test_a_capture_without_data_says_where_its_rows_are(recorder: Recorder) -> None:
    (process,) = recorder.summary.processes
    process.tensors = process.bytes = process.weights = 0
    process.states["described"] = 13
    text = " ".join(invoke("--type", "torch-stats").stderr.split())
    assert "9 operator calls, described in statistics.csv; sealed at exit" in text


def test_what_is_missing_is_listed(recorder: Recorder) -> None:
    recorder.summary = summary(
        problems=("first thing",), notes=("second thing",), processes=(), exit_code=139
    )
    text = " ".join(invoke("--type", "torch").stderr.split())
    assert "INCOMPLETE program ended by signal 11 (exit code 139)" in text
    assert "missing first thing note second thing" in text
    assert "next" not in text


def test_json_is_the_last_line_of_stdout(recorder: Recorder) -> None:
    recorder.summary = summary(observation=Observation("same", 2, "equal"))
    value = json.loads(invoke("--type", "torch", "--json").stdout.splitlines()[-1])
    assert value["observer"] == {"verdict": "same", "outputs": 2, "detail": "equal"}
    assert value["processes"][0]["pid"] == 7
    assert value["next"] == "ait llm show /o/ait_dump"
