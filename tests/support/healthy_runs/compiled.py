"""Compiled programs: Inductor against FX nodes, and the graph engine against both."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
import transformers
from compiled_dumps import CompiledRun, request
from compiled_models import Cache, Llama
from ge_faults import FaultyDump
from matching_truth import families
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump import fx_backend, inductor_capture
from ait_llm.dump.fx.session import sessions
from healthy_runs.model import Healthy, Source, kept

_DATA = Path(__file__).resolve().parents[2] / "data"
_RECORDED = {
    "fused": _DATA / "ge_dump" / "ge_run_fused.tar.xz",
    "unfused": _DATA / "ge_dump" / "ge_run_fusion_off.tar.xz",
    "fx": _DATA / "torchair" / "fx_fp16_dynamic.tar.xz",
}
Calls = Sequence[tuple[Any, ...]]
Make = Callable[[], nn.Module]


class StaticDecoder(nn.Module):
    """A Llama of ``transformers`` with a cache of fixed size, a few tokens for each call."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = families.make("llama").to(dtype)
        self.cache = transformers.StaticCache(self.model.config, max_cache_len=16)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        found = self.model(
            input_ids=ids, position_ids=positions[None], past_key_values=self.cache, use_cache=True
        )
        logits: Tensor = found.logits
        return logits


class Broken(nn.Module):
    """A decoder whose code the compiler takes in three pieces, a graph for each."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.model, self.after = nn.Embedding(32, 16), Llama(), nn.Linear(32, 16)

    def forward(self, ids: Tensor) -> Tensor:
        first = torch.tanh(self.before(ids))
        torch._dynamo.graph_break()
        logits = self.model(ids)
        torch._dynamo.graph_break()
        return self.after(torch.softmax(logits, -1)) + first


def _interrupted() -> nn.Module:
    """A Llama of ``transformers`` that the compiler leaves in each layer, before its MLP."""
    model = families.make("llama")
    for layer in model.model.layers:
        forward = layer.mlp.forward

        def interrupted(x: Tensor, forward: Callable[[Tensor], Tensor] = forward) -> Tensor:
            torch._dynamo.graph_break()
            return forward(x)

        layer.mlp.forward = interrupted
    return model


class Generates(nn.Module):
    """A Llama that is compiled itself, and called for each token by ``generate()``.

    Args:
        model: of ``transformers``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def _steps() -> Calls:
    """A prompt and three tokens after it."""
    prompt = (torch.tensor([[11, 47, 5, 88, 29]]), torch.arange(5))
    tokens = [(torch.tensor([[word]]), torch.tensor([5 + at])) for at, word in enumerate((3, 9, 4))]
    return [prompt, *tokens]


def _dense(family: str, dtype: torch.dtype) -> nn.Module:
    return families.make(family, attention="sdpa").to(dtype)


def _typed(make: Make, dtype: torch.dtype) -> nn.Module:
    return make().to(dtype)


_LENGTHS = [(torch.arange(size),) for size in (5, 7, 4)]
_PROMPTS = [(torch.arange(3, 3 + size)[None],) for size in (5, 7, 4)]
_GENERATED = [(torch.tensor([[11, 47, 5, 88, 29]]),)]
PROGRAMS: dict[str, tuple[Make, Calls, dict[str, Any]]] = {
    "llama-float32": (Llama, _LENGTHS[:1], {}),
    "llama-bfloat16": (partial(_typed, Llama, torch.bfloat16), _LENGTHS[:1], {}),
    "llama-dynamic": (Llama, _LENGTHS, {"dynamic": True}),
    "llama-recompiled": (Llama, _LENGTHS, {"dynamic": False}),
    "cache": (
        Cache,
        [(torch.ones(4, 8), torch.arange(4)), (torch.ones(4, 8), torch.arange(4))],
        {},
    ),
    "graph-breaks": (Broken, _LENGTHS[:1], {"dynamic": False}),
    "static-cache": (StaticDecoder, _steps(), {"dynamic": False}),
    "static-cache-bfloat16": (
        partial(StaticDecoder, torch.bfloat16),
        _steps(),
        {"dynamic": False},
    ),
    "llama-breaks": (_interrupted, _PROMPTS[:1], {"dynamic": False}),
    "generate": (lambda: Generates(families.make("llama")), _GENERATED, {"dynamic": True}),
    "generate-breaks": (lambda: Generates(_interrupted()), _GENERATED, {"dynamic": True}),
    **{
        f"{family}-transformers": (
            partial(_dense, family, torch.float32),
            _PROMPTS[:1],
            {"dynamic": False},
        )
        for family in ("llama", "qwen3", "gpt2")
    },
    "llama-transformers-float16": (
        partial(_dense, "llama", torch.float16),
        _PROMPTS[:1],
        {"dynamic": False},
    ),
    "llama-transformers-dynamic": (
        partial(_dense, "llama", torch.float32),
        _PROMPTS,
        {"dynamic": True},
    ),
}


def _called(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    if isinstance(model, Generates):
        options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        model.model.generate(*inputs, **options)
    else:
        model(*inputs)


def _compiled(program: str, tool: str, dump: Path) -> None:
    make, calls, options = PROGRAMS[program]
    make_backend = {
        "fx": fx_backend.capture,
        "inductor": partial(inductor_capture.capture, weights=True),
    }
    backend = make_backend[tool](dump)
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().eval()
    if isinstance(model, Generates):
        inner = model.model
        inner.forward = torch.compile(inner.forward, backend=backend, **options)
    else:
        model = torch.compile(model, backend=backend, **options)
    with torch.no_grad():
        for inputs in calls:
            _called(model, inputs)
    torch._dynamo.reset()
    session = sessions._open.pop(dump, None)
    if session is not None:
        session.close("exit")


def _eager(program: str, dump: Path, *, operators: bool) -> None:
    make, calls, _ = PROGRAMS[program]
    torch.manual_seed(0)
    model = make().eval()
    config = DumpConfig(
        dump_path=dump, token_range=range(16), operators=operators, weights=operators
    )
    hooked = model.model if isinstance(model, Generates) else model
    with torch.no_grad(), register_hook(hooked, config):
        for inputs in calls:
            _called(model, inputs)


def _of(program: str, tool: str) -> Source:
    make: Callable[[Path], None]
    if tool in ("op", "module"):
        make = partial(_eager, program, operators=tool == "op")
    else:
        make = partial(_compiled, program, tool)
    return partial(kept, f"compiled-{program}-{tool}", make)


def inductor() -> Iterator[Healthy]:
    """Kernels against nodes, and both against the program as it was written."""
    for program in PROGRAMS:
        fx, mine = _of(program, "fx"), _of(program, "inductor")
        yield Healthy(f"j/{program}/fx", fx, mine, alone=True)
    for program in (
        *("llama-float32", "static-cache", "gpt2-transformers"),
        *("graph-breaks", "llama-breaks", "generate", "generate-breaks"),
    ):
        for tool in ("module", "op"):
            yield Healthy(f"j/{program}/{tool}-fx", _of(program, tool), _of(program, "fx"))
            yield Healthy(
                f"j/{program}/{tool}-inductor", _of(program, tool), _of(program, "inductor")
            )


def _recorded(name: str, folder: Path) -> Path:
    def make(dump: Path) -> None:
        with tarfile.open(_RECORDED[name]) as archive:
            archive.extractall(dump, filter="data")

    [found] = kept(f"compiled-recorded-{name}", make, folder).iterdir()
    return found


def _computed(name: str, folder: Path) -> Path:
    """A recorded dump with the numbers of a device, which adds up in float32.

    Those of the recorded one were added up in float16.
    """

    def make(dump: Path) -> None:
        with tarfile.open(_RECORDED[name]) as archive:
            archive.extractall(dump, filter="data")
        (root,) = dump.iterdir()
        faulty = FaultyDump(root)
        for step in range(faulty.steps):
            faulty.inject(step, "GatherV2", lambda values: values)

    [found] = kept(f"compiled-computed-{name}", make, folder).iterdir()
    return found


def _simulated(kind: str, narrow: type, folder: Path) -> Path:
    def make(dump: Path) -> None:
        run = CompiledRun(dump, narrow)
        run.graph()
        for step in range(3):
            if kind == "fx":
                run.fx(request(step), step=step, call=step)
            else:
                run.ge(request(step), step=step, call=step, fused=kind == "fused")

    return kept(f"compiled-simulated-{kind}-{narrow.__name__}", make, folder)


def engine() -> Iterator[Healthy]:
    """The graph engine, with and without fusion, against nodes and against itself."""
    ways = [("fx", "fused"), ("fx", "unfused"), ("unfused", "fused"), ("fused", "fx")]
    for golden, mine in ways:
        yield Healthy(
            f"k/recorded-float16/{golden}-{mine}",
            partial(_recorded, golden),
            partial(_recorded, mine),
        )
        if "fx" not in (golden, mine):
            yield Healthy(
                f"k/computed-float16/{golden}-{mine}",
                partial(_computed, golden),
                partial(_computed, mine),
                alone=True,
            )
        for narrow in (np.float32, ml_dtypes.bfloat16, np.float16):
            yield Healthy(
                f"k/simulated-{narrow.__name__}/{golden}-{mine}",
                partial(_simulated, golden, narrow),
                partial(_simulated, mine, narrow),
                # simulated nodes of a narrow type do what no node does
                alone=narrow is np.float32 or "fx" not in (golden, mine),
            )
