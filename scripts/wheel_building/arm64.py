"""Tries an arm64 wheel on another machine: a Python of Debian's under QEMU, in a folder of its own.

Nothing of the system is changed, neither its packages nor what its kernel starts: where a program
of arm64 would be started, a small static program stands and starts it under QEMU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from zig import MissingError

ROOT = Path(__file__).parents[2]
QEMU = "qemu-aarch64-static"
DEBIAN = (
    *("libc6", "libgcc-s1", "libstdc++6", "libexpat1", "zlib1g", "libssl3", "libffi8"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
PYTHON = ("numpy", "ml-dtypes", "pyyaml", "click", "rich", "pytest", "hypothesis")
# Those that need no torch; the tests of other parts of the probe are about time or memory.
METRIC_TESTS = ("tests/metrics/test_against_oracle.py", "tests/metrics/test_ratios.py")
METRIC_TESTS += ("tests/metrics/test_streaming.py", "tests/metrics/test_worked_values.py")
PROBE_TESTS = ("tests/native/test_tensors.py", "tests/native/test_topology.py")
PROBE_TESTS += ("tests/native/test_tables.py", "tests/native/test_gates.py")
PROBE_TESTS += ("tests/native/test_dedupe.py", "tests/native/test_ledger.py")
# QEMU cannot start the probe's writer process, which shares memory with its host until it runs; the
# host's own threads write instead, and what only a process that outlives the host can do is not
# there: to seal the ledger of a host that was killed.
WITHOUT_WRITER = "not (however_the or a_burst_right or killed_in_the or a_writer_that_is_killed)"


def check(wheel: Path, build: Path, work: Path) -> None:
    """Run the tests of the metrics within arm64's Python, and those of the probe on its drivers.

    Raises:
        MissingError: something has to be installed first.
        CalledProcessError: a test failed.
    """
    qemu = shutil.which(QEMU)
    if qemu is None:
        raise MissingError(f"{QEMU} is not installed: install qemu-user-static")
    place = work / "aarch64"
    root = _root(place / "root")
    packages = _packages(place / "packages", wheel)
    python = place / "python3"
    _write_launcher(python, root / "usr" / "bin" / "python3.11", qemu, root)
    _wrap_programs(packages, qemu, root)
    _metrics(python, packages, place)
    _probe(packages, build, place, qemu, root)


def _root(place: Path) -> Path:
    """Debian's packages of arm64, unpacked."""
    if (place / "usr" / "bin" / "python3.11").exists():
        return place
    files = place.with_name("debian")
    files.mkdir(parents=True, exist_ok=True)
    foreign = subprocess.run(
        ["dpkg", "--print-foreign-architectures"], check=True, capture_output=True, text=True
    ).stdout
    if "arm64" not in foreign.split():
        raise MissingError(
            "apt knows no arm64 packages: dpkg --add-architecture arm64; apt-get update"
        )
    names = [f"{name}:arm64" for name in DEBIAN]
    subprocess.run(["apt-get", "-q", "download", *names], cwd=files, check=True)
    for file in sorted(files.glob("*.deb")):
        subprocess.run(["dpkg", "-x", file, place], check=True)
    return place


def _packages(place: Path, wheel: Path) -> Path:
    """The wheel, what it needs and what its tests need, unpacked as arm64's pip would."""
    if not (place / "numpy").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", place]
        platforms = [f"--platform=manylinux{each}_aarch64" for each in ("2014", "_2_27", "_2_28")]
        which = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
        subprocess.run([*pip, *platforms, *which, *PYTHON], check=True)
    shutil.rmtree(place / "ait_llm", ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            file = Path(archive.extract(entry, place))
            if entry.external_attr >> 16 & 0o111:
                file.chmod(0o755)
    return place


def _write_launcher(file: Path, program: Path, qemu: str, root: Path) -> None:
    """A program of this machine that starts one of arm64."""
    values = {"QEMU": qemu, "ROOT": root, "PROGRAM": program}
    defined = [f'-D{name}="{value}"' for name, value in values.items()]
    source = Path(__file__).with_name("launcher.c")
    subprocess.run(
        ["cc", "-static", "-O1", *defined, source, "-o", file],
        check=True,
    )


def _wrap_programs(folder: Path, qemu: str, root: Path) -> None:
    """Put a launcher where the wheel's own program was: the probe starts it by its name."""
    writer = folder / "ait_llm" / "lib" / "ait_probe_writer"
    real = writer.with_name("ait_probe_writer.arm64")
    writer.rename(real)
    _write_launcher(writer, real, qemu, root)


def _metrics(python: Path, packages: Path, place: Path) -> None:
    environment = {**_plain_environment(), "PYTHONPATH": str(packages)}
    shown = subprocess.run(
        [python, "-c", "import platform, numpy; print(platform.machine(), numpy.__version__)"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    print(f"Python of {shown.strip()} under {QEMU}", flush=True)
    command = [python, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider"]
    command += ["-p", "no:ait_llm_opcheck", "-o", "addopts=", f"--basetemp={place / 'tmp-metrics'}"]
    # Not in the root of the checkout: its ait_llm would be imported.
    tests = [ROOT / name for name in METRIC_TESTS]
    subprocess.run([*command, *tests], cwd=place, env=environment, check=True)


def _probe(packages: Path, build: Path, place: Path, qemu: str, root: Path) -> None:
    """Hosts of arm64 with the wheel's probe before them, started and judged by the tests here."""
    hosts = place / "hosts"
    shutil.rmtree(hosts, ignore_errors=True)
    (hosts / "tests").mkdir(parents=True)
    (hosts / "lib").symlink_to(packages / "ait_llm" / "lib")
    for abi in (0, 1):
        driver = f"probe_driver_abi{abi}"
        _write_launcher(hosts / "tests" / driver, build / "tests" / driver, qemu, root)
    python = os.environ.get("AIT_VENV", str(ROOT / ".venv")) + "/bin/python"
    if not Path(python).exists():
        raise MissingError("the tests of the probe need the checkout's environment: scripts/test")
    command = [python, "-m", "pytest", "-q", "-k", WITHOUT_WRITER]
    command += [f"--basetemp={place / 'tmp-probe'}", *PROBE_TESTS]
    environment = {**_plain_environment(), "AIT_NATIVE_BUILD": str(hosts)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def _plain_environment() -> dict[str, str]:
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
    return {name: os.environ[name] for name in kept if name in os.environ}
