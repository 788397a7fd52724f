"""Measures ``ait llm opcheck`` beside reading its files and one float32 forward pass.

    python scripts/bench/opcheck.py [--layers 32] [--hidden 4096] [--directory DIR]

hostatb runs the prefill of a decoder with synthetic weights, and all its operators are captured
with their inputs, weights included (13 GB for 32 layers of 4096; twice that for a moment, because
kernels are captured too, which nobody reads here). Then, on the same files: reading all of them
once, from memory where they fit; a float32 forward pass of the same layers in PyTorch; the command.
The target is less than three times the reading plus three times the forward pass. Processor time of
all cores stands beside each time, because it hardly depends on what else the machine does.

With --dedupe the weights that all layers share lie on disk once, with a name in each layer. Every
name is read and checked all the same, as in the memory of a machine that holds all the files.

At last golden attention over 4 sequences of 2048 tokens, 32 heads, beside that of PyTorch.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from figures import figure
from opcheck_attention import BATCH, HEADS, TOKENS, attention_times
from opcheck_model import layer_weights, wide_llama, with_layers

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.llama_torch import DenseCache, llama_twin

FACTOR = 3.0
ATTENTION_SECONDS = 2.0
# Operators by the start of their names, not the graphs around them: each weight is written once.
OPERATORS = (
    "wordembedding,gather,rmsnorm,linear,split,rope,reshape,selfattentionop,elewise,activation"
)


def dump(program: list[str], output: Path, *more: str) -> None:
    """Capture the operators of the program."""
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "-o", str(output)]
    words += ["--type", "tensor", "-opname", OPERATORS, *more, "--exec", shlex.join(program)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, and of the processor in all cores."""

    clock: float
    processor: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.clock + other.clock, self.processor + other.processor)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.clock * factor, self.processor * factor)

    def __str__(self) -> str:
        return f"{self.clock:8.2f} s {self.processor:8.2f} s of processors"


@contextmanager
def costs(found: list[Cost]) -> Iterator[None]:
    """Append what the block costs, child processes that end in it included."""
    start, used = time.perf_counter(), processor_time()
    yield
    found.append(Cost(time.perf_counter() - start, processor_time() - used))


def processor_time() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def read(files: list[Path]) -> Cost:
    """Read files once, in blocks; the better of two times."""
    block = bytearray(1 << 20)
    found: list[Cost] = []
    for _ in range(2):
        with costs(found):
            for path in files:
                with path.open("rb", buffering=0) as file:
                    while file.readinto(block):
                        pass
    return min(found, key=lambda cost: cost.clock)


def forward(config: LlamaConfig, tokens: int) -> Cost:
    """One float32 pass; one layer's weights stand for all."""
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
        found: list[Cost] = []
        with costs(found):
            for _ in range(config.num_layers):
                hidden = layer(hidden, positions, cos, sin, DenseCache(one, 1, tokens))
            twin.lm_head(twin.model.norm(hidden))
    return found[0]


def attention() -> bool:
    """Print the attention table; True if the target is missed."""
    print(f"golden attention    {BATCH} x {TOKENS} tokens, {HEADS} heads")
    missed = False
    for row in attention_times():
        met = row.golden < ATTENTION_SECONDS
        missed |= not met
        what = f"golden attention, {BATCH} x {TOKENS} tokens, {HEADS} heads, {row.name}"
        note = f"{row.golden / row.peer:.2f} times scaled_dot_product_attention"
        figure(what, row.golden, "s", at_most=ATTENTION_SECONDS, note=note)
        print(
            f"  {row.name:18}{Cost(row.golden, row.processor)}, {row.golden / row.peer:.2f} times "
            f"scaled_dot_product_attention, below {ATTENTION_SECONDS:g} s "
            f"({'met' if met else 'MISSED'})"
        )
    return missed


def _is_of_kernel(path: Path) -> bool:
    return any(part.endswith("Kernel") for part in path.parts)


def main() -> int:
    """Print the table; 1 if the target is missed or an operator does not pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--standard", nargs="+", default=["classic", "contract"])
    parser.add_argument("--dedupe", action="store_true", help="store equal weights once on disk")
    parser.add_argument("--directory", type=Path, help="where the dump goes for a moment")
    given = parser.parse_args()
    config = wide_llama(given.hidden, given.layers)
    sizes = [f"--{name}={getattr(given, name)}" for name in ("layers", "hidden", "tokens")]
    program = [sys.executable, str(Path(__file__).with_name("opcheck_model.py")), *sizes]
    missed = False
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        dump(program, Path(folder), *(["--dedupe"] if given.dedupe else []))
        if not given.dedupe:  # else tensors of operators may refer to those of kernels
            for kernel in [path for path in Path(folder).rglob("*Kernel") if path.is_dir()]:
                shutil.rmtree(kernel)
        bins = [path for path in Path(folder).rglob("*.bin") if path.is_file()]
        files = [path for path in bins if not _is_of_kernel(path)]
        size = sum(path.stat().st_size for path in files)
        print(f"{len(files)} tensors, {size / 1e9:.2f} GB; {os.cpu_count()} cores")
        reading = read(files)
        passing = forward(config, given.tokens)
        limit = (reading + passing) * FACTOR
        print(f"reading once        {reading}, {size / reading.clock / 1e9:.2f} GB/s")
        print(f"float32 forward     {passing}")
        print(f"limit               {limit}")
        for standard in given.standard:
            words = [sys.executable, "-m", "ait_llm", "llm", "opcheck", "-i", folder]
            words += ["-o", str(Path(folder, "report")), "--standard", standard, "--format", "csv"]
            found: list[Cost] = []
            with costs(found):
                done = subprocess.run(words, capture_output=True, text=True, check=False)
            own = found[0]
            met = own.clock < limit.clock and done.returncode == 0
            missed |= not met
            print(
                f"opcheck {standard:12}{own}, exit {done.returncode}, "
                f"{own.clock / limit.clock:.2f} and {own.processor / limit.processor:.2f} of the "
                f"limit ({'met' if met else 'MISSED'})"
            )
            print("  " + done.stdout.splitlines()[0])
            what = (
                f"opcheck {standard}, {given.layers} layers of {given.hidden}, {size / 1e9:.1f} GB"
            )
            unit = "of 3 times reading plus 3 float32 forwards"
            figure(what, own.clock / limit.clock, unit, at_most=1, note=f"exit {done.returncode}")
    missed |= attention()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
