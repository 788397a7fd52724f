"""Measures ``ait llm replay`` beside a float32 forward of the same shapes.

    python scripts/bench/replay.py [--hidden 2048] [--layers 2] [--prompt 128] [--tokens 2]

The Llama demo is captured once: a prefill of two prompts and some decode steps. Then its graph is
replayed, and the PyTorch twin runs the same prompts and tokens in float32 with weights that are
float32 already. CPU time counts, of one thread, because other work on the machine does not change
it; reading the dump and writing the golden one is part of the replay. The best of the repetitions
is taken.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from figures import figure
from safetensors.torch import load_file

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.generate import follow, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights
from ait_llm.replay import replay

TARGET = 3.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each of two prompts")
    parser.add_argument("--tokens", type=int, default=2, help="generated; the first by prefill")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--dir", type=Path, help="where the dumps go; a temporary folder unless given"
    )
    return parser.parse_args()


def capture(given: argparse.Namespace, config: LlamaConfig, folder: Path) -> None:
    """Dump the demo."""
    command = [
        *(sys.executable, "-m", "ait_llm.hostatb.demo.llama", "--save-outputs"),
        *(str(folder / "outputs.safetensors"), "--tokens", str(given.tokens)),
        *("--prompt-lengths", f"{given.prompt},{given.prompt}"),
        *("--hidden", str(config.hidden_size), "--layers", str(config.num_layers)),
        *("--heads", str(config.num_heads), "--kv-heads", str(config.num_kv_heads)),
        *("--intermediate", str(config.intermediate_size), "--vocab", str(config.vocab_size)),
    ]
    dump = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", shlex.join(command)]
    kinds = ["--type", "model", "layer", "tensor", "-er", "all", "-o", str(folder)]
    subprocess.run([*dump, *kinds], check=True, stdout=subprocess.DEVNULL)


def best(action: Callable[[int], object], repeat: int) -> tuple[float, float]:
    """Least CPU and wall time in seconds."""
    cpu, wall = [], []
    for number in range(repeat):
        start = time.process_time(), time.perf_counter()
        action(number)
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return min(cpu), min(wall)


def main() -> int:
    """Print both times and their ratio; 1 if it is above the target."""
    given = arguments()
    torch.set_num_threads(1)
    heads = max(given.hidden // 128, 1)
    config = LlamaConfig(given.hidden, given.layers, heads, heads, given.hidden * 43 // 16, 1024)
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        folder = Path(name)
        capture(given, config, folder)
        wide = replace(config, dtype=torch.float32)
        weights = {key: value.float() for key, value in llama_weights(config, 0).items()}
        twin = llama_twin(wide, weights)
        prompts = random_prompts(config, [given.prompt, given.prompt], 0)
        tokens = load_file(folder / "outputs.safetensors")["tokens"]
        with torch.no_grad():
            forward = best(lambda _: follow(twin, wide, prompts, tokens), given.repeat)

        def run(number: int) -> None:
            output = folder / f"golden{number}"
            if not replay(folder / "ait_dump", output).complete:
                raise RuntimeError("the replay is not complete")
            shutil.rmtree(output)

        replayed = best(run, given.repeat)
    ratio = replayed[0] / forward[0]
    size = f"{config.num_layers} layers of {config.hidden_size}"
    steps = f"prefill of 2 x {given.prompt} tokens, {given.tokens - 1} decode steps"
    print(f"{size}, {steps}, one thread")
    print(f"float32 forward  {forward[0]:6.2f} s CPU  {forward[1]:6.2f} s")
    print(f"replay           {replayed[0]:6.2f} s CPU  {replayed[1]:6.2f} s")
    print(f"ratio            {ratio:6.2f}  (target at most {TARGET:g})")
    figure(f"replay, {size}, CPU time of one thread", ratio, "float32 forwards", at_most=TARGET)
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
