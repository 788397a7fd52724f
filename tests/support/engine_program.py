"""A scheduler for the runner that stands in for vLLM's: requests come and are answered."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from engine_model import LlamaForCausalLM
from torch.nn.modules import module as torch_hooks

from ait_llm import DumpConfig, register_hook
from ait_llm.core import StepRange
from ait_llm.dump.inject.root_finder import RootFinder
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch.session import sessions

STAND_IN = Path(__file__).resolve().parent / "engine_stand_in"
PROMPTS = {
    "a-1": [17, 63, 5, 88, 41, 9, 3],
    "b-2": [9, 64, 50],
    "c-3": [33, 71, 28, 12],
    "d-4": [17, 63, 5, 88, 7],
}
"""The last begins as the first does, so that a prefix cache has four of its tokens."""
BUDGET = 8
"""Tokens that a pass computes at most: the first two prompts do not fit into one."""


def golden_model(dtype: torch.dtype = torch.float32) -> transformers.LlamaForCausalLM:
    """A tiny Llama with random weights that make a difference."""
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=96,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return _drawn(transformers.LlamaForCausalLM(config).eval()).to(dtype)


def golden_mixtral() -> transformers.MixtralForCausalLM:
    """A tiny Mixtral; the router of its first layer gives two of the four experts equal scores."""
    config = transformers.MixtralConfig(
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=96,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        bos_token_id=1,
        eos_token_id=None,
    )
    model = _drawn(transformers.MixtralForCausalLM(config).eval())
    generator = torch.Generator().manual_seed(3)  # ties in the middle of prompts, none in c-3
    with torch.no_grad():
        router = model.model.layers[0].mlp.gate.weight
        router.copy_(torch.randn(router.shape, generator=generator) * 0.12)
        router[2] = router[1]
    return model


def _drawn(model: Any) -> Any:
    """The model with random weights that make a difference."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * 0.12
            parameter.copy_(drawn + (parameter.ndim == 1))
    return model


@dataclass
class Server:
    """Requests that are served together; one comes with each pass."""

    runner: Any
    module: Any
    prompts: dict[str, list[int]] = field(default_factory=lambda: dict(PROMPTS))
    tokens: int = 3
    answers: dict[str, list[int]] = field(default_factory=dict)

    def serve(self, *, cancel: str = "") -> dict[str, list[int]]:
        """Answer all requests; one may be cancelled after its first token."""
        computed: dict[str, int] = {}
        finished: set[str] = set()
        waiting = list(self.prompts)
        while waiting or computed:
            output = self.module.SchedulerOutput(finished_req_ids=finished)
            budget = BUDGET
            for name in list(computed):
                total = len(self.prompts[name]) + len(self.answers[name])
                count = min(total - computed[name], budget)
                if count:
                    output.scheduled_cached_reqs.req_ids.append(name)
                    output.scheduled_cached_reqs.num_computed_tokens.append(computed[name])
                    output.num_scheduled_tokens[name] = count
                    budget -= count
            for name in waiting[:2]:
                cached = 4 if name == "d-4" and "a-1" in self.answers else 0
                count = min(len(self.prompts[name]) - cached, budget)
                if not count:
                    break
                if cached:
                    self.runner.model.cache.share("a-1", name, cached)
                new = self.module.NewRequestData(name, self.prompts[name], cached)
                output.scheduled_new_reqs.append(new)
                output.num_scheduled_tokens[name] = count
                budget -= count
                waiting.remove(name)
                computed[name] = cached
                self.answers[name] = []
            self.runner.execute_model(output)
            result = self.runner.sample_tokens(None)
            finished = set()
            for name, chosen in zip(result.req_ids, result.sampled_token_ids, strict=True):
                computed[name] += output.num_scheduled_tokens[name]
                self.answers[name] += chosen
                if len(self.answers[name]) == self.tokens or (chosen and name == cancel):
                    finished.add(name)
                    del computed[name]
        self.runner.execute_model(self.module.SchedulerOutput(finished_req_ids=finished))
        return self.answers


@contextmanager
def server(model: Any, **options: Any) -> Iterator[Server]:
    """A server whose runner has warmed up; its modules are imported now, and gone afterwards."""
    sys.path.insert(0, str(STAND_IN))
    try:
        module = importlib.import_module("vllm.v1.worker.gpu_model_runner")
        runner = module.GPUModelRunner(LlamaForCausalLM(model))
        runner.profile_run()
        yield Server(runner, module, **options)
    finally:
        sys.path.remove(str(STAND_IN))
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]


@contextmanager
def injected(settings: TorchSettings) -> Iterator[None]:
    """The capture of programs that do not know of it, in this process; sealed afterwards."""
    tables = (torch_hooks._global_forward_pre_hooks, torch_hooks._global_forward_hooks)
    before = [dict(table) for table in tables]
    called = dict(torch_hooks._global_forward_hooks_always_called)
    compile_module = torch.nn.Module.compile
    finders = list(sys.meta_path)
    RootFinder(settings).install()
    try:
        yield
    finally:
        sessions.close_all()
        torch.nn.Module.compile = compile_module  # type: ignore[method-assign]
        sys.meta_path[:] = finders
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        torch_hooks._global_forward_hooks_always_called.clear()
        torch_hooks._global_forward_hooks_always_called.update(called)


def capture_server(folder: Path, model: Any, **settings: Any) -> dict[str, list[int]]:
    """Answers of a captured server."""
    settings = {"steps": StepRange(((0, 1 << 40),)), **settings}
    with injected(TorchSettings(output=folder, **settings)), server(model) as made:
        return made.serve()


def capture_golden(folder: Path, model: Any, prompts: dict[str, list[int]], tokens: int) -> None:
    """The same requests, one after the other, by ``generate`` of transformers."""
    config = DumpConfig(str(folder), token_range=range(1 << 20), weights=True)
    with torch.no_grad(), register_hook(model, config):
        for prompt in prompts.values():
            model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False)
