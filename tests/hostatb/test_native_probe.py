"""Towards the probe: failures, releases of ATB, overflow, odd tensors and threads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ait_llm.hostatb.native import Status

pytestmark = pytest.mark.native

GATES = (
    "IsTensorNeedSave",
    "IsSaveTensorDesc",
    "IsExecuteCountInRange",
    "IsSaveTensorBefore",
    "IsSaveTensorAfter",
    "IsSaveTensorInSpecificDir",
    "IsSaveTiling",
    "IsSaveParam",
    "ReportOperationStatisticEnable",
)
ALL = dict.fromkeys(GATES, "1")
OVERFLOW = {"IsOverflowCheck": "1"}
INF = float("inf")
NAN = float("nan")


def _job(program: str, answers: dict[str, str], release: str = "9.1", **extra: Any) -> Any:
    environment = {
        "RECORDING_PROBE_ANSWERS": ";".join(f"{k}={v}" for k, v in answers.items()),
        "HOSTATB_ATB_VERSION": release,
        "HOSTATB_SAT_MODE": extra.pop("mode", "infnan"),
    }
    return {"program": program, "environment": environment, **extra}


JOBS = {
    "throw_setup": _job("one_add", {"IsTensorNeedSave": "throw"}),
    "throw_setup_8.0": _job("one_add", {"IsTensorNeedSave": "throw"}, "8.0"),
    "throw_execute": _job("one_add", {"IsExecuteCountInRange": "throw"}),
    "throw_execute_8.0": _job("one_add", {"IsExecuteCountInRange": "throw"}, "8.0"),
    "throw_save": _job("one_add", {**ALL, "SaveTensor": "throw"}),
    "throw_statistic": _job("one_add", {**ALL, "ReportOperationSetupStatistic": "throw"}),
    "throw_context": _job("new_context", {"IsOverflowCheck": "throw"}),
    "throw_model": _job("offer_model", {"IsReportModelTopoInfo": "throw"}),
    "model": _job("offer_model", {"IsReportModelTopoInfo": "1"}),
    "model_unwanted": _job("offer_model", {}),
    **{release: _job("one_add", ALL, release) for release in ("8.0", "8.1", "8.2", "8.3", "9.1")},
    "bad_release": _job("new_context", {}, "7.9"),
    "bad_mode": _job("new_context", {}, mode="clamp"),
    "device": _job("one_add", ALL, device=3),
    "empty": _job("empty_tensor", ALL),
    "broken": _job("broken_node", ALL),
    "bf16_inf": _job("fill", OVERFLOW, dtype="bf16", values=[[1, -INF]]),
    "float_inf": _job("fill", OVERFLOW, dtype="float", values=[[1, INF]]),
    "nan": _job("fill", OVERFLOW, dtype="float16", values=[[1, NAN]]),
    "int": _job("fill", OVERFLOW, dtype="int32", values=[[0x7C00, 0x7F80]]),
    "stop": _job("fill", {**OVERFLOW, "IsOverflowStop": "1"}, dtype="float16", values=[[INF]]),
    "stop_8.0": _job(
        "fill", {**OVERFLOW, "IsOverflowStop": "1"}, "8.0", dtype="float16", values=[[INF]]
    ),
    "saturated": _job(
        "fill", OVERFLOW, dtype="float16", mode="saturation", values=[[1, -INF], [1, 2]]
    ),
    "threads": _job("many_threads", ALL),
    "shapes": _job("other_shapes", ALL),
}


@dataclass(frozen=True)
class Outcome:
    """What a job returned and what the probe saw."""

    result: Any
    calls: list[tuple[str, dict[str, Any]]]

    def of(self, function: str) -> list[dict[str, Any]]:
        return [args for name, args in self.calls if name == function]


@pytest.fixture(scope="module", params=[0, 1], ids=["abi0", "abi1"])
def outcomes(
    request: pytest.FixtureRequest,
    native_environment: Callable[[int], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Outcome]:
    directory: Path = tmp_path_factory.mktemp("behaviours")
    for name, job in JOBS.items():
        job["name"] = name
        job["result"] = str(directory / f"{name}.json")
        job["environment"]["RECORDING_PROBE_FILE"] = str(directory / f"{name}.jsonl")
    jobs = directory / "jobs.json"
    jobs.write_text(json.dumps(list(JOBS.values())))
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "conformance" / "behaviours.py", jobs],
        env=native_environment(request.param),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for name in JOBS:
        recorded = directory / f"{name}.jsonl"
        lines = recorded.read_text().splitlines() if recorded.exists() else []
        events = [json.loads(line) for line in lines]
        calls = [(e["fn"], e.get("args", {})) for e in events if e["ev"] == "probe"]
        found[name] = Outcome(json.loads((directory / f"{name}.json").read_text()), calls)
    return found


@pytest.mark.parametrize(
    ("job", "setup", "execute"),
    [
        ("throw_setup", Status.OUT_OF_HOST_MEMORY, Status.INVALID_PARAM),
        ("throw_setup_8.0", Status.INTERNAL_ERROR, Status.INVALID_PARAM),
        ("throw_execute", Status.NO_ERROR, Status.RT_FAIL),
        ("throw_execute_8.0", Status.NO_ERROR, Status.INTERNAL_ERROR),
        ("throw_save", Status.NO_ERROR, Status.NO_ERROR),
        ("throw_statistic", Status.OUT_OF_HOST_MEMORY, Status.NO_ERROR),
    ],
)
def test_exception_of_the_probe_becomes_a_status(
    outcomes: dict[str, Outcome], job: str, setup: Status, execute: Status
) -> None:
    assert outcomes[job].result == {"setup": [setup] * 2, "execute": [execute] * 2}


def test_exception_of_save_tensor_does_not_stop_later_tensors(
    outcomes: dict[str, Outcome],
) -> None:
    assert len(outcomes["throw_save"].of("SaveTensor")) == 2 * 4 * 3


def test_exceptions_outside_of_operations_become_statuses(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["throw_context"].result != Status.NO_ERROR
    assert outcomes["throw_model"].result != Status.NO_ERROR


def test_model_topology_goes_to_a_probe_that_wants_it(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["model"].calls == [
        ("IsReportModelTopoInfo", {"modelName": "DemoModel"}),
        (
            "ReportModelTopoInfo",
            {"modelName": "DemoModel", "graph": '{"modelName":"DemoModel"}'},
        ),
    ]
    assert [name for name, _ in outcomes["model_unwanted"].calls] == ["IsReportModelTopoInfo"]


@pytest.mark.parametrize(
    ("release", "directories", "suffix"),
    [
        ("8.0", False, ""),
        ("8.1", False, ""),
        ("8.2", False, ""),
        ("8.3", True, ""),
        ("9.1", True, "_x"),
    ],
)
def test_release_decides_about_new_questions_and_file_names(
    outcomes: dict[str, Outcome], release: str, directories: bool, suffix: str
) -> None:
    outcome = outcomes[release]
    assert bool(outcome.of("UpdateConfig")) == directories
    assert bool(outcome.of("IsSaveTensorInSpecificDir")) == directories
    first = outcome.of("SaveTensor")[0]["filePath"]
    assert first.endswith(f"/before/intensor0{suffix}.bin")


@pytest.mark.parametrize(
    ("release", "asked"), [("8.0", 2), ("8.1", 3), ("8.2", 3), ("8.3", 3), ("9.1", 3)]
)
def test_cached_tiling_is_asked_for_from_8_1_on(
    outcomes: dict[str, Outcome], release: str, asked: int
) -> None:
    assert len(outcomes[release].of("IsSaveTiling")) == asked


def _numbers(statistic: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+):(\d+)", statistic)}


@pytest.mark.parametrize("release", ["8.0", "8.1"])
def test_setup_statistic_is_measured_up_to_8_1(outcomes: dict[str, Outcome], release: str) -> None:
    reports = outcomes[release].of("ReportOperationSetupStatistic")
    assert [report["executeCount"] for report in reports] == [1, 2]
    first, second = (_numbers(report["st"]) for report in reports)
    assert (first["setupTotalCount"], first["setupCacheMissCount"]) == (1, 1)
    assert (second["setupCacheHitCount"], second["tilingLocalCacheHitCount"]) == (1, 1)
    assert first["totalTime"] >= first["runnerSetupTime"]


@pytest.mark.parametrize("release", ["8.2", "8.3", "9.1"])
def test_setup_statistic_is_all_zero_from_8_2_on(
    outcomes: dict[str, Outcome], release: str
) -> None:
    for report in outcomes[release].of("ReportOperationSetupStatistic"):
        assert set(_numbers(report["st"]).values()) == {0}


def test_execute_statistic_is_reported_by_8_0_only(outcomes: dict[str, Outcome]) -> None:
    reports = outcomes["8.0"].of("ReportOperationExecuteStatistic")
    assert [(r["executeCount"], r["opName"]) for r in reports] == [
        (1, "ElewiseOperation_0"),
        (2, "ElewiseOperation_0"),
    ]
    for report in reports:
        values = _numbers(report["st"])
        assert list(values) == [
            "totalTime",
            "streamSyncTime",
            "tillingCopyTime",
            "kernelExecuteTime",
        ]
        assert values["totalTime"] >= values["kernelExecuteTime"]
    assert not outcomes["8.1"].of("ReportOperationExecuteStatistic")


def test_unknown_setting_is_refused(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["bad_release"].result != Status.NO_ERROR
    assert outcomes["bad_mode"].result != Status.NO_ERROR


def test_directory_names_the_device_of_the_context(outcomes: dict[str, Outcome]) -> None:
    paths = [call["filePath"] for call in outcomes["device"].of("SaveTensor")]
    assert all(re.match(r"3_\d+/[01]/0_ElewiseOperation/", path) for path in paths)


def test_absent_tensor_is_saved_as_nothing_and_lost_memory_not_at_all(
    outcomes: dict[str, Outcome],
) -> None:
    saved = outcomes["empty"].of("SaveTensor")
    operation = [s for s in saved if re.search(r"0_FillOperation/before/", s["filePath"])]
    assert [s["filePath"].rsplit("/", 1)[1] for s in operation] == [
        "intensor0.bin",
        "intensor1.bin",
        "outtensor0.bin",
    ]
    del operation[1]["filePath"]
    assert operation[1] == {
        "format": "-1",
        "dtype": "-1",
        "dims": "",
        "hostDataNull": True,
        "dataSize": 0,
        "dataCrc32": "00000000",
    }


def test_failed_node_ends_the_graph_but_not_its_dumps(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["broken"]
    assert outcome.result["status"] == Status.RT_FAIL
    assert outcome.result["cause"] == "ValueError('the weights are gone')"
    assert "kernel FillKernel of BrokenOperation_0_0 failed" in outcome.result["text"]
    asked = [call["tensorDir"] for call in outcome.of("IsSaveTensorInSpecificDir")]
    assert not any("1_ActivationOperation" in path and "Kernel" not in path for path in asked)
    paths = [call["filePath"] for call in outcome.of("SaveTensor")]
    assert any(path.endswith("/0_BrokenOperation/after/outtensor0.bin") for path in paths)
    assert any(path.endswith("/0_Layer/after/outtensor0.bin") for path in paths)


@pytest.mark.parametrize(
    ("job", "reports"), [("bf16_inf", 1), ("float_inf", 1), ("nan", 0), ("int", 0)]
)
def test_only_infinities_of_float_outputs_are_overflows(
    outcomes: dict[str, Outcome], job: str, reports: int
) -> None:
    assert len(outcomes[job].of("ReportOverflowKernel")) == reports
    assert outcomes[job].result["execute"] == [Status.NO_ERROR]


@pytest.mark.parametrize(
    ("job", "status"), [("stop", Status.RT_FAIL), ("stop_8.0", Status.INTERNAL_ERROR)]
)
def test_overflow_stops_the_operation_when_the_probe_says_so(
    outcomes: dict[str, Outcome], job: str, status: Status
) -> None:
    assert outcomes[job].result["execute"] == [status]


def test_saturated_device_clamps_and_never_forgets(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["saturated"]
    assert outcome.result["stored"] == [[1.0, -65504.0], [1.0, 2.0]]
    assert [call["kernelPath"] for call in outcome.of("ReportOverflowKernel")] == [
        "FillOperation_0:FillKernel",
        "FillOperation_1:FillKernel",
    ]


def test_threads_get_distinct_ids_and_complete_dumps(outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes["threads"]
    assert outcome.result == 0
    paths = [call["filePath"].split("/") for call in outcome.of("SaveTensor")]
    layers = [(path[1], path[2]) for path in paths if path[3] == "after"]
    expected = {(str(step), f"{n}_Decoder_layer") for step in range(3) for n in range(8)}
    assert set(layers) == expected
    assert len(layers) == len(expected) * 5


def test_new_shapes_are_planned_again_and_kernels_asked_for_once(
    outcomes: dict[str, Outcome],
) -> None:
    outcome = outcomes["shapes"]
    asked = [call["ids"] for call in outcome.of("IsTensorNeedSave")]
    assert [len(ids) for ids in asked].count(3) == 3
    saved = outcome.of("SaveTensor")
    shapes = [s["dims"] for s in saved if s["filePath"].endswith("_layer/after/outtensor0.bin")]
    assert shapes == ["4,32", "1,32", "4,32"]
