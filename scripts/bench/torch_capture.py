"""What capturing a PyTorch model costs, beside msprobe, in one run.

    python scripts/bench/torch_capture.py --peer-python /path/to/venv/bin/python

A Llama-shaped model (hidden 512, 8 layers, sequence 256, batch 2) runs one forward pass at a time,
without and with capture. The levels ``modules``, ``operators`` and ``both`` are those of
``register_hook``; ``L0``, ``L1`` and ``mix`` are our ``PrecisionDebugger``, which runs the very
program that the peer runs. For ``register_hook`` the time includes waiting for the background
writer, so that all files are there when the clock stops. msprobe writes within the calls and is
timed with its ``start``, ``stop`` and ``step``, and so is our class of the same interface. Every
measurement is a process of its own; the tools take turns. Both write to the same file system.
Numbers are medians. On a machine that does other work too, ``--clock cpu`` counts the CPU seconds
of the process, all its threads together, and not the time that passed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from figures import figure

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("torch_capture_step.py")
PEER = "mindstudio-probe==26.2.*"
# Our level, and the peer's level that records the same kind of calls.
LEVELS = {
    "modules": ("L0",),
    "operators": ("L1",),
    "both": ("mix",),
    "L0": ("L0",),
    "L1": ("L1",),
    "mix": ("mix",),
}
MODULE_STATISTICS_TARGET = 1.15
ADDED_TARGET = 0.5


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    tool: str
    kind: str
    level: str
    dtype: str


@dataclass(frozen=True)
class Cost:
    """Medians over all repetitions; seconds of a step without and with capture."""

    without: float
    with_capture: float
    files: int
    bytes: int

    @property
    def ratio(self) -> float:
        return self.with_capture / self.without

    @property
    def added(self) -> float:
        return self.with_capture - self.without


@dataclass(frozen=True)
class Row:
    """Ours beside one level of the peer."""

    kind: str
    dtype: str
    level: str
    peer_level: str
    ours: Cost
    peer: Cost | None

    @property
    def share(self) -> float | None:
        """Our added time over the peer's."""
        return self.ours.added / self.peer.added if self.peer is not None else None

    def targets(self) -> list[tuple[str, bool]]:
        found = []
        if self.share is not None:
            found.append((f"added < {ADDED_TARGET} of the peer's", self.share < ADDED_TARGET))
        if (self.kind, self.level) == ("statistics", "modules"):
            met = self.ours.ratio <= MODULE_STATISTICS_TARGET
            found.append((f"ratio <= {MODULE_STATISTICS_TARGET}", met))
        return found


def make_peer(folder: Path) -> Path:
    """A virtual environment with the peer in it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ROOT / "scripts" / "constraints.txt"
    install = [python, "-m", "pip", "install", "-q", "-c", constraints, PEER, "torch"]
    subprocess.run([str(part) for part in install], check=True)
    return python


def run(
    case: Case, python: Path, folder: Path, steps: int, threads: int, clock: str
) -> dict[str, Any]:
    """Measure one case in a process of its own."""
    output = Path(tempfile.mkdtemp(dir=folder, prefix=f"{case.tool}-"))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if case.tool == "ait":
        paths = [str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = [str(python), str(WORKER), "--output", str(output)]
    for name, value in {
        **asdict(case),
        "steps": steps,
        "threads": threads,
        "clock": clock,
    }.items():
        command += [f"--{name}", str(value)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                return result
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}\nno result was printed")
    finally:
        shutil.rmtree(output, ignore_errors=True)


def touch_memory(folder: Path, size: int) -> None:
    """Write and remove a large file: on a virtual machine, memory is slow at its first use only."""
    with tempfile.TemporaryFile(dir=folder) as file:
        block = bytes(1 << 24)
        for _ in range(size >> 24):
            file.write(block)


def combine(results: list[dict[str, Any]]) -> Cost:
    return Cost(
        without=statistics.median(itertools.chain(*(result["without"] for result in results))),
        with_capture=statistics.median(itertools.chain(*(result["with"] for result in results))),
        files=results[0]["files"],
        bytes=results[0]["bytes"],
    )


def machine() -> dict[str, Any]:
    """Facts that the numbers depend on."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


def print_table(rows: list[Row]) -> None:
    columns = "{:<11}{:<10}{:<10}{:>10}{:>9}{:>9}  {:<6}{:>9}{:>9}{:>7}  {}"
    titles = ("level", "kind", "dtype", "without", "added", "ratio", "peer", "added", "ratio")
    print(columns.format(*titles, "share", "targets"))
    for row in rows:
        peer = row.peer
        print(
            columns.format(
                row.level,
                row.kind[:9],
                row.dtype,
                f"{row.ours.without * 1e3:.1f} ms",
                f"{row.ours.added * 1e3:.1f} ms",
                f"{row.ours.ratio:.2f}",
                row.peer_level if peer else "-",
                f"{peer.added * 1e3:.0f} ms" if peer else "-",
                f"{peer.ratio:.2f}" if peer else "-",
                f"{row.share:.2f}" if row.share is not None else "-",
                ", ".join(f"{'met' if met else 'MISSED'}: {name}" for name, met in row.targets()),
            )
        )


def say(row: Row) -> None:
    """The figures of one row."""
    what = f"capture of {row.kind}, {row.level}, {row.dtype}"
    limit = None
    if (row.kind, row.level) == ("statistics", "modules"):
        limit = MODULE_STATISTICS_TARGET
    figure(what, row.ours.ratio, "times a step without capture", at_most=limit)
    if row.share is not None:
        unit = f"of the time that msprobe's {row.peer_level} adds"
        figure(what, row.share, unit, at_most=ADDED_TARGET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peer-python", type=Path, help="interpreter that has msprobe and torch")
    parser.add_argument("--no-peer", action="store_true", help="measure our capture alone")
    parser.add_argument("--repetitions", type=int, default=3, help="processes for each case")
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each process")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--kinds", nargs="+", default=["data", "statistics"])
    parser.add_argument("--levels", nargs="+", choices=list(LEVELS), default=list(LEVELS))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--directory", type=Path, help="where dumps go for a moment")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="ait-bench-") as name:
        folder = Path(name)
        tools = {"ait": Path(sys.executable)}
        if not arguments.no_peer:
            tools["msprobe"] = arguments.peer_python or make_peer(folder / "peer")
        # A level of the peer is measured once, however many of ours are beside it.
        cases = list(
            dict.fromkeys(
                Case(tool, kind, level, dtype)
                for dtype in arguments.dtypes
                for kind in arguments.kinds
                for ours in arguments.levels
                for tool, levels in (("ait", (ours,)), ("msprobe", LEVELS[ours]))
                if tool in tools
                for level in levels
            )
        )
        facts = machine()
        touch_memory(folder, 6 << 30)
        results: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
        for repetition in range(arguments.repetitions):
            for case in cases:
                print(f"{repetition + 1}/{arguments.repetitions} {case}", file=sys.stderr)
                found = run(
                    case,
                    tools[case.tool],
                    folder,
                    arguments.steps,
                    arguments.threads,
                    arguments.clock,
                )
                results[case].append(found)
        facts["load after"] = os.getloadavg()
    costs = {case: combine(found) for case, found in results.items()}
    rows = [
        Row(
            kind,
            dtype,
            level,
            peer_level,
            costs[Case("ait", kind, level, dtype)],
            costs.get(Case("msprobe", kind, peer_level, dtype)),
        )
        for level in arguments.levels
        for peer_level in LEVELS[level]
        for kind in arguments.kinds
        for dtype in arguments.dtypes
    ]
    print("; ".join(f"{key} {value}" for key, value in facts.items()))
    print_table(rows)
    for row in rows:
        say(row)
    if arguments.json is not None:
        everything = {
            "machine": facts,
            "arguments": {key: str(value) for key, value in vars(arguments).items()},
            "measurements": [
                {**asdict(case), "repetitions": found} for case, found in results.items()
            ],
            "rows": [
                {
                    **asdict(row),
                    "ratio": row.ours.ratio,
                    "peer_ratio": row.peer.ratio if row.peer else None,
                    "share": row.share,
                    "targets": dict(row.targets()),
                }
                for row in rows
            ],
        }
        arguments.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
