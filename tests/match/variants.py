"""Runs variants of small models on hostatb, each in a process of its own.

``python variants.py TABLE`` writes ``{variant: pid}`` to TABLE. All variants share weights, prompts
and the tokens that are generated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.models.config import LLAMA_PRESETS, LlamaConfig
from ait_llm.hostatb.models.generate import generate, make_llama, random_prompts
from ait_llm.hostatb.models.weights import llama_weights

Elewise = torch_atb.ElewiseParam.ElewiseType
STEPS = 3
TOKENS = torch.tensor([[198], [17], [45]])


def llama(dtype: torch.dtype, batch: int, warm_up: bool = False) -> None:
    """One prompt of seven tokens, several times in a batch; each step is forced."""
    config: LlamaConfig = replace(LLAMA_PRESETS["tiny"], dtype=dtype)
    drawn = llama_weights(replace(config, dtype=torch.float16), seed=0)
    weights = {name: tensor.to(dtype) for name, tensor in drawn.items()}
    prompts = random_prompts(config, [7], seed=0) * batch
    if warm_up:
        warm = random_prompts(config, [300], seed=1)
        model = make_llama(config, weights, [300], STEPS, block_size=16)
        generate(model, warm, 2, torch.tensor([[3], [4]]))
        model.cache = make_llama(config, weights, [7], STEPS, block_size=16).cache
    else:
        model = make_llama(config, weights, [7] * batch, STEPS, block_size=16)
    generate(model, prompts, STEPS, TOKENS.repeat(1, batch))


def elewise(kind: Elewise) -> torch_atb.Operation:
    return torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=kind))


def linear(quantised: bool) -> torch_atb.Operation:
    if not quantised:
        return torch_atb.Operation(torch_atb.LinearParam(has_bias=True))
    half = torch_atb.AclDataType.ACL_FLOAT16
    return torch_atb.Operation(torch_atb.LinearParam(has_bias=True, out_data_type=half))


def rms_norm() -> torch_atb.Operation:
    kind = torch_atb.RmsNormParam.RmsNormType.RMS_NORM_NORM
    return torch_atb.Operation(torch_atb.RmsNormParam(layer_type=kind))


def quant(scale: float) -> torch_atb.Operation:
    """x * scale, rounded to int8."""
    return torch_atb.Operation(
        torch_atb.ElewiseParam(
            elewise_type=Elewise.ELEWISE_QUANT,
            quant_param=torch_atb.ElewiseParam.QuantParam(input_scale=scale),
        )
    )


X_SCALE = 1 / 32


def block(quantised: bool) -> torch_atb.Operation:
    """Norm, product with bias, residual sum."""
    names = ["x", "gamma", "weight", "bias"] + (["deq"] if quantised else [])
    builder = torch_atb.GraphBuilder("QuantBlock" if quantised else "FloatBlock")
    builder.set_input_output(names, ["out"])
    builder.add_operation(rms_norm(), ["x", "gamma"], ["normed"])
    if quantised:
        builder.add_operation(quant(1 / X_SCALE), ["normed"], ["normed_i8"])
        inputs = ["normed_i8", "weight", "bias", "deq"]
        builder.add_operation(linear(True), inputs, ["hidden"])
    else:
        builder.add_operation(linear(False), ["normed", "weight", "bias"], ["hidden"])
    builder.add_operation(elewise(Elewise.ELEWISE_ADD), ["hidden", "x"], ["out"])
    return builder.build()


def w8a8(quantised: bool) -> None:
    """Two blocks, with the same weights in float16 or in int8."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 64, generator=generator).half()
    for _ in range(2):
        gamma = torch.ones(64).half()
        weight = torch.randn(64, 64, generator=generator) / 8
        scale = weight.abs().amax(1, keepdim=True) / 127
        rounded = (weight / scale).round()
        deq = (scale[:, 0] * X_SCALE).float()
        bias = torch.round(torch.randn(64, generator=generator) / deq)
        if quantised:
            bits = deq.view(torch.int32).to(torch.int64)
            inputs = [x, gamma, rounded.to(torch.int8), bias.to(torch.int32), bits]
        else:
            real = (rounded * scale).half()
            inputs = [x, gamma, real, (bias * deq).half()]
        x = block(quantised).forward(inputs)[0]


VARIANTS: dict[str, Callable[[], None]] = {
    "one": lambda: llama(torch.float16, 1),
    "four": lambda: llama(torch.float16, 4),
    "bf16": lambda: llama(torch.bfloat16, 1),
    "warm": lambda: llama(torch.float16, 1, warm_up=True),
    "float": lambda: w8a8(False),
    "w8a8": lambda: w8a8(True),
}


def main() -> None:
    pids = {}
    for name, run in VARIANTS.items():
        child = os.fork()
        if child == 0:
            run()
            sys.exit(0)
        pids[name] = child
        assert os.waitpid(child, 0)[1] == 0
    Path(sys.argv[1]).write_text(json.dumps(pids))


if __name__ == "__main__":
    main()
