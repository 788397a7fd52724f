"""Published weights, and models of pictures."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from fault_matrix import dump as capture
from matching_truth.program import randomise
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.hostatb.models.minilm import find_minilm
from ait_llm.probe.library import find_packaged
from healthy_runs.model import Healthy, Source, kept

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# "The weather is lovely today." and "He drove to the stadium.", in the words of the model
_SENTENCES = ((101, 1996, 4633, 2003, 8403, 2651, 1012, 102), (101, 2002, 5225, 1996, 3346, 102))
Make = Callable[[torch.dtype], nn.Module]
Drive = Callable[[nn.Module], Any]


def _run(make: Make, drive: Drive, dtype: torch.dtype, operators: bool, dump: Path) -> None:
    torch.manual_seed(7)
    model = make(dtype).eval()
    config = DumpConfig(dump_path=dump, operators=operators, weights=True)
    with torch.no_grad(), register_hook(model, config):
        drive(model)


def _minilm(attention: str, dtype: torch.dtype) -> nn.Module:
    model: nn.Module = transformers.BertModel.from_pretrained(
        find_minilm(), attn_implementation=attention, dtype=dtype
    )
    return model


def _sentences(count: int, model: nn.Module) -> None:
    longest = max(map(len, _SENTENCES[:count]))
    rows = [[*words, *[0] * (longest - len(words))] for words in _SENTENCES[:count]]
    ids = torch.tensor(rows)
    model(input_ids=ids, attention_mask=(ids != 0).long())


def minilm() -> Iterator[Healthy]:
    """The sentence encoder all-MiniLM-L6-v2, with its own weights."""
    if find_minilm() is None:
        return
    for operators in (False, True):
        level = "op" if operators else "module"

        def run(
            attention: str = "eager",
            dtype: torch.dtype = torch.float32,
            count: int = 1,
            again: str = "",
            level: str = level,
        ) -> Source:
            name = f"minilm-{attention}-{dtype}-{count}-{level}{again}"
            made = partial(
                _run, partial(_minilm, attention), partial(_sentences, count), dtype, level == "op"
            )
            return partial(kept, name, made)

        base = run()
        others = {"again": run(again="-again"), "sdpa": run("sdpa"), "padded": run(count=2)}
        others |= {name: run(dtype=dtype) for name, dtype in _TYPES.items()}
        for name, mine in others.items():
            yield Healthy(f"m/minilm/{name}-{level}", base, mine, alone=operators)
        halves = [run(dtype=dtype) for dtype in _TYPES.values()]
        yield Healthy(f"m/minilm/halves-{level}", *halves, alone=operators)


def _on_library(dtype: str, dump: Path) -> None:
    _started(["bert", "--dtype", dtype], dump, "tensor", "layer", "model")


def _twin(dtype: str, dump: Path) -> None:
    words = ["bert_torch", "--dtype", dtype, "--weights-dtype", "float16"]
    _started(words, dump, "torch", "--weights")


def _started(words: list[str], dump: Path, *kinds: str) -> None:
    """Capture a demo program with the published weights."""
    name, *more = words
    program = [sys.executable, "-m", f"ait_llm.hostatb.demo.{name}", "--weights", "minilm", *more]
    capture(program, dump, "--type", *kinds)


def library() -> Iterator[Healthy]:
    """The same encoder on the acceleration library for CPUs, against PyTorch and itself."""
    if find_minilm() is None or find_packaged("libatb_probe_abi1.so", os.environ) is None:
        return

    def run(make: Callable[[str, Path], None], dtype: str, again: str = "") -> Source:
        name = f"minilm{make.__name__}-{dtype}{again}"
        return partial(kept, name, partial(make, dtype))

    mine = run(_on_library, "float16")
    for dtype in ("float16", "bfloat16", "float32"):
        yield Healthy(f"m/minilm/torch-{dtype}-atb", run(_twin, dtype), mine, alone=True)
    other = run(_on_library, "bfloat16")
    yield Healthy("m/minilm/torch-atb-bfloat16", run(_twin, "float32"), other, alone=True)
    yield Healthy("m/minilm/atb-torch", mine, run(_twin, "float16"), alone=True)
    yield Healthy("m/minilm/atb-again", mine, run(_on_library, "float16", "-again"), alone=True)
    yield Healthy("m/minilm/atb-halves", mine, other, alone=True)


def _unet(dtype: torch.dtype) -> nn.Module:
    import diffusers

    model = diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=24,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    return randomise(model, 7).to(dtype)


def _dit(dtype: torch.dtype) -> nn.Module:
    import diffusers

    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
        norm_num_groups=8,
    )
    return randomise(model, 7).to(dtype)


def _plain(make: Make, dtype: torch.dtype) -> nn.Module:
    """The same with attention written out instead of the operator of torch."""
    from diffusers.models.attention_processor import AttnProcessor

    model = make(dtype)
    for module in model.modules():
        if hasattr(module, "set_processor"):
            module.set_processor(AttnProcessor())
    return model


def _drawn(model: nn.Module, *shape: int) -> torch.Tensor:
    """Numbers that every type holds alike."""
    drawn = torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(3))
    return (drawn / 256 - 0.5).to(next(model.parameters()).dtype)


def _denoise(model: nn.Module) -> None:
    model(
        _drawn(model, 1, 4, 8, 8),
        torch.tensor([7]),
        encoder_hidden_states=_drawn(model, 1, 5, 24),
    )


def _denoise_class(model: nn.Module) -> None:
    model(_drawn(model, 1, 4, 8, 8), timestep=torch.tensor([7]), class_labels=torch.tensor([3]))


def diffusers() -> Iterator[Healthy]:
    """A U-Net and a transformer of diffusers, one step of denoising."""
    if importlib.util.find_spec("diffusers") is None:
        return
    models: dict[str, tuple[Make, Drive]] = {
        "unet": (_unet, _denoise),
        "dit": (_dit, _denoise_class),
    }
    for family, (make, drive) in models.items():
        for operators in (False, True):
            level = "op" if operators else "module"

            def run(
                name: str,
                dtype: torch.dtype = torch.float32,
                make: Make = make,
                drive: Drive = drive,
                family: str = family,
                level: str = level,
            ) -> Source:
                made = partial(_run, make, drive, dtype, level == "op")
                return partial(kept, f"diffusers-{family}-{name}-{level}", made)

            base = run("float32")
            others = {"again": run("again"), "plain": run("plain", make=partial(_plain, make))}
            others |= {name: run(name, dtype) for name, dtype in _TYPES.items()}
            for name, mine in others.items():
                yield Healthy(f"n/{family}/{name}-{level}", base, mine, alone=operators)
            halves = [run(name, dtype) for name, dtype in _TYPES.items()]
            yield Healthy(f"n/{family}/halves-{level}", *halves, alone=operators)
