"""Builds the probe and its drivers once per session and runs hosts with the probe preloaded."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from native_host import Host, make_host

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "build" / "native-tests"
TARGETS = [f"{name}_abi{abi}" for name in ("atb_probe", "probe_driver") for abi in (0, 1)]


def _missing_tool() -> str | None:
    if shutil.which("cmake") is None:
        return "cmake is not installed"
    if shutil.which("c++") is None and shutil.which("g++") is None:
        return "no C++ compiler is installed"
    return None


@pytest.fixture(scope="session")
def native_build() -> Path:
    """The build directory with both probes, the writer and both drivers.

    ``AIT_NATIVE_BUILD`` names one that was made before, such as that of ``scripts/sanitize``.
    """
    if given := os.environ.get("AIT_NATIVE_BUILD"):
        return Path(given)
    if (reason := _missing_tool()) is not None:
        pytest.skip(f"{reason}; install it to run the tests of the native probe")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configure: list[str | Path] = [
            "cmake",
            "-S",
            REPOSITORY / "ait_llm" / "native",
            "-B",
            BUILD,
        ]
        configure += ["-DAIT_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
        # All sources of a library in one: their headers cost more to compile than they do.
        configure += ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"]
        if shutil.which("ninja") is not None and not (BUILD / "Makefile").exists():
            configure += ["-G", "Ninja"]
        build: list[str | Path] = ["cmake", "--build", BUILD, "-j", "2", "--target", *TARGETS]
        for command in (configure, build):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.fail(f"the native tests do not build:\n{done.stdout}\n{done.stderr}")
    return BUILD


@pytest.fixture(params=[0, 1], ids=["abi0", "abi1"])
def host(request: pytest.FixtureRequest, native_build: Path, tmp_path: Path) -> Host:
    """Drivers of each ABI in turn, with an output directory of their own."""
    return make_host(native_build, request.param, tmp_path / "out")


@pytest.fixture
def host1(native_build: Path, tmp_path: Path) -> Host:
    """A driver of the newer ABI, where the ABI makes no difference."""
    return make_host(native_build, 1, tmp_path / "out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = sys.platform == "linux" and os.geteuid() == 0
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
