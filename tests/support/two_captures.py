"""One real program captured twice: module by module, and node by node of its graph."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from exported_models import CONFIGS
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump import fx_backend
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dump.fx.session import sessions

IDS = torch.arange(3, 14)[None]


def made(family: str, attention: str = "eager") -> nn.Module:
    """A small model of a family; no weight is all ones or zeros."""
    torch.manual_seed(0)
    config = CONFIGS[family]()
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            low, high = (-0.1, 0.1) if name.endswith("bias") else (0.5, 1.5)
            nn.init.uniform_(parameter, low, high)
    return model.eval()


def capture_modules(folder: Path, model: nn.Module, **config: object) -> Tensor:
    """The logits; the capture lies in ``folder``."""
    with torch.no_grad(), register_hook(model, DumpConfig(str(folder), **config)):
        logits: Tensor = model(input_ids=IDS, use_cache=False).logits
    return logits


def capture_nodes(folder: Path, model: nn.Module) -> Tensor:
    """The logits; the capture, which is sealed, lies in ``folder``."""
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend=fx_backend.capture(folder))
        logits: Tensor = compiled(input_ids=IDS, use_cache=False).logits
    torch._dynamo.reset()
    running = sessions._open.pop(folder, None)
    if running is not None:
        running.close("exit")
    return logits


def modules_of_nodes(folder: Path) -> dict[str, str]:
    """The module that each node was written in, as the compiler recorded it."""
    [file] = folder.rglob("graph_1/graph.json")
    nodes = json.loads(file.read_text())["nodes"]
    return {
        node["name"]: node["modules"][-1]["path"].replace("L['self']", "root")
        for node in nodes
        if node.get("modules")
    }


def capture_calls(folder: Path, model: nn.Module, *, level: str, task: str = "tensor") -> None:
    """Calls of functions (L1), of modules (L0) or of both (mix), as msprobe writes them."""
    debugger = PrecisionDebugger(task=task, level=level, dump_path=str(folder))
    with torch.no_grad():
        debugger.start(model)
        model(input_ids=IDS, use_cache=False)
        debugger.stop()
        debugger.step()
