"""What it costs to build two programs and to match them, by the number of operations.

    python scripts/bench/match_programs.py [--operations 100000] [--rounds 3]

Two passes of a decoder with modules and their operators are made in memory, with the identities
that a capture records, and matched as ``compare`` does; one of them has another attention. Printed
are processor time, peak memory beyond that of the passes, and the growth from half as many.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import numpy as np
from memory_runs import array_tensor, memory_operation, run

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.dumps.tensors import Identity
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.program.one_pass import Pass

WIDTH, INNER, TOKENS = 64, 160, 7
LIMIT_SECONDS, LIMIT_MB, LIMIT_GROWTH = 30, 400, 2.2


class Decoder:
    """Writes down what a decoder would call, value by value."""

    def __init__(self, fused: bool) -> None:
        self._fused = fused
        self._storages = 0
        self._calls: dict[str, int] = {}
        self.operations: list[Operation] = []

    def value(self, width: int) -> Tensor:
        """A new value ``[1, tokens, width]``."""
        self._storages += 1
        shape = (1, TOKENS, width)
        array = np.broadcast_to(np.float32(0), shape)
        strides = (TOKENS * width, width, 1)
        identity = Identity(self._storages, 0, 0, strides)
        return replace(array_tensor("out", 0, array, "output"), identity=identity)

    def call(self, name: str, kind: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """One call; a module's comes before those of its operators."""
        number = self._calls.get(name, 0)
        self._calls[name] = number + 1
        sources = [
            replace(tensor, role="in", index=place, stem=f"input_{place}")
            for place, tensor in enumerate(inputs)
        ]
        self.operations.append(
            memory_operation(
                kind, (len(self.operations),), sources, outputs, given_name=name, call=number
            )
        )

    def operator(self, path: str, kind: str, inputs: list[Tensor], width: int) -> Tensor:
        """A single operator within a module."""
        result = self.value(width)
        self.call(f"{path}.aten.{kind}", f"aten.{kind}", inputs, [result])
        return result

    def module(self, path: str, kind: str, source: Tensor, width: int, inner: list[str]) -> Tensor:
        """A module and the operators in it, one after the other."""
        place = len(self.operations)
        value = source
        for operator in inner:
            value = self.operator(path, operator, [value], width)
        self.call(path, kind, [source], [value])
        self.operations.insert(place, self.operations.pop())
        return value

    def layer(self, number: int, source: Tensor) -> Tensor:
        """A decoder layer."""
        path = f"root.model.layers.{number}"
        place = len(self.operations)
        norm = ["pow.Tensor_Scalar", "mean.dim", "add.Scalar", "rsqrt.default", "mul.Tensor"]
        linear = ["t.default", "mm.default", "view.default"]
        normed = self.module(f"{path}.input_layernorm", "RMSNorm", source, WIDTH, norm)
        heads = []
        for name in ("q_proj", "k_proj", "v_proj"):
            made = self.module(f"{path}.self_attn.{name}", "Linear", normed, WIDTH, linear)
            cosine = self.operator(f"{path}.self_attn", "mul.Tensor", [made], WIDTH)
            heads.append(self.operator(f"{path}.self_attn", "add.Tensor", [made, cosine], WIDTH))
        if self._fused:
            mixed = self.operator(f"{path}.self_attn", "sdpa.default", heads, WIDTH)
        else:
            mixed = heads[0]
            for kind, other in (("bmm.default", 1), ("_softmax.default", -1), ("bmm.default", 2)):
                inputs = [mixed] if other < 0 else [mixed, heads[other]]
                mixed = self.operator(f"{path}.self_attn", kind, inputs, WIDTH)
        made = self.module(f"{path}.self_attn.o_proj", "Linear", mixed, WIDTH, linear)
        hidden = self.operator(path, "add.Tensor", [source, made], WIDTH)
        normed = self.module(f"{path}.post_attention_layernorm", "RMSNorm", hidden, WIDTH, norm)
        gate = self.module(f"{path}.mlp.gate_proj", "Linear", normed, INNER, linear)
        up = self.module(f"{path}.mlp.up_proj", "Linear", normed, INNER, linear)
        active = self.operator(f"{path}.mlp", "silu.default", [gate], INNER)
        product = self.operator(f"{path}.mlp", "mul.Tensor", [active, up], INNER)
        made = self.module(f"{path}.mlp.down_proj", "Linear", product, WIDTH, linear)
        result = self.operator(path, "add.Tensor", [hidden, made], WIDTH)
        self.call(path, "DecoderLayer", [source], [result])
        self.operations.insert(place, self.operations.pop())
        return result


def decoder(operations: int, *, fused: bool) -> Pass:
    """A pass of about so many operations."""
    found = Decoder(fused)
    value = found.value(WIDTH)
    number = 0
    while len(found.operations) < operations:
        value = found.layer(number, value)
        number += 1
    return run("torch", found.operations)


def matched(golden: Pass, mine: Pass) -> tuple[float, float, int]:
    """Processor seconds, peak MB, and the number of pairs."""
    gc.collect()
    start = time.process_time()
    pairs = sum(isinstance(each, Match) for each in match_runs(golden, mine, MatchOptions()))
    seconds = time.process_time() - start
    tracemalloc.start()
    match_runs(golden, mine, MatchOptions())
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak, pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="how often the number is halved")
    chosen = parser.parse_args()
    before = 0.0
    for place in reversed(range(chosen.rounds)):
        count = chosen.operations >> place
        golden, mine = decoder(count, fused=False), decoder(count, fused=True)
        seconds, peak, pairs = matched(golden, mine)
        growth = f"{seconds / before:.2f}" if before else "-"
        print(
            f"{len(golden.operations):>8} operations  {pairs:>8} pairs  {seconds:7.2f} s "
            f"(limit {LIMIT_SECONDS})  {peak:7.1f} MB (limit {LIMIT_MB})  "
            f"growth {growth} (limit {LIMIT_GROWTH})",
            flush=True,
        )
        before = seconds


if __name__ == "__main__":
    main()
