"""``ait llm dump``: every option of the manual in both spellings, and what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ait_llm.cli import dump as command
from ait_llm.cli.main import ait
from ait_llm.core import OpId, StepRange
from ait_llm.dump.atb import AtbDumpPlan
from ait_llm.dump.summary import DumpSummary, ProcessSummary
from ait_llm.probe import HostLibrary, ProbeConfig, ProbeLibrary, SaveTime, TensorPart


class Recorder:
    """Stands in for the capture; keeps what the command asked for."""

    def __init__(self) -> None:
        self.words: Sequence[str] = ()
        self.config: ProbeConfig
        self.probe: Path | None = None
        self.summary = summary()

    def plan(
        self,
        words: Sequence[str],
        config: ProbeConfig,
        _environ: Mapping[str, str],
        probe: Path | None = None,
    ) -> AtbDumpPlan:
        self.words, self.config, self.probe = words, config, probe
        host = HostLibrary(Path("/atb/lib/libatb.so"), 1, "from its symbols", embedded=False)
        return AtbDumpPlan(tuple(words), config, host, ProbeLibrary(Path("/p.so"), 1, True), 2**30)

    def run(self, _plan: AtbDumpPlan, _environ: Mapping[str, str]) -> DumpSummary:
        return self.summary


def summary(**changes: Any) -> DumpSummary:
    process = ProcessSummary(
        devices=("0",), pid=4242, sealed=True, end="exit", running=False, steps=(0, 1),
        operations=4, kernels=2, tensors=12, files=16, bytes=96,
        failed=0, dropped=0, lost_tensors=0,
        last_operation="0_4242/1/0_DecoderLayer",
    )  # fmt: skip
    return DumpSummary(
        **{"exit_code": 0, "dump_dir": Path("/o/ait_dump"), "processes": (process,), **changes}
    )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(command, "plan_atb_dump", made.plan)
    monkeypatch.setattr(command, "run_atb_dump", made.run)
    return made


def invoke(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "dump", "--exec", "python x.py", *words])


def settings(config: ProbeConfig) -> dict[str, Any]:
    """What differs from the defaults."""
    plain = ProbeConfig(output=config.output, start_time=config.start_time)
    names = ProbeConfig.__dataclass_fields__
    return {n: getattr(config, n) for n in names if getattr(config, n) != getattr(plain, n)}


def test_defaults_are_those_of_the_manual(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke().exit_code == 0
    assert settings(recorder.config) == {}
    assert recorder.config.output == tmp_path
    assert recorder.words == ["python", "x.py"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--type layer tensor", {"types": ("layer", "tensor")}),
        ("--type model onnx -sd", {"types": ("model", "onnx"), "description_only": True}),
        ("--type op --type kernel", {"types": ("op", "kernel")}),
        ("--type tensor tensor", {}),
        ("--type stats", {"types": ("stats",)}),
        ("-sd", {"description_only": True}),
        ("--only-save-desc", {"description_only": True}),
        ("-ids 2, 3_1", {"operation_ids": (OpId((2,)), OpId((3, 1)))}),
        ("-ids 2,3_1", {"operation_ids": (OpId((2,)), OpId((3, 1)))}),
        ("-ids 2,", {"operation_ids": (OpId((2,)),)}),
        ("--save-operation-ids 0", {"operation_ids": (OpId((0,)),)}),
        ("-er 1,3", {"steps": StepRange(((1, 3),))}),
        ("-er 3,5, 7,7", {"steps": StepRange(((3, 5), (7, 7)))}),
        ("--execute-range all", {"steps": StepRange(((0, 2**64 - 1),))}),
        ("-child False", {"with_children": False}),
        ("-child n", {"with_children": False}),
        ("--save-operation-child True", {}),
        ("-time 0", {"save_time": SaveTime.BEFORE}),
        ("--save-time 2", {"save_time": SaveTime.BOTH}),
        ("-opname Self", {"operation_names": ("self",)}),
        ("--operation-name self, linear", {"operation_names": ("self", "linear")}),
        ("-tiling", {"tiling": True}),
        ("--save-tiling", {"tiling": True}),
        ("-stp 1", {"tensor_part": TensorPart.OUTPUTS}),
        ("--save-tensor-part 0", {"tensor_part": TensorPart.INPUTS}),
        ("-device 1", {"device": 1}),
        ("--device-id 12", {"device": 12}),
        ("-l debug", {"log_level": "debug"}),
        ("--log-level warn", {"log_level": "warning"}),
        ("--queue-size 1M", {"queue_bytes": 2**20}),
        ("--min-free 2G", {"min_free_bytes": 2**31}),
        ("--dedupe", {"dedupe": True}),
    ],
)
def test_every_option_reaches_the_configuration(
    recorder: Recorder, words: str, expected: dict[str, Any]
) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 0, result.output
    assert settings(recorder.config) == expected


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_the_output_is_made_absolute(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke(option, "aasx/sss")
    assert recorder.config.output == tmp_path / "aasx" / "sss"


def test_a_probe_of_the_users_own_is_passed_on(recorder: Recorder) -> None:
    invoke("--probe-lib", "/cann/libatb_probe_abi1.so")
    assert recorder.probe == Path("/cann/libatb_probe_abi1.so")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--type layers", "'layers' is not one of"),
        ("--type onnx tensor", "add 'model' or 'layer'"),
        ("-ids 2;3", "is not numbers joined by '_'"),
        ("-ids ,", "names no operation"),
        ("-er 5", "has 1 numbers; give pairs"),
        ("-er 1,2,3", "has 3 numbers; give pairs"),
        ("-er 5,3", "ends before it starts"),
        ("-er a,b", "is not whole numbers"),
        ("-er -1,0", "is not whole numbers"),
        ("-child maybe", "'maybe' is not a valid boolean"),
        ("-time 3", "3 is not in the range"),
        ("-stp 3", "3 is not in the range"),
        ("-device -1", "-1 is not in the range"),
        ("-l loud", "'loud' is not one of"),
        ("--queue-size lots", "is not a size"),
        ("-opname ,", "names no operation"),
        ("surplus", "unexpected extra argument"),
    ],
)
def test_a_wrong_value_is_one_clear_sentence_and_2(
    recorder: Recorder, words: str, message: str
) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert not recorder.words


def test_exec_is_required() -> None:
    result = CliRunner().invoke(ait, ["llm", "dump"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the option --exec is missing" in result.stderr


def test_a_redirection_is_refused_with_the_advice(recorder: Recorder) -> None:
    result = CliRunner().invoke(ait, ["llm", "dump", "--exec", "bash run.sh > log"])
    assert result.exit_code == 2
    assert "put the command into a script" in result.stderr
    assert not recorder.words


@pytest.mark.parametrize(
    ("changes", "words", "code"),
    [
        ({}, [], 0),
        ({"problems": ("something is missing",)}, [], 3),
        ({"problems": ("something is missing",)}, ["--allow-skip"], 0),
        ({"exit_code": 7}, [], 7),
        ({"exit_code": 137, "problems": ("lost",)}, ["--allow-skip"], 137),
    ],
)
def test_the_exit_code_is_the_programs_or_3(
    recorder: Recorder, changes: dict[str, Any], words: list[str], code: int
) -> None:
    recorder.summary = summary(**changes)
    assert invoke(*words).exit_code == code


def test_it_says_before_and_after_what_it_does_on_stderr_only(recorder: Recorder) -> None:
    result = invoke("-o", "/o", "-ids", "3_1", "-er", "0,0,2,4", "-device", "1")
    text = " ".join(result.stderr.split())
    assert result.stdout == ""
    for part in (
        "run python x.py",
        "write tensors of inputs and outputs after execution",
        "operations with ids 3_1 and below; step 0, steps 2 to 4; device 1",
        "into /o/ait_dump (1.0 GiB free, 256.0 MiB of it are left alone)",
        "/atb/lib/libatb.so (C++ ABI 1, from its symbols)",
        "process 4242 on device 0: tokens 0-1, 4 operations, 2 kernels, 12 tensors, 96 B; "
        "sealed at exit",
        "lost nothing; every process sealed its ledger",
        "next ait llm show /o/ait_dump",
    ):
        assert part in text


def test_what_is_missing_is_listed(recorder: Recorder) -> None:
    recorder.summary = summary(problems=("first thing", "second thing"), exit_code=139)
    text = " ".join(invoke().stderr.split())
    assert "INCOMPLETE program ended by signal 11 (exit code 139)" in text
    assert "missing first thing missing second thing" in text


def test_filters_without_effect_are_said(recorder: Recorder) -> None:
    text = invoke("--type", "layer", "-ids", "1", "-tiling").stderr
    assert "-ids has no effect" in text
    assert "-tiling has no effect" in text
    assert recorder.config.types == ("layer",)


def test_json_is_the_last_line_of_stdout(recorder: Recorder) -> None:
    recorder.summary = summary(problems=("gone",), tables=(Path("/o/t.csv"),))
    result = invoke("--json")
    value = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 3
    assert result.stdout.startswith("\n")  # the program may have left its last line open
    assert value["complete"] is False
    assert value["problems"] == ["gone"]
    assert value["tables"] == ["/o/t.csv"]
    assert value["steps"] == [0, 1]
    assert value["devices"] == ["0"]
    assert value["processes"][0]["pid"] == 4242
    assert value["next"] == "ait llm show /o/ait_dump"


def test_the_options_are_a_promise() -> None:
    options = {
        tuple(param.opts) for param in command.dump.params if isinstance(param, click.Option)
    }
    assert options == {
        ("--exec",),
        ("--model",),
        ("--inputs",),
        ("--msprobe-config",),
        ("--type",),
        ("-sd", "--only-save-desc"),
        ("-ids", "--save-operation-ids"),
        ("-er", "--execute-range"),
        ("-child", "--save-operation-child"),
        ("-time", "--save-time"),
        ("-opname", "--operation-name"),
        ("-tiling", "--save-tiling"),
        ("-stp", "--save-tensor-part"),
        ("-o", "--output"),
        ("-device", "--device-id"),
        ("-l", "--log-level"),
        ("-q", "--quiet"),
        ("--probe-lib",),
        ("--dedupe",),
        ("--queue-size",),
        ("--request",),
        ("--step",),
        ("--start",),
        ("--control",),
        ("--budget",),
        ("--record-arguments",),
        ("--min-free",),
        ("--module-name",),
        ("--layers",),
        ("--weights",),
        ("--own-code",),
        ("--warmup",),
        ("--follow",),
        ("--verify-observer",),
        ("--allow-skip",),
        ("--json",),
    }
