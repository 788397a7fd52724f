"""Calls that ``generate`` makes of one prompt in other ways and types, and with adapters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matching_truth.adapters import has_peft, merge_peft, with_peft
from torch import nn

from ait_llm.dump.api import PrecisionDebugger
from healthy_runs.any_family import model_of
from healthy_runs.model import Healthy, kept

# Windows and sinks, positions by distance, experts, scans.
_FAMILIES = (
    *("llama", "gpt2", "opt", "bloom", "gemma2", "gpt_oss", "mixtral", "qwen2_moe", "granitemoe"),
    "mamba",
)
_WITHOUT_CHUNKS = ("mamba",)
_TOKENS = 3
_PROMPT = torch.arange(5, 16)[None]
Change = Callable[[nn.Module], nn.Module]


def _padded() -> dict[str, Any]:
    """The prompt on the right of a batch, beside a longer one."""
    ids = torch.zeros(2, _PROMPT.shape[1] + 3, dtype=torch.long)
    ids[0, 3:], ids[1] = _PROMPT[0], torch.arange(20, 20 + ids.shape[1])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


_WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: {"input_ids": _PROMPT},
    "no-cache": lambda: {"input_ids": _PROMPT, "use_cache": False},
    "chunks": lambda: {"input_ids": _PROMPT, "prefill_chunk_size": 4},
    "padded": _padded,
}


def _captured(family: str, way: str, change: Change | None, dump: Path) -> None:
    model: Any = model_of("CAUSAL_LM", family, "eager", torch.float32)
    if change is not None:
        changed: Any = change(model).eval()
        # what wraps a model is not called by its ``generate``
        model = changed.get_base_model() if hasattr(changed, "get_base_model") else changed
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(dump), task="tensor", level="mix")
    handles = [
        model.register_forward_pre_hook(lambda *_: debugger.start(model)),
        model.register_forward_hook(lambda *_: (debugger.stop(), debugger.step(), None)[-1]),
    ]
    model.generation_config.update(eos_token_id=None, pad_token_id=0)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.generate(**_WAYS[way](), max_new_tokens=_TOKENS, do_sample=False)
    finally:
        for handle in handles:
            handle.remove()
        PrecisionDebugger._reset()


def _run(family: str, way: str, change: Change | None = None, called: str = "") -> partial[Path]:
    make = partial(_captured, family, way, change)
    return partial(kept, "-".join(filter(None, ("drive", family, way, called))), make)


def _merged(model: nn.Module) -> nn.Module:
    return merge_peft(with_peft(model), is_exact=True)


def _cast(model: nn.Module) -> nn.Module:
    """The same under autocast."""
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    return model


_TYPES: dict[str, Change] = {
    "bfloat16": nn.Module.bfloat16,
    "float16": nn.Module.half,
    "autocast": _cast,
}


def pairs() -> Iterator[Healthy]:
    """Each way and type against the plain one, both ways round."""
    for family in _FAMILIES:
        plain = _run(family, "plain")
        for way in ("no-cache", "chunks", "padded"):
            if way == "chunks" and family in _WITHOUT_CHUNKS:
                continue
            other = _run(family, way)
            yield Healthy(f"r/{family}/{way}", plain, other, table=True)
            yield Healthy(f"r/{family}/{way}-plain", other, plain, table=True)
        for name, change in _TYPES.items():
            other = _run(family, "plain", change, name)
            yield Healthy(f"r/{family}/{name}", plain, other, table=True)
            yield Healthy(f"r/{family}/{name}-plain", other, plain, table=True)
    if has_peft():
        beside = _run("llama", "plain", with_peft, "peft")
        merged = _run("llama", "plain", _merged, "merged")
        yield Healthy("r/llama/peft-merged", beside, merged, table=True)
        yield Healthy("r/llama/merged-peft", merged, beside, table=True)
