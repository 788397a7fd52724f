"""What libatb.so shows to the dynamic linker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.native

HEADER = Path(__file__).parents[2] / "ait_llm" / "native" / "hostatb" / "hostatb.h"
PROBE_FUNCTIONS = {
    "IsExecuteCountInRange",
    "IsOverflowCheck",
    "IsOverflowStop",
    "IsSaveParam",
    "IsSaveTensorAfter",
    "IsSaveTensorBefore",
    "IsSaveTensorData",
    "IsSaveTensorDesc",
    "IsSaveTensorInSpecificDir",
    "IsSaveTiling",
    "IsTensorNeedSave",
    "ReportKernelIOTensor",
    "ReportKernelIOTensorEnable",
    "ReportOperationExecuteStatistic",
    "ReportOperationGraph",
    "ReportOperationGraphEnable",
    "ReportOperationIOTensor",
    "ReportOperationIOTensorEnable",
    "ReportOperationSetupStatistic",
    "ReportOperationStatisticEnable",
    "ReportOverflowKernel",
    "SaveParam",
    "SaveTensor",
    "SaveTiling",
    "UpdateConfig",
}
SPEED_PROBE_FUNCTIONS = {"IsReportModelTopoInfo", "ReportModelTopoInfo"}


@pytest.fixture(params=[0, 1], ids=["abi0", "abi1"])
def library(request: pytest.FixtureRequest, native_build: Path) -> Path:
    return native_build / "hostatb" / f"cxx_abi_{request.param}" / "lib" / "libatb.so"


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_only_the_interface_is_exported(library: Path) -> None:
    names = [
        line.split()[-1]
        for line in _output("nm", "-D", "--defined-only", library).split("\n")
        if line
    ]
    functions: dict[str, set[str]] = {}
    for name in names:
        mangled = re.fullmatch(r"_ZN(3atb5Probe|9atb_speed10SpeedProbe)(\d+)(.*)", name)
        owner = mangled[1] if mangled else "C"
        functions.setdefault(owner, set()).add(mangled[3][: int(mangled[2])] if mangled else name)
    declared = set(re.findall(r"\b(hostatb_\w+|aclrtGetDevice)\(", HEADER.read_text()))
    assert functions["3atb5Probe"] == PROBE_FUNCTIONS
    assert functions["9atb_speed10SpeedProbe"] == SPEED_PROBE_FUNCTIONS
    assert functions["C"] == declared


def test_probe_names_tell_the_abi(library: Path) -> None:
    has_cxx11 = "cxx11" in _output("nm", "-D", "--defined-only", library)
    assert has_cxx11 == (library.parent.parent.name == "cxx_abi_1")


def test_no_cpp_runtime_is_needed(library: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(\S+)\]", _output("readelf", "-d", library))
    assert not any(name.startswith(("libstdc++", "libgcc_s")) for name in needed)
