"""Settings become exactly the environment that the probe's contract names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ait_llm.core import OpId, StepRange
from ait_llm.errors import UsageError
from ait_llm.probe.config import (
    CONTRACT_VARIABLES,
    ProbeConfig,
    SaveTime,
    TensorPart,
    child_environment,
    probe_environment,
)


def config(**settings: Any) -> ProbeConfig:
    return ProbeConfig(**{"output": Path("/data/out"), "start_time": "20261121110000", **settings})


def test_defaults_are_those_of_the_manual() -> None:
    assert probe_environment(config()) == {
        "ATB_DUMP_TYPE": "tensor",
        "ATB_SAVE_TENSOR": "1",
        "ATB_SAVE_CHILD": "1",
        "ATB_SAVE_TENSOR_RANGE": "0,0",
        "ATB_SAVE_TENSOR_TIME": "1",
        "ATB_SAVE_TENSOR_PART": "2",
        "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "0",
        "ATB_SAVE_TILING": "0",
        "ATB_SAVE_CPU_PROFILING": "0",
        "ATB_OUTPUT_DIR": "/data/out/",
        "ATB_AIT_LOG_LEVEL": "1",
        "AIT_PROBE_QUEUE_BYTES": "268435456",
        "AIT_PROBE_MIN_FREE_BYTES": "268435456",
        "AIT_PROBE_DEDUPE": "0",
        "AIT_PROBE_START_TIME": "20261121110000",
    }


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"types": ("model", "tensor")}, "ATB_DUMP_TYPE", "model|tensor"),
        ({"types": ("cpu_profiling",)}, "ATB_SAVE_CPU_PROFILING", "1"),
        ({"description_only": True}, "ATB_SAVE_TENSOR", "2"),
        ({"operation_ids": (OpId((2,)), OpId((3, 1)))}, "ATB_SAVE_TENSOR_IDS", "2,3_1"),
        ({"operation_names": ("Self", "LINEAR")}, "ATB_SAVE_TENSOR_RUNNER", "self,linear"),
        ({"with_children": False}, "ATB_SAVE_CHILD", "0"),
        ({"steps": StepRange.parse("3,5,7,7")}, "ATB_SAVE_TENSOR_RANGE", "3,5,7,7"),
        ({"steps": StepRange.parse("all")}, "ATB_SAVE_TENSOR_RANGE", "0,2147483647"),
        ({"save_time": SaveTime.BOTH}, "ATB_SAVE_TENSOR_TIME", "2"),
        ({"tensor_part": TensorPart.INPUTS}, "ATB_SAVE_TENSOR_PART", "0"),
        ({"tiling": True}, "ATB_SAVE_TILING", "1"),
        ({"device": 0}, "ATB_DEVICE_ID", "0"),
        ({"log_level": "critical"}, "ATB_AIT_LOG_LEVEL", "5"),
        ({"queue_bytes": 1}, "AIT_PROBE_QUEUE_BYTES", "1"),
        ({"dedupe": True}, "AIT_PROBE_DEDUPE", "1"),
        ({"hand_over": Path("/o/7")}, "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH", "/o/7"),
        ({"output": Path("/")}, "ATB_OUTPUT_DIR", "/"),
    ],
)
def test_each_setting_has_its_variable(settings: dict[str, Any], name: str, value: str) -> None:
    assert probe_environment(config(**settings))[name] == value


def test_every_variable_that_is_set_is_known_as_part_of_the_contract() -> None:
    full = config(
        operation_ids=(OpId((1,)),), operation_names=("a",), device=1, hand_over=Path("/o/7")
    )
    assert set(probe_environment(full)) <= CONTRACT_VARIABLES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"types": ("onnx",)}, "add 'model' or 'layer'"),
        ({"types": ("onnx", "tensor")}, "add 'model' or 'layer'"),
        ({"types": ("tensors",)}, "unknown dump type 'tensors'"),
        ({"types": ()}, "no dump type"),
        ({"output": Path("out")}, "must be an absolute path"),
    ],
)
def test_what_cannot_be_captured_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(**settings)


def test_the_users_environment_is_kept_but_stale_filters_are_not() -> None:
    base = {"PATH": "/bin", "ATB_HOME_PATH": "/atb", "ATB_SAVE_TENSOR_IDS": "9", "ATB_EXIT": "1"}
    environment = child_environment(base, {"ATB_DUMP_TYPE": "op"}, Path("/lib/probe.so"))
    assert environment == {
        "PATH": "/bin",
        "ATB_HOME_PATH": "/atb",
        "ATB_EXIT": "1",
        "ATB_DUMP_TYPE": "op",
        "LD_PRELOAD": "/lib/probe.so",
    }


@pytest.mark.parametrize("before", ["/x/a.so", "/x/a.so:/x/b.so", ":/x/a.so", "/x/a.so "])
def test_the_probe_is_put_before_what_is_preloaded_already(before: str) -> None:
    environment = child_environment({"LD_PRELOAD": before}, {}, Path("/p.so"))
    assert environment["LD_PRELOAD"] == "/p.so:" + before.strip(": ")
