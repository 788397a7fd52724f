"""Speed of the metric kernel against reading the same bytes once.

    python scripts/bench/metrics.py [--megabytes 512] [--variant avx2]

Both passes run on one thread over arrays in memory, are repeated, and count processor time; the
best of each is printed. The read is a sum over 64-bit words.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from ait_llm.metrics import measure_pair

TYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "fp16/fp32": (np.float16, np.float32),
    "int8": np.int8,
    "fp64": np.float64,
}
# Typical size of a rounding difference, and one that is far beyond any.
NOISES = {"near": 1e-3, "far": 0.3}


def best(action: Callable[[], object], repeats: int) -> float:
    """Least processor time of an action in seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def tiled(values: np.ndarray, count: int) -> np.ndarray:
    """Values repeated up to a number of elements."""
    return np.resize(values, count)


def main() -> None:
    """Print one line for each type and noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512, help="both sides together")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--variant", default="", help="portable, avx2, avx512 or numpy")
    options = parser.parse_args()
    if options.variant:
        os.environ["AIT_LLM_METRICS"] = options.variant
    size = options.megabytes << 20
    words = np.ones(size // 8, np.uint64)
    read = size / best(words.sum, options.repeats) / 1e9
    del words
    print(f"read once: {read:.1f} GB/s")
    generator = np.random.default_rng(0)
    base = generator.standard_normal(1 << 20).astype(np.float32)
    for name, types in TYPES.items():
        golden_type, my_type = types if isinstance(types, tuple) else (types, types)
        bytes_per_pair = np.dtype(golden_type).itemsize + np.dtype(my_type).itemsize
        count = size // bytes_per_pair
        for label, noise in NOISES.items():
            scale = 20 if name == "int8" else 1
            other = base * (1 + noise * generator.standard_normal(base.size).astype(np.float32))
            golden = tiled((base * scale).astype(golden_type), count)
            mine = tiled((other * scale).astype(my_type), count)
            seconds = best(lambda g=golden, m=mine: measure_pair(g, m), options.repeats)
            speed = count * bytes_per_pair / seconds / 1e9
            print(f"{name:10} {label:5} {speed:6.2f} GB/s  {speed / read:5.2f} of reading")


if __name__ == "__main__":
    main()
