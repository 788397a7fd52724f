"""Builds ``libait_statistics.so`` from this checkout, for tests that need it."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ait_llm.core.kernels import NativeKernels

ROOT = Path(__file__).parents[2]
NATIVE = shlex.quote(str(ROOT / "ait_llm" / "native"))


@functools.cache
def statistics_build(options: str = "") -> Path:
    """The build folder with the library in ``lib`` and its test program; skips without tools."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    build = ROOT / "build" / ("statistics-tests" + ("-sanitized" if options else ""))
    targets = "statistics_test" if options else "ait_statistics statistics_test"
    for command in (
        f"cmake -S {NATIVE} -B {shlex.quote(str(build))} -DAIT_PROBE=OFF -DAIT_NATIVE_TESTS=ON "
        + options,
        f"cmake --build {shlex.quote(str(build))} -j2 --target {targets}",
    ):
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def built_kernels() -> NativeKernels:
    """The kernels of this checkout."""
    return NativeKernels(statistics_build() / "lib" / "libait_statistics.so")
