"""Measures the probe beside a plain write and beside the released msprobe probe.

    python scripts/bench/probe.py [--dir DIR] [--peer libatb_probe_abi1.so | --no-peer]

One driver executes N operations of a given tensor size three ways, in turn and several times: with
this probe, with the probe of the PyPI package mindstudio-probe, and with plain write() calls of the
same bytes into the same kind of files. Every byte is in the page cache when a run ends: throughput
counts from the first operation to the end of the process and of its writer. The best of the
repetitions is taken, because other work on the machine only ever slows a run down; CPU time, of the
host and its writer together, depends least on it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from figures import figure

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "native-tests"
PACKAGE = "mindstudio-probe"
SIZES = (65536, 262144, 1048576, 4194304, 16777216)
BYTES_PER_RUN = 402653184
MOST_OPERATIONS = 2000
GATE_ROUNDS = 5_000_000
PEER_TARGET = 2.0
PLAIN_TARGET = 0.8
GATE_TARGET_NS = 50.0

OURS = {
    "ATB_DUMP_TYPE": "tensor",
    "ATB_SAVE_TENSOR": "1",
    "ATB_SAVE_CHILD": "1",
    "ATB_SAVE_TENSOR_RANGE": "0,0",
    "ATB_SAVE_TENSOR_TIME": "1",
    "ATB_SAVE_TENSOR_PART": "2",
    "ATB_AIT_LOG_LEVEL": "3",
}
PEER_CONFIG = {
    "task": "tensor",
    "dump_enable": True,
    "exec_range": "all",
    "ids": "",
    "op_name": "",
    "save_child": True,
    "device": "",
    "filter_level": 0,
}


@dataclass(frozen=True)
class Sample:
    """One run of the driver."""

    seconds: float  # until everything was handed to the file system
    host_seconds: float  # that the host spent in its loop
    peak_mib: float
    files: int
    cpu_seconds: float  # of the host and of its writer


def adopt_orphans() -> None:
    """Become the parent of writers whose host has ended, so that their CPU time is counted."""
    pr_set_child_subreaper = 36  # linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def children_cpu_seconds() -> float:
    """CPU time of all children that have ended; waits for those that have not."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime


class Bench:
    """Runs the driver in fresh directories below one folder."""

    def __init__(self, folder: Path, peer: Path | None) -> None:
        self.folder = folder
        self.peer = peer
        self.probe = BUILD / "lib" / "libatb_probe_abi1.so"
        self.driver = BUILD / "tests" / "probe_driver_abi1"

    def environment(self, kind: str, output: Path) -> dict[str, str]:
        """The variables that make the driver write with that probe."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ATB_", "AIT_", "LD_PRELOAD"))
        }
        clean["ATB_OUTPUT_DIR"] = f"{output}/"
        if kind == "ours":
            return {**clean, **OURS, "LD_PRELOAD": str(self.probe)}
        if kind == "peer":
            config = self.folder / "peer.json"
            config.write_text(json.dumps(PEER_CONFIG))
            return {**clean, "ATB_DUMP_CONFIG": str(config), "LD_PRELOAD": str(self.peer)}
        return clean

    def run(self, kind: str, size: int, operations: int) -> Sample:
        """One run; its files are counted and removed."""
        output = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.folder))
        options = [f"ops={operations}", f"size={size}"]
        if kind == "plain":
            options.append(f"plain={output}")
        cpu = children_cpu_seconds()
        # The writer shares standard error: when that is closed by all, everything is written.
        process = subprocess.Popen(
            [self.driver, "bench", *options],
            env=self.environment(kind, output),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        stdout, stderr = process.communicate(timeout=600)
        ended = time.monotonic()
        cpu = children_cpu_seconds() - cpu
        if process.returncode != 0:
            raise SystemExit(f"the driver failed with the {kind} probe:\n{stderr}")
        line = next(text for text in stdout.splitlines() if text.startswith("{"))
        told = json.loads(line)
        files = sum(
            1
            for path in output.rglob("outtensor0.bin")
            if path.stat().st_size > size and path.is_file()
        )
        shutil.rmtree(output)
        return Sample(
            ended - told["begin"],
            told["end"] - told["begin"],
            told["peak_kib"] / 1024,
            files,
            cpu,
        )

    def gate_nanoseconds(self, settings: Mapping[str, str]) -> float:
        """Mean cost of one gate with these settings."""
        done = subprocess.run(
            [self.driver, "bench", f"gates={GATE_ROUNDS}"],
            env={**self.environment("plain", self.folder), **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        return float(json.loads(done.stdout)["gate_ns"])


def find_peer(argument: str | None, folder: Path) -> Path | None:
    """The peer's library: the given one, or the one of the newest package."""
    if argument is not None:
        return Path(argument)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        PACKAGE,
        "--no-deps",
        "-q",
        "-d",
        folder,
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return None
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract("msprobe/lib/libatb_probe_abi1.so", folder))
    return None


def build() -> None:
    """The probe and its driver, optimised."""
    configure: list[str | Path] = ["cmake", "-S", REPOSITORY / "ait_llm" / "native", "-B", BUILD]
    configure += ["-DAIT_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    compile_: list[str | Path] = ["cmake", "--build", BUILD, "-j", "2", "--target"]
    for command in (configure, [*compile_, "atb_probe_abi1", "probe_driver_abi1"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def measure_writing(bench: Bench, repetitions: int) -> None:
    kinds = ["plain", "ours"] + (["peer"] if bench.peer is not None else [])
    print(
        f"{'size':>8} {'ops':>5} {'probe':>6} {'MB/s':>8} {'us/op':>8} {'host us/op':>10} "
        f"{'cpu us/op':>9} {'peak MiB':>8} {'files':>6}"
    )
    for size in SIZES:
        operations = min(MOST_OPERATIONS, BYTES_PER_RUN // size)
        samples: dict[str, list[Sample]] = {kind: [] for kind in kinds}
        for _ in range(repetitions):
            for kind in kinds:  # in turn, so that all meet the same state of the machine
                samples[kind].append(bench.run(kind, size, operations))
        speed = {}
        for kind in kinds:
            best = min(samples[kind], key=lambda sample: sample.seconds)
            host = min(sample.host_seconds for sample in samples[kind])
            cpu = min(sample.cpu_seconds for sample in samples[kind])
            speed[kind] = best.files * size / best.seconds / 1e6
            print(
                f"{size:>8} {operations:>5} {kind:>6} {speed[kind]:>8.0f} "
                f"{best.seconds / operations * 1e6:>8.1f} {host / operations * 1e6:>10.1f} "
                f"{cpu / operations * 1e6:>9.1f} "
                f"{best.peak_mib:>8.0f} {best.files:>6}"
            )
        ratio = speed["ours"] / speed["plain"]
        met = verdict(ratio >= PLAIN_TARGET)
        print(f"{'':>8} ours/plain {ratio:.2f}, target {PLAIN_TARGET}: {met}")
        what = f"probe, tensors of {size >> 10} KiB"
        unit = "times the speed of plain writes"
        figure(what, ratio, unit, at_least=PLAIN_TARGET, note=f"{speed['ours']:.0f} MB/s")
        if "peer" in speed and speed["peer"] > 0:
            ratio = speed["ours"] / speed["peer"]
            met = verdict(ratio >= PEER_TARGET)
            print(f"{'':>8} ours/peer  {ratio:.2f}, target {PEER_TARGET}: {met}")
            figure(what, ratio, "times msprobe's probe", at_least=PEER_TARGET)


def measure_gates(bench: Bench) -> None:
    bare = bench.gate_nanoseconds({})
    off = bench.gate_nanoseconds({"LD_PRELOAD": str(bench.probe)})
    print(
        f"one gate: {bare:.1f} ns without a probe, {off:.1f} ns with ours and nothing captured, "
        f"target {GATE_TARGET_NS:.0f}: {verdict(off <= GATE_TARGET_NS)}"
    )
    figure("probe, one gate with nothing captured", off, "ns", at_most=GATE_TARGET_NS)
    if bench.peer is not None:
        peer = bench.gate_nanoseconds({"LD_PRELOAD": str(bench.peer)})
        print(f"          {peer:.1f} ns with the peer and nothing captured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--peer", help="libatb_probe_abi1.so of the peer; downloaded by default")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each kind (3)")
    arguments = parser.parse_args()
    build()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="ait-bench-", dir=arguments.dir) as name:
        folder = Path(name)
        peer = None if arguments.no_peer else find_peer(arguments.peer, folder)
        if peer is None and not arguments.no_peer:
            print(f"{PACKAGE} cannot be downloaded; give its library with --peer")
        bench = Bench(folder, peer)
        measure_gates(bench)
        measure_writing(bench, arguments.repeat)


if __name__ == "__main__":
    main()
