"""The native runtime, built once per session from the sources of this checkout."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = shlex.quote(str(ROOT / "ait_llm" / "native"))
TARGETS = [f"{name}_abi{abi}" for name in ("hostatb", "hostatb_recording_probe") for abi in (0, 1)]


@pytest.fixture(scope="session")
def native_build() -> Path:
    """Directory with ``hostatb/`` (both ABIs) and ``tests/`` (the recording probes).

    ``AIT_NATIVE_BUILD`` names one that was made before, such as that of ``scripts/sanitize``.
    """
    if given := os.environ.get("AIT_NATIVE_BUILD"):
        return Path(given) / "lib"
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    build = ROOT / "build" / "hostatb-tests"
    commands = (
        # All sources of a library in one: their headers cost more to compile than they do.
        f"cmake -S {NATIVE} -B {shlex.quote(str(build))} -DAIT_PROBE=OFF -DAIT_NATIVE_TESTS=ON "
        "-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0",
        f"cmake --build {shlex.quote(str(build))} -j2 --target {' '.join(TARGETS)}",
    )
    for command in map(shlex.split, commands):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "lib"


@pytest.fixture(scope="session")
def native_environment(native_build: Path) -> Callable[[int], dict[str, str]]:
    """Environment, per ABI, of a program on the built runtime under the recording probe."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ATB_", "HOSTATB_"))}

    def environment(abi: int) -> dict[str, str]:
        return {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "AIT_LLM_LIB_DIR": str(native_build),
            "HOSTATB_CXX_ABI": str(abi),
            # The runtime of a sanitizer has to come first.
            "LD_PRELOAD": " ".join(
                [
                    *os.environ.get("AIT_NATIVE_RUNTIME", "").split(),
                    str(native_build / "tests" / f"librecording_probe_abi{abi}.so"),
                ]
            ),
        }

    return environment


@pytest.fixture(scope="module")
def native_library(native_build: Path) -> Iterator[Path]:
    """The runtime for tests that run operations in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATB_HOME_PATH", raising=False)
        patch.setenv("AIT_LLM_LIB_DIR", str(native_build))
        yield native_build
