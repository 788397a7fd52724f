"""Records ``FP8Linear`` of transformers on a CPU: ``record_fp8.py KERNELS FOLDER``.

The kernel that transformers fetches for it runs in the interpreter of Triton. ``KERNELS`` is a copy
of ``finegrained-fp8/torch-ext`` of the repository ``kernels-community`` of Hugging Face. Writes
``fp8.tar.xz``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import interpreted  # noqa: F401  # before triton
import torch
import torch.library
import triton
from packing import pack
from torch import nn
from transformers.integrations import finegrained_fp8

from ait_llm import DumpConfig, register_hook

WIDTH, OUT = 256, 128
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
CASES: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "blocks": (BF16, {"block_size": [128, 128]}),
    "blocks-bias": (FP16, {"block_size": [128, 128], "has_bias": True}),
    "whole": (BF16, {"block_size": None}),
    "float32": (FP32, {"block_size": [128, 128]}),
}


class Untuned:
    """A kernel with tiles that nobody has measured."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        names = {"BLOCK_SIZE_N", "BLOCK_SIZE_K"} & {*kernel.arg_names}
        self._tiles = dict.fromkeys(names, 64)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        run = self._kernel[grid]
        return lambda *values, **named: run(*values, **{**self._tiles, **named})


def _untuned(*_: object, **__: object) -> Callable[[Any], Any]:
    return Untuned


def kernel(folder: Path) -> ModuleType:
    """The kernel, with nothing that looks for a device."""
    triton.autotune = _untuned
    torch.library.wrap_triton = lambda function: function
    package = ModuleType("finegrained_fp8")
    package.__path__ = [str(folder / "finegrained_fp8")]
    names: Any = ModuleType("finegrained_fp8._ops")
    names.add_op_namespace_prefix = lambda name: f"recorded_fp8::{name}"
    names.ops = torch.ops.recorded_fp8
    tuner: Any = ModuleType("finegrained_fp8.bayesian_autotuner")
    tuner.bayesian_autotune = _untuned
    sys.modules |= {each.__name__: each for each in (package, names, tuner)}
    from finegrained_fp8 import matmul

    return matmul


def record(folder: Path, name: str) -> None:
    torch.manual_seed(len(name))
    dtype, how = CASES[name]
    module = finegrained_fp8.FP8Linear(WIDTH, OUT, **how)
    with torch.no_grad():
        module.weight.copy_(torch.randn(OUT, WIDTH))
        module.weight_scale_inv.copy_(torch.rand(module.weight_scale_inv.shape) * 0.02 + 0.01)
        if module.bias is not None:
            module.bias.normal_()
    model = nn.Sequential(module).eval()
    x = torch.randn(2, 5, WIDTH).to(dtype)
    config = DumpConfig(dump_path=folder / name, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(x)


def main(kernels: Path, output: Path) -> None:
    run = kernel(kernels)
    finegrained_fp8._FINEGRAINED_FP8 = finegrained_fp8.FineGrainedFP8(run.matmul_2d, None, None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in CASES:
            record(folder, name)
        pack(folder, list(CASES), output / "fp8.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
