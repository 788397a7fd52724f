"""What a capture costs a step of vLLM: module statistics, and while it is switched off.

    python scripts/bench/engine_overhead.py [--rounds N] [--clock wall]

Run it with a Python that has vLLM (``scripts/engines/run`` sets one up). A Llama of hidden size
1024 and 8 layers answers 32 requests at once, in one process and in eager mode. Three states take
turns in it, each round in another order, so that whatever else the machine does befalls all of
them: plain (the engine's own methods), off (attached, nothing captured) and statistics (those of
all modules). A turn is the decode steps of one batch. Of each round the median times of a step are
set in relation; the result is the median of the rounds. CPU time counts all threads of the process,
those that write included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATISTICS_TARGET, OFF_TARGET = 1.3, 1.02
_REQUESTS, _PROMPT, _TOKENS = 32, 16, 24


def checkpoint(folder: Path) -> Path:
    """A Llama with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8192,
        max_position_embeddings=512,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


class Engine:
    """An engine in this process, whose states can be changed."""

    def __init__(self, model: Path, output: Path, clock: Callable[[], float]) -> None:
        from vllm import LLM, SamplingParams
        from vllm.v1.worker import gpu_model_runner

        from ait_llm.core import StepRange
        from ait_llm.dump.inject.root_finder import RootFinder
        from ait_llm.dump.inject.settings import TorchSettings

        self._clock = clock
        self._channel = output / "channel"
        self._channel.mkdir(parents=True)
        os.environ["AIT_TORCH_CHANNEL"] = str(self._channel)
        self._kind: Any = gpu_model_runner.GPUModelRunner
        names = ("execute_model", "sample_tokens", "_dummy_run", "profile_run", "capture_model")
        self._own = {name: self._kind.__dict__[name] for name in names}
        settings = TorchSettings(
            output / "out", types=("torch-stats",), steps=StepRange(((0, 1 << 40),)), start=False
        )
        RootFinder(settings).install()
        self._wrapped = {name: self._kind.__dict__[name] for name in names}
        self._engine = LLM(
            model=str(model),
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="bfloat16",
            max_model_len=256,
            max_num_seqs=_REQUESTS,
            enable_prefix_caching=False,
        )
        self._settings = SamplingParams(
            max_tokens=_TOKENS, temperature=0, detokenize=False, ignore_eos=True
        )
        self._turn = 0

    def state(self, name: str) -> None:
        """Change to ``plain``, ``off`` or ``statistics``."""
        from ait_llm.dump.inject.switch import FILE, write_switch

        write_switch(self._channel / FILE, on=name == "statistics")
        for method, wrapped in self._wrapped.items():
            setattr(self._kind, method, wrapped)
        time.sleep(0.5)  # until the state before has written all that it had
        self.answer()  # the first pass follows the switch
        if name == "plain":
            for method, own in self._own.items():
                setattr(self._kind, method, own)

    def answer(self) -> list[float]:
        """Seconds of each decode step of one batch."""
        self._turn += 1
        engine = self._engine.llm_engine
        for number in range(_REQUESTS):
            prompt = [(self._turn * 31 + number * 7 + place) % 8000 for place in range(_PROMPT)]
            name = f"{self._turn}.{number}"
            engine.add_request(name, {"prompt_token_ids": prompt}, self._settings)
        times = []
        while engine.has_unfinished_requests():
            begun = self._clock()
            engine.step()
            times.append(self._clock() - begun)
        return times[2:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    options = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    names = ["plain", "off", "statistics"]
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        engine = Engine(checkpoint(Path(folder) / "model"), Path(folder) / "capture", clock)
        for _ in range(options.rounds):
            steps: dict[str, float] = {}
            for name in names:
                engine.state(name)
                steps[name] = statistics.median(engine.answer())
            rounds.append(steps)
            names = [*names[1:], names[0]]
        engine.state("off")
    ratios = {
        name: statistics.median(each[name] / each["plain"] for each in rounds)
        for name in ("off", "statistics")
    }
    times = {name: statistics.median(each[name] for each in rounds) for name in sorted(names)}
    result = {
        "clock": options.clock,
        "milliseconds": {name: round(1000 * each, 3) for name, each in times.items()},
        "ratios": {name: round(each, 3) for name, each in ratios.items()},
        "targets": {"off": OFF_TARGET, "statistics": STATISTICS_TARGET},
    }
    print(json.dumps(result))
    return int(ratios["off"] > OFF_TARGET or ratios["statistics"] > STATISTICS_TARGET)


if __name__ == "__main__":
    sys.exit(main())
