"""Records products of bitsandbytes, where that is installed: ``record_bitsandbytes.py FOLDER``.

Each is one module of bitsandbytes 0.50 on a CPU. ``packed`` ran with the kernel of processors that
have AVX512-BF16, which the others leave aside. Writes ``bitsandbytes.tar.xz``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import bitsandbytes
import torch
from packing import pack
from torch import nn

from ait_llm import DumpConfig, register_hook

WIDTH, OUT = 128, 64
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
FOUR: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "nf4": (BF16, {"quant_type": "nf4", "compress_statistics": False}),
    "nf4-nested": (FP32, {"quant_type": "nf4", "compress_statistics": True}),
    "fp4-nested": (BF16, {"quant_type": "fp4", "compress_statistics": True}),
    "fp4-in-float16": (
        FP32,
        {"quant_type": "fp4", "compress_statistics": False, "compute_dtype": FP16},
    ),
    "packed": (BF16, {"quant_type": "nf4", "compress_statistics": True, "compute_dtype": BF16}),
}
EIGHT = {"int8": (FP16, 6.0), "int8-bfloat16": (BF16, 6.0), "int8-float32": (FP32, 0.0)}


def made(name: str) -> tuple[nn.Module, torch.dtype]:
    if name in FOUR:
        dtype, how = FOUR[name]
        module: Any = bitsandbytes.nn.Linear4bit(WIDTH, OUT, **how)
        if name != "packed":
            module.support_avx512bf16_for_cpu = False
    else:
        dtype, threshold = EIGHT[name]
        module = bitsandbytes.nn.Linear8bitLt(
            WIDTH, OUT, has_fp16_weights=False, threshold=threshold
        )
    return module.to("cpu"), dtype


def main(output: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in (*FOUR, *EIGHT):
            torch.manual_seed(7)
            module, dtype = made(name)
            x = torch.randn(2, 5, WIDTH)
            x[0, 3, 17], x[1, 2, 80] = 9.0, -7.5  # large ones
            model = nn.Sequential(module).eval()
            config = DumpConfig(dump_path=folder / name, weights=True)
            with torch.no_grad(), register_hook(model, config):
                model(x.to(dtype))
        pack(folder, [*FOUR, *EIGHT], output / "bitsandbytes.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
