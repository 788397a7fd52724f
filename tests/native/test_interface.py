"""What the libraries export and need, and what loading them does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from native_host import Host, call

pytestmark = pytest.mark.native

SHARED = [
    "IsSaveParam()",
    "IsSaveTiling()",
    "UpdateConfig()",
    "IsOverflowStop()",
    "IsOverflowCheck()",
    "IsSaveTensorData()",
    "IsSaveTensorDesc()",
    "IsSaveTensorAfter()",
    "IsSaveTensorBefore()",
    "IsExecuteCountInRange(unsigned~long)",
    "ReportKernelIOTensorEnable()",
    "ReportOperationGraphEnable()",
    "ReportOperationIOTensorEnable()",
    "ReportOperationStatisticEnable()",
]
WITH_STRINGS = [
    "IsTensorNeedSave",
    "SaveTensor",
    "SaveTiling",
    "SaveParam",
    "ReportOperationGraph",
    "ReportOverflowKernel",
    "IsSaveTensorInSpecificDir",
    "ReportOperationSetupStatistic",
    "ReportOperationExecuteStatistic",
    "ReportOperationIOTensor",
    "ReportKernelIOTensor",
]
SPEED = ["IsReportModelTopoInfo", "ReportModelTopoInfo"]


def nm(library: Path, *options: str) -> list[str]:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    done = subprocess.run(
        ["nm", "-D", *options, library], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_exactly_the_27_names_of_the_interface_are_exported(host: Host) -> None:
    plain = [line.split(maxsplit=2)[2] for line in nm(host.probe, "-C", "--defined-only")]
    expected = {f"atb::Probe::{name.replace('~', ' ')}" for name in SHARED}
    names = {re.sub(r"\(.*", "", name) for name in plain}
    assert expected <= set(plain)
    assert names == {re.sub(r"\(.*", "", name) for name in expected} | {
        f"atb::Probe::{name}" for name in WITH_STRINGS
    } | {f"atb_speed::SpeedProbe::{name}" for name in SPEED}
    assert len(plain) == 27


def test_strings_in_the_interface_are_those_of_the_abi(host: Host) -> None:
    mangled = [line.split()[2] for line in nm(host.probe, "--defined-only")]
    assert sum("cxx11" in name for name in mangled) == (13 if host.abi == 1 else 0)


def test_no_runtime_library_of_cpp_is_needed(host: Host) -> None:
    done = subprocess.run(["readelf", "-d", host.probe], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", done.stdout)
    assert needed
    assert not [name for name in needed if "stdc++" in name or "gcc" in name]


def test_loading_into_a_program_without_atb_does_nothing(host: Host) -> None:
    done = subprocess.run(
        ["/bin/true"], env=host.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(host.output.iterdir()) == []


def test_nothing_is_written_where_nothing_is_asked_for(host: Host) -> None:
    run = host.trace(ATB_DUMP_TYPE=None, ATB_SAVE_TENSOR=None)
    assert run.returncode == 0
    assert run.stderr == ""
    assert list(host.output.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ATB_SAVE_TENSOR": "1"}, "ATB_SAVE_TENSOR is set and ATB_DUMP_TYPE is not"),
        ({"ATB_SAVE_TENSOR": "1", "ATB_DUMP_TYPE": "Tensor"}, "ATB_DUMP_TYPE='Tensor' names no"),
        (
            {"ATB_DUMP_TYPE": "tensor", "ATB_SAVE_TENSOR_PART": "2"},
            "ATB_SAVE_TENSOR_RANGE is not set",
        ),
    ],
)
def test_variables_set_by_hand_that_select_nothing_are_told(
    host1: Host, settings: dict[str, str], said: str
) -> None:
    host1.settings = settings
    run = host1.trace()
    assert run.returncode == 0
    assert run.bins() == []
    assert run.stderr.count("[warning]") == 1
    assert said in run.stderr


def test_the_host_keeps_its_standard_output(host: Host) -> None:
    run = host.trace(ATB_DUMP_TYPE="tensor|layer|model|op|kernel|cpu_profiling|stats")
    assert len(run.stdout.splitlines()) == 1
    assert run.summary["failed"] == 0


def test_a_probe_of_the_other_abi_is_not_called_with_strings(host: Host) -> None:
    host.probe = host.probe.with_name(f"libatb_probe_abi{1 - host.abi}.so")
    run = host.trace()
    assert run.returncode == 0
    assert run.bins() == []


def test_a_host_that_changes_its_directory_keeps_one_output(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other"
    start = tmp_path / "start"
    other.mkdir()
    start.mkdir()
    path = "0_{pid}/0/0_Op/after/outtensor0.bin"
    line = call("tensor", 2, 1, "2,2", path, "hex:003c00c00038007c")
    run = host.script(
        call("data"), call("chdir", other), line, cwd=start, ATB_OUTPUT_DIR="relative/"
    )
    assert run.returncode == 0
    assert list(other.iterdir()) == []
    assert len(list((start / "relative" / "ait_dump" / "tensors").rglob("*.bin"))) == 1
