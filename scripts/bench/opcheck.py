"""Measures ``ait llm opcheck`` beside reading its files and one float32 forward pass.

    python scripts/bench/opcheck.py [--layers 32] [--hidden 4096] [--directory DIR]

hostatb runs the prefill of a decoder with synthetic weights, and all its operators are captured
with their inputs, weights included (13 GB for 32 layers of 4096). Then, on the same files: reading
all of them once; a float32 forward pass of the same layers in PyTorch; the command. The target is
less than three times the reading plus three times the forward pass.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from opcheck_model import layer_weights, wide_llama, with_layers

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.llama_torch import DenseCache, llama_twin

FACTOR = 3.0
# Operators by the start of their names, not the graphs around them: each weight is written once.
OPERATORS = (
    "wordembedding,gather,rmsnorm,linear,split,rope,reshape,selfattentionop,elewise,activation"
)


def dump(program: list[str], output: Path) -> None:
    """Capture the operators of the program."""
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "-o", str(output)]
    words += ["--type", "tensor", "-opname", OPERATORS, "--exec", shlex.join(program)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def read(files: list[Path]) -> float:
    """Seconds to read files once, in blocks."""
    block = bytearray(1 << 20)
    start = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass
    return time.perf_counter() - start


def forward(config: LlamaConfig, tokens: int) -> float:
    """Seconds of one float32 pass; one layer's weights stand for all."""
    weights = {name: value.float() for name, value in layer_weights(config).items()}
    one = with_layers(config, 1)
    one = LlamaConfig(
        one.hidden_size,
        1,
        one.num_heads,
        one.num_kv_heads,
        one.intermediate_size,
        one.vocab_size,
        torch.float32,
    )
    twin = llama_twin(one, weights)
    positions = torch.arange(tokens).unsqueeze(0)
    cos, sin = twin.model.rotary_emb(positions)
    layer = twin.model.layers[0]
    with torch.no_grad():
        hidden = twin.model.embed_tokens(positions % config.vocab_size)
        layer(hidden, positions, cos, sin, DenseCache(one, 1, tokens))  # warm-up
        start = time.perf_counter()
        for _ in range(config.num_layers):
            hidden = layer(hidden, positions, cos, sin, DenseCache(one, 1, tokens))
        twin.lm_head(twin.model.norm(hidden))
        return time.perf_counter() - start


def main() -> int:
    """Print the table; 1 if the target is missed or an operator does not pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--standard", nargs="+", default=["classic", "contract"])
    parser.add_argument("--directory", type=Path, help="where the dump goes for a moment")
    given = parser.parse_args()
    config = wide_llama(given.hidden, given.layers)
    sizes = [f"--{name}={getattr(given, name)}" for name in ("layers", "hidden", "tokens")]
    program = [sys.executable, str(Path(__file__).with_name("opcheck_model.py")), *sizes]
    missed = False
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        dump(program, Path(folder))
        files = [path for path in Path(folder).rglob("*.bin") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        print(f"{len(files)} tensors, {size / 1e9:.2f} GB; {os.cpu_count()} cores")
        reading = read(files)
        passing = forward(config, given.tokens)
        print(f"reading once        {reading:8.2f} s  {size / reading / 1e9:.2f} GB/s")
        print(f"float32 forward     {passing:8.2f} s")
        limit = FACTOR * (reading + passing)
        for standard in given.standard:
            words = [sys.executable, "-m", "ait_llm", "llm", "opcheck", "-i", folder]
            words += ["-o", str(Path(folder, "report")), "--standard", standard, "--format", "csv"]
            start = time.perf_counter()
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
            met = seconds < limit and done.returncode == 0
            missed |= not met
            print(
                f"opcheck {standard:11} {seconds:8.2f} s  exit {done.returncode}, "
                f"{seconds / limit:.2f} of the limit of {limit:.2f} s "
                f"({'met' if met else 'MISSED'})"
            )
            print("  " + done.stdout.splitlines()[0])
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
