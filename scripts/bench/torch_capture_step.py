"""One measurement of ``torch_capture.py``, in a process and an interpreter of its own.

Runs the model without capture, then with it, and prints the times as one line of JSON. Imports
only torch and the capture that it measures, so that the peer's environment suffices.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from llama_shape import LlamaShape

Step = Callable[[], None]


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
DEBUGGER_LEVELS = ("L0", "L1", "mix")


def measure(step: Step, warm_up: int, times: int, clock: Callable[[], float]) -> list[float]:
    """Seconds of each call after the first ``warm_up`` ones."""
    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(times):
        begin = clock()
        step()
        seconds.append(clock() - begin)
    return seconds


def ours(model: torch.nn.Module, step: Step, kind: str, level: str, output: Path) -> Step:
    """A step with our capture, up to the moment at which every file is written."""
    from ait_llm import DumpConfig, register_hook

    # A step here is one forward call of the same length, which the counter takes for a new prompt.
    config = DumpConfig(
        str(output),
        token_range=list(range(1000)),
        mode="tensor" if kind == "data" else "stats",
        operators=level in ("operators", "both"),
        modules=level != "operators",
    )
    handle = register_hook(model, config)
    assert handle._session is not None

    def captured() -> None:
        step()
        handle._session.recorder.writer.drain()

    return captured


def peer(model: torch.nn.Module, step: Step, kind: str, level: str, output: Path) -> Step:
    """A step with msprobe, which writes tensors within the call and its tables in ``stop``."""
    from msprobe.pytorch import PrecisionDebugger

    return debugged(PrecisionDebugger, model, step, kind, level, output)


def our_debugger(model: torch.nn.Module, step: Step, kind: str, level: str, output: Path) -> Step:
    """The same program with our class of that name; only the import differs."""
    from ait_llm.dump.api import PrecisionDebugger

    return debugged(PrecisionDebugger, model, step, kind, level, output)


def debugged(
    debugger_class: Any, model: torch.nn.Module, step: Step, kind: str, level: str, output: Path
) -> Step:
    """A step between ``start`` and the end of ``step``, when all files are written."""
    task = "tensor" if kind == "data" else "statistics"
    config = output / "config.json"
    everything = {"scope": [], "list": [], "data_mode": ["all"]}
    settings = {
        "task": task,
        "dump_path": str(output),
        "rank": [],
        "step": [],
        "level": level,
        "tensor": {**everything, "file_format": "npy"},
        "statistics": {**everything, "summary_mode": "statistics"},
    }
    config.write_text(json.dumps(settings))
    debugger = debugger_class(config_path=str(config))

    def captured() -> None:
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()

    return captured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=("ait", "msprobe"), required=True)
    parser.add_argument("--kind", choices=("data", "statistics"), required=True)
    parser.add_argument(
        "--level", choices=("modules", "operators", "both", "L0", "L1", "mix"), required=True
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--clock", choices=tuple(CLOCKS), required=True)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    model = LlamaShape().to(getattr(torch, arguments.dtype)).eval()
    ids = torch.randint(0, 4096, (2, 256))

    def step() -> None:
        with torch.no_grad():
            model(ids)

    without = measure(step, 3, arguments.steps, CLOCKS[arguments.clock])
    tool = ours if arguments.tool == "ait" else peer
    if tool is ours and arguments.level in DEBUGGER_LEVELS:
        tool = our_debugger
    captured = tool(model, step, arguments.kind, arguments.level, arguments.output)
    with_capture = measure(captured, 2, arguments.steps, CLOCKS[arguments.clock])
    sizes = [
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(arguments.output)
        for name in names
    ]
    result = {
        "without": without,
        "with": with_capture,
        "files": len(sizes),
        "bytes": sum(sizes),
        "torch": str(torch.__version__),
    }
    # The tools print to stdout as they go, and at exit: the result is on a line of its own.
    sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")


if __name__ == "__main__":
    main()
