"""Small models and a short way to capture and read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps import TorchDump
from ait_llm.dumps.operations import Operation


class Returns(nn.Module):
    """Returns what the given function makes of its input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


class Decoder(nn.Module):
    """A toy of a decoder: an embedding, numbered layers, and a head."""

    def __init__(self, layers: int = 3, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embed = nn.Embedding(16, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, 16, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def ids(length: int = 4, batch: int = 1) -> torch.Tensor:
    return torch.arange(batch * length).reshape(batch, length) % 16


def capture(model: nn.Module, out: Path, *args: Any, **config: Any) -> TorchDump:
    """Run ``model(*args)`` once below a capture and open what it left."""
    with register_hook(model, DumpConfig(str(out), **config)), torch.no_grad():
        model(*args)
    return opened(out)


def opened(out: Path) -> TorchDump:
    dump = open_dump(out)
    assert isinstance(dump, TorchDump)
    return dump


def calls(dump: TorchDump, step: int | None = None) -> dict[str, Operation]:
    """Calls by path; ``path@n`` for later calls of a step, ``step:path`` if step is None."""
    found = {}
    for call in dump.operations(step=step):
        name = call.name + (f"@{call.call}" if call.call else "")
        found[name if step is not None else f"{call.step}:{name}"] = call
    return found


def values(call: Operation) -> dict[str, torch.Tensor]:
    """Saved tensors by file stem."""
    return {tensor.stem: tensor.torch() for tensor in call.tensors}


def ledger_lines(out: Path) -> list[dict[str, Any]]:
    """All lines of all ledgers."""
    lines = []
    for path in sorted((out / "ait_dump" / "ledger").glob("*.jsonl")):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def hook_state(model: nn.Module) -> dict[str, Any]:
    """Everything that registering a hook could change."""
    return {
        name: (
            sorted(vars(module)),
            [len(value) for key, value in sorted(vars(module).items()) if "_hooks" in key],
        )
        for name, module in model.named_modules()
    }
