"""Records layers of experts of vLLM, where that is installed: ``record_fused_experts.py FOLDER``.

Each is one ``MoERunner`` of vLLM 0.32 for CPUs, run alone with random weights, as the engine
itself prepares and calls it. ``tiles`` has the weights of another in the form of the kernel that
needs tiles (AMX), which vLLM's own operator made of them. Writes ``fused-experts.tar.xz``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from packing import pack
from torch import Tensor, nn
from vllm._custom_ops import cpu_prepack_moe_weight
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe.layer import FusedMoEFactory

from ait_llm import DumpConfig, register_hook

EXPERTS, HIDDEN, INNER, TOKENS = 8, 32, 32, 12
BF16, FP32 = torch.bfloat16, torch.float32
GROUPS = {"use_grouped_topk": True, "num_expert_group": 4, "topk_group": 2}
CASES: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "softmax": (BF16, {"top_k": 2}),
    "softmax-float32": (FP32, {"top_k": 2}),
    "not-to-one": (BF16, {"top_k": 3, "renormalize": False}),
    "gelu-bias": (FP32, {"top_k": 2, "activation": "gelu", "has_bias": True}),
    "gelu-tanh": (BF16, {"top_k": 1, "activation": "gelu_tanh"}),
    "groups": (BF16, {"top_k": 3, **GROUPS}),
    "groups-bias": (
        FP32,
        {"top_k": 3, **GROUPS, "scoring_func": "sigmoid", "routed_scaling_factor": 2.5},
    ),
    "interleaved": (BF16, {"top_k": 2, "activation": "swigluoai", "has_bias": True}),
}


class Layer(nn.Module):
    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, x: Tensor, logits: Tensor) -> Tensor:
        return self.experts(x, logits)


def record(folder: Path, name: str, config: VllmConfig) -> dict[str, Tensor]:
    torch.manual_seed(len(name))
    dtype, how = CASES[name]
    torch.set_default_dtype(dtype)
    if name == "groups-bias":
        bias = nn.Parameter(0.1 * torch.randn(EXPERTS), requires_grad=False)
        how = {**how, "e_score_correction_bias": bias}
    runner = FusedMoEFactory(
        num_experts=EXPERTS, hidden_size=HIDDEN, intermediate_size=INNER, params_dtype=dtype,
        prefix=name, **how,
    )  # fmt: skip
    held = runner.routed_experts
    with torch.no_grad():
        for key, parameter in held.named_parameters():
            if "e_score" not in key:
                parameter.normal_(0, 0.2)
    plain = {key: value.clone() for key, value in held.named_parameters()}
    held.quant_method.process_weights_after_loading(held)
    model = Layer(runner)
    hook = register_hook(model, DumpConfig(dump_path=folder / name, weights=True))
    x, logits = torch.randn(TOKENS, HIDDEN), torch.randn(TOKENS, EXPERTS)
    with torch.inference_mode(), set_forward_context(None, config), hook:
        model(x, logits)
    return plain


def with_tiles(folder: Path, plain: dict[str, Tensor]) -> None:
    """The weights of a recording in the other form."""
    for name in ("w13_weight", "w2_weight"):
        (path,) = folder.rglob(f"*.{name}.pth")
        torch.save(cpu_prepack_moe_weight(plain[name], "amx"), path)
    (tree,) = folder.rglob("model_tree.json")
    text = tree.read_text().replace('"CPUUnquantizedExperts"', '"X86CPUUnquantizedExperts"')
    tree.write_text(json.dumps(json.loads(text)))


def main(output: Path) -> None:
    config = VllmConfig()
    with tempfile.TemporaryDirectory() as temporary, set_current_vllm_config(config):
        folder = Path(temporary)
        place = folder / f"group_{os.getpid()}"
        init_distributed_environment(1, 0, f"file://{place}", 0, "gloo")
        initialize_model_parallel(1, 1)
        for name in CASES:
            record(folder, name, config)
        CASES["tiles"] = CASES["softmax"]
        with_tiles(folder / "tiles", record(folder, "tiles", config))
        pack(folder, list(CASES), output / "fused-experts.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
