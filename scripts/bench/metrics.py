"""Speed of the metric kernel against reading the same bytes once.

    python scripts/bench/metrics.py [--megabytes 512] [--variant avx2]

Everything runs on one thread over arrays in memory and counts processor time; the best of some
repeats is taken. The read is a sum over 64-bit words, measured again beside each type, since the
speed of a shared machine changes. For each type three kinds of pairs: equal, near (half of the
elements one rounding apart) and far (independent numbers).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
from figures import figure

from ait_llm.metrics import measure_pair

TYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "fp16/fp32": (np.float16, np.float32),
    "int8": np.int8,
    "fp8 e4m3": ml_dtypes.float8_e4m3fn,
    "fp64": np.float64,
}
READ_TARGET = 0.5
TARGETED = ("fp16", "bf16", "fp32")
ELEMENTS = 1 << 20  # of random numbers, which are repeated


def best(action: Callable[[], object], repeats: int) -> float:
    """Least processor time of an action in seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def beside(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Values of which half have moved to the next number of their type, away from zero."""
    bits = values.view(f"i{values.itemsize}")
    return (bits + generator.integers(0, 2, bits.size).astype(bits.dtype)).view(values.dtype)


def pairs(golden_type: type, my_type: type) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Golden and mine for each kind of pair."""
    generator = np.random.default_rng(0)
    scale = 20 if np.dtype(golden_type).kind == "i" else 1
    base, other = (generator.standard_normal(ELEMENTS) * scale for _ in range(2))
    golden = base.astype(np.float32).astype(golden_type)
    same = golden.astype(my_type)
    return {
        "equal": (golden, same),
        "near": (beside(golden, generator), same),
        "far": (golden, other.astype(np.float32).astype(my_type)),
    }


def main() -> None:
    """Print a table: for each type and kind of pair the speed, and its ratio to reading."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512, help="both sides together")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--variant", default="", help="portable, avx2, avx512 or numpy")
    parser.add_argument("--types", default=",".join(TYPES), help="of " + ", ".join(TYPES))
    options = parser.parse_args()
    if options.variant:
        os.environ["AIT_LLM_METRICS"] = options.variant
    size = options.megabytes << 20
    print("GB/s of both sides on one core, and the ratio to reading the same bytes once")
    print(f"{'type':10} {'reading':>8} {'equal':>13} {'near':>13} {'far':>13}")
    for name in options.types.split(","):
        types = TYPES[name]
        golden_type, my_type = types if isinstance(types, tuple) else (types, types)
        bytes_per_pair = np.dtype(golden_type).itemsize + np.dtype(my_type).itemsize
        count = size // bytes_per_pair
        words = np.ones(size // 8, np.uint64)
        read = size / best(words.sum, options.repeats) / 1e9
        del words
        line = f"{name:10} {read:8.1f}"
        for kind, (golden, mine) in pairs(golden_type, my_type).items():
            sides = np.resize(golden, count), np.resize(mine, count)
            seconds = best(lambda sides=sides: measure_pair(*sides), options.repeats)
            speed = count * bytes_per_pair / seconds / 1e9
            line += f" {speed:7.2f} {speed / read:5.2f}"
            if name in TARGETED and kind != "far":
                what = f"metric kernel in memory, {name}, {kind} pairs, one core"
                unit = "times the speed of reading"
                figure(what, speed / read, unit, at_least=READ_TARGET, note=f"{speed:.1f} GB/s")
        print(line, flush=True)


if __name__ == "__main__":
    main()
