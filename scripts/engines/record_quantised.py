"""Records products with quantised weights: ``record_quantised.py FOLDER``.

Each is one module of the library that made it, run on a CPU: ``TorchLinear`` of GPTQModel 7.7,
``WQLinear_GEMM`` of AutoAWQ 0.2.9, and ``Linear`` with an ``MXTensor`` of torchao 0.18, which also
rounds its input. Writes ``quantised.tar.xz``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from packing import pack
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook

WIDTH, OUT, GROUP = 128, 64, 32


def _groups(weight: Tensor, bits: int, *, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scales and zeros ``[OUT, groups]`` of a weight ``[OUT, WIDTH]``."""
    whole = weight.float().view(OUT, -1, GROUP)
    if symmetric:
        scale = whole.abs().amax(-1) / (2 ** (bits - 1) - 1)
        return scale.half(), torch.full_like(scale, 2 ** (bits - 1))
    low, high = whole.amin(-1), whole.amax(-1)
    scale = (high - low) / (2**bits - 1)
    return scale.half(), torch.round(-low / scale)


def gptq(bits: int, *, symmetric: bool) -> nn.Module:
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    plain = nn.Linear(WIDTH, OUT).half()
    scale, zero = _groups(plain.weight, bits, symmetric=symmetric)
    order = torch.randperm(WIDTH) // GROUP if symmetric else torch.arange(WIDTH) // GROUP
    made = TorchLinear(
        bits=bits, group_size=GROUP, sym=symmetric, desc_act=True,
        in_features=WIDTH, out_features=OUT, bias=True,
    )  # fmt: skip
    made.pack(plain, scale, zero.int(), order.int())
    made.post_init()
    made.optimized = True  # as it stands, not compiled
    return made


def awq() -> nn.Module:
    from awq.modules.linear.gemm import WQLinear_GEMM

    plain = nn.Linear(WIDTH, OUT).half()
    scale, zero = (each.t().contiguous() for each in _groups(plain.weight, 4, symmetric=False))
    return WQLinear_GEMM.from_linear(plain, 4, GROUP, False, scale, zero.half())


def microscaled(kind: torch.dtype, mode: str) -> nn.Module:
    from torchao.prototype.mx_formats.inference_workflow import (
        MXDynamicActivationMXWeightConfig as Config,
    )
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common import KernelPreference

    made = nn.Sequential(nn.Linear(WIDTH, OUT).bfloat16())
    how = {"activation_dtype": kind, "weight_dtype": kind}
    emulated = KernelPreference.EMULATED
    modes = ScaleCalculationMode[mode]
    quantize_(made, Config(**how, kernel_preference=emulated, scaling_mode=modes))
    return made[0]


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "gptq": lambda: gptq(4, symmetric=True),
    "gptq-8-bits": lambda: gptq(8, symmetric=True),
    "gptq-asymmetric": lambda: gptq(4, symmetric=False),
    "awq": awq,
    "mxfp4": lambda: microscaled(torch.float4_e2m1fn_x2, "FLOOR"),
    "mxfp8": lambda: microscaled(torch.float8_e4m3fn, "RCEIL"),
}


def record(folder: Path, name: str) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(MAKERS[name]().eval())
    config = DumpConfig(dump_path=folder / name, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(torch.randn(2, 5, WIDTH).to(torch.bfloat16 if name.startswith("mx") else torch.half))


def main(output: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in MAKERS:
            record(folder, name)
        pack(folder, list(MAKERS), output / "quantised.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
