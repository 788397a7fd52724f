"""Runs all benchmarks, keeps their figures, and writes ``docs/performance.md`` from them.

    scripts/bench/run [--only NAME ...] [--peer-python PYTHON | --no-peer] [--quick]

The figures of each benchmark replace those of its last run in ``scripts/bench/results.json``; the
page is made of that file, so a run may be done in parts. A benchmark that fails keeps its place on
the page, as a failure. ``--quick`` uses small sizes and writes neither file. A full run takes about
an hour on two cores; nothing else should run meanwhile, and the load found is told on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benches import BENCHES, Bench
from figures import FILE_VARIABLE, read_figures
from machine import machine
from page import as_page
from torch_capture import make_peer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "performance.md"


def run(bench: Bench, given: argparse.Namespace, peer: Path | None) -> dict[str, Any]:
    """Run one benchmark to its end; what it found and what it printed."""
    words = [sys.executable, str(HERE / bench.program)]
    words += bench.quick or bench.options if given.quick else bench.options
    if bench.peer and peer is not None:
        words += ["--peer-python", str(peer)]
    elif bench.name == "torch_capture" or (bench.name == "probe" and given.no_peer):
        words.append("--no-peer")
    if bench.directory and given.directory is not None:
        words += [bench.directory, str(given.directory)]
    print(f"== {bench.title}: {' '.join(words[1:])}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.jsonl")
        load, start = os.getloadavg()[0], time.perf_counter()
        process = subprocess.Popen(
            words,
            env={**os.environ, FILE_VARIABLE: str(file)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = []
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
        code = process.wait()
        return {
            "when": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            "machine": machine(given.directory or Path(tempfile.gettempdir())),
            "options": [word for word in bench.options if not given.quick],
            "seconds": round(time.perf_counter() - start),
            "load_before": round(load, 1),
            "exit_code": code,
            "failed": "".join(printed)[-1000:] if code not in (0, 1) else "",
            "figures": [asdict(figure) for figure in read_figures(file)],
        }


def main() -> int:
    """Run, keep, publish; 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"Benchmarks: {', '.join(bench.name for bench in BENCHES)}.",
    )
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="NAME")
    parser.add_argument("--peer-python", type=Path, help="of an environment with mindstudio-probe")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is published")
    parser.add_argument("--directory", type=Path, help="where dumps go for a moment")
    parser.add_argument("--json", type=Path, help="also write the figures of this run to a file")
    given = parser.parse_args()
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found: dict[str, Any] = {}
    chosen = [bench for bench in BENCHES if bench.name in given.only]
    with tempfile.TemporaryDirectory() as folder:
        peer = given.peer_python
        if peer is None and not given.no_peer and any(bench.peer for bench in chosen):
            peer = make_peer(Path(folder, "peer"))
        for bench in chosen:
            found[bench.name] = run(bench, given, None if given.no_peer else peer)
            if not given.quick:  # after each, so that nothing is lost
                kept[bench.name] = found[bench.name]
                RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
                PAGE.write_text(as_page(kept), encoding="utf-8")
    print(as_page(found))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(result["failed"] for result in found.values()))


if __name__ == "__main__":
    sys.exit(main())
