"""Records layers of experts of GPT-OSS in MXFP4: ``record_mxfp4_experts.py KERNELS FOLDER``.

The kernels that transformers fetches for them run in the interpreter of Triton, as for an A100.
``KERNELS`` is a copy of ``gpt-oss-triton-kernels/torch-ext`` of the repository
``kernels-community`` of Hugging Face. Writes ``mxfp4-experts.tar.xz``.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import interpreted
import torch
import triton
import triton.language as tl
from packing import pack
from torch import nn
from transformers import GptOssConfig
from transformers.integrations import mxfp4
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter
from triton.backends.compiler import GPUTarget

from ait_llm import DumpConfig, register_hook

HIDDEN, INNER, EXPERTS = 64, 96, 4
CASES = {"two-of-four": 2, "all": 4}
_HOST = {"num_warps", "num_stages", "arch"}  # what a compiler asks for


class Launcher:
    """A kernel with functions and tuples among its arguments, which the library writes out."""

    def __init__(
        self,
        kernel: Any,
        module: object,
        constants: Mapping[str, Any],
        tuples: Mapping[str, Sequence[str]],
        **_: object,
    ) -> None:
        self._kernel, self._constants, self._tuples = kernel, constants, tuples
        self._names = list(inspect.signature(kernel.fn).parameters)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def run(*values: Any, **named: Any) -> None:
            left = list(values)
            for name in self._names:
                if name in self._constants:
                    named[name] = self._constants[name]
                elif name in self._tuples:
                    named[name] = tuple(left.pop(0) for _ in self._tuples[name])
                elif left:
                    named[name] = left.pop(0)
            for name in _HOST - set(self._names):
                named.pop(name, None)
            self._kernel[grid](**named)

        return run


def library(folder: Path) -> Any:
    """The kernels, with the answers that a device would give."""
    sys.path.insert(0, str(folder))
    target = GPUTarget("cuda", 80, 32)
    answers = {"get_current_target": lambda: target, "get_current_device": lambda: 0}
    triton.runtime.driver.set_active(SimpleNamespace(**answers))
    known = {"multi_processor_count": 8, "shared_memory_per_block_optin": 166912}
    torch.cuda.get_device_capability = lambda *_: (8, 0)
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(**known)
    tl.extra.cuda.num_threads = lambda: 128
    import gpt_oss_triton_kernels as kernels

    for name, module in list(sys.modules.items()):
        if name.startswith(kernels.__name__) and hasattr(module, "MXFP_BLOCK_SIZE"):
            module.MXFP_BLOCK_SIZE = 32
    kernels.matmul_ogs.specialize = Launcher
    executor = interpreted.interpreter.GridExecutor
    own = kernels.tensor.Tensor

    def plain(value: Any) -> Any:
        return value.data if isinstance(value, own) else value

    executor._init_args_hst = lambda _, values, named: (
        [plain(value) for value in values],
        {name: plain(value) for name, value in named.items()},
    )
    executor._restore_args_dev = lambda *_: None  # everything is on the host
    return kernels


def record(folder: Path, name: str, kernels: Any) -> None:
    torch.manual_seed(len(name))
    config = GptOssConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_local_experts=EXPERTS,
        num_experts_per_tok=CASES[name],
    )
    router, experts = GptOssTopKRouter(config).bfloat16(), mxfp4.Mxfp4GptOssExperts(config)
    for parameter in router.parameters():
        nn.init.normal_(parameter, std=0.2)
    for shape, proj in (((2 * INNER, HIDDEN), "gate_up_proj"), ((HIDDEN, INNER), "down_proj")):
        nn.init.normal_(getattr(experts, f"{proj}_bias"))
        size = EXPERTS, shape[0], shape[1] // 32
        blocks = torch.randint(0, 256, (*size, 16), dtype=torch.uint8)
        scales = torch.randint(120, 126, size, dtype=torch.uint8)
        mxfp4.swizzle_mxfp4_convertops(blocks, scales, experts, proj, "cpu", kernels)
    model = nn.Sequential(mxfp4.Mxfp4GptOssMLP(router, experts)).eval()
    dump = DumpConfig(dump_path=folder / name, weights=True)
    with torch.no_grad(), register_hook(model, dump):
        model(torch.randn(2, 5, HIDDEN).bfloat16())


def main(folder: Path, output: Path) -> None:
    kernels = library(folder)
    mxfp4.triton_kernels_hub = kernels
    with tempfile.TemporaryDirectory() as temporary:
        for name in CASES:
            record(Path(temporary), name, kernels)
        pack(Path(temporary), list(CASES), output / "mxfp4-experts.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
