"""Sweeps kernels that others wrote and that are right: torch's, and what Inductor makes.

    python scripts/bench/sweep_healthy.py [--no-compiler] [NAME ...]

Each is held to a plain definition in steps of torch, over shapes, types, layouts, values and seeds.
Ends with 1 if one is accused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from figures import figure
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck import sweep

ROWS: tuple[Any, ...] = ([(5, 48)], [(3, 7, 33)], [(1, 256)])
PAIRS: tuple[Any, ...] = ([(6, 40), (6, 40)], [(2, 3, 17), (17,)])
NORMS: tuple[Any, ...] = ([(6, 64), (64,), (64,)], [(2, 5, 96), (96,), (96,)])
PRODUCTS: tuple[Any, ...] = ([(7, 64), (48, 64)], [(16, 300), (33, 300)])
HEADS: tuple[Any, ...] = ([(1, 2, 9, 16)] * 3, [(2, 4, 33, 32)] * 3)


@dataclass(frozen=True)
class Healthy:
    """A kernel, its definition, and the shapes of its inputs."""

    name: str
    kernel: Callable[..., Any]
    golden: Callable[..., Any]
    shapes: Sequence[Any] = ROWS
    settings: dict[str, Any] | None = None


def softmax(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def log_softmax(x: Tensor) -> Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - shifted.exp().sum(-1, keepdim=True).log()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    spread = centred.square().mean(-1, keepdim=True)
    return centred / torch.sqrt(spread + 1e-5) * weight + bias


def rms_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight + bias


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5) @ v


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return x * torch.sigmoid(x) * y


def eager() -> list[Healthy]:
    """Kernels of torch."""
    one, two = ROWS, PAIRS
    return [
        Healthy("add", torch.add, lambda x, y: x + y, two),
        Healthy("mul", torch.mul, lambda x, y: x * y, two),
        Healthy("div", torch.div, lambda x, y: x / y, two),
        Healthy(
            "maximum",
            torch.maximum,
            lambda x, y: torch.where(x > y, x, torch.where(x.isnan() | y.isnan(), x + y, y)),
            two,
        ),
        Healthy("exp", torch.exp, lambda x: x.exp(), one),
        Healthy("log1p", torch.log1p, lambda x: x.log1p(), one),
        Healthy("tanh", torch.tanh, lambda x: x.tanh(), one),
        Healthy("sigmoid", torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x)), one),
        Healthy("rsqrt", torch.rsqrt, lambda x: 1 / torch.sqrt(x), one),
        Healthy(
            "relu",
            torch.relu,
            lambda x: torch.where(x > 0, x, x * 0 + 0 * x.sign()),
            one,
            {"values": ("normal", "large", "tiny", "constant", "cancelling")},
        ),
        Healthy("silu", functional.silu, lambda x: x * torch.sigmoid(x), one),
        Healthy("gelu", functional.gelu, lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)), one),
        Healthy(
            "gelu tanh",
            lambda x: functional.gelu(x, approximate="tanh"),
            lambda x: functional.gelu(x, approximate="tanh"),
            one,
        ),
        Healthy(
            "softplus",
            functional.softplus,
            lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(torch.clamp(x, max=20)))),
            one,
        ),
        Healthy("softmax", lambda x: torch.softmax(x, -1), softmax, one),
        Healthy("log_softmax", lambda x: torch.log_softmax(x, -1), log_softmax, one),
        Healthy("sum", lambda x: x.sum(-1), lambda x: x.sum(-1), one),
        Healthy("mean", lambda x: x.mean(0), lambda x: x.sum(0) / x.shape[0], one),
        Healthy("cumsum", lambda x: x.cumsum(-1), lambda x: x.cumsum(-1), one),
        Healthy(
            "norm",
            lambda x: torch.linalg.vector_norm(x, dim=-1),
            lambda x: x.square().sum(-1).sqrt(),
            one,
        ),
        Healthy("amax", lambda x: x.amax(-1), lambda x: x.amax(-1), one),
        Healthy("argmax", lambda x: x.argmax(-1), lambda x: x.argmax(-1), one),
        Healthy(
            "sort",
            lambda x: x.sort(dim=-1, stable=True).values,
            lambda x: x.sort(dim=-1, stable=True).values,
            one,
        ),
        Healthy("flip", lambda x: x.flip(-1), lambda x: x.flip(-1), one),
        Healthy(
            "roll",
            lambda x: x.roll(3, -1),
            lambda x: torch.cat([x[..., -3:], x[..., :-3]], -1),
            one,
        ),
        Healthy("linear", functional.linear, lambda x, w: x @ w.transpose(0, 1), PRODUCTS),
        Healthy("matmul", lambda x, w: torch.matmul(x, w.T), lambda x, w: x @ w.T, PRODUCTS),
        Healthy(
            "bmm",
            lambda q, k, v: torch.matmul(q, k.transpose(-1, -2)) @ v,
            lambda q, k, v: (q @ k.transpose(-1, -2)) @ v,
            HEADS,
        ),
        Healthy("fused attention", functional.scaled_dot_product_attention, attention, HEADS),
        Healthy(
            "layer_norm",
            lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
            layer_norm,
            NORMS,
        ),
        Healthy(
            "rms_norm",
            lambda x, w, b: functional.rms_norm(x, x.shape[-1:], w, 1e-6) + b,
            rms_norm,
            NORMS,
        ),
        Healthy("add_", lambda x, y: x.add_(y), lambda x, y: x + y, two, {"writes": (0,)}),
        Healthy(
            "embedding",
            lambda i, w: functional.embedding(i, w),
            lambda i, w: w[i],
            ([(5, 4), (8, 16)],),
            {"dtypes": [("int64", "float16"), ("int64", "float32")]},
        ),
    ]


def compiled() -> list[Healthy]:
    """What Inductor makes of functions in steps."""
    functions: list[tuple[str, Callable[..., Any], Sequence[Any]]] = [
        ("softmax", softmax, ROWS[:1]),
        ("layer_norm", layer_norm, NORMS[:1]),
        ("rms_norm", rms_norm, NORMS[:1]),
        ("swiglu", swiglu, PAIRS[:1]),
        ("gelu", lambda x: functional.gelu(x), ROWS[:1]),
        ("attention", attention, HEADS[:1]),
        ("linear and silu", lambda x, w: functional.silu(x @ w.T), PRODUCTS[:1]),
        ("log_softmax", log_softmax, ROWS[:1]),
    ]
    return [
        Healthy(f"Inductor: {name}", torch.compile(function, dynamic=True), function, shapes)
        for name, function, shapes in functions
    ]


def main() -> int:
    """Print what each sweep finds; 1 if a kernel is accused."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-compiler", action="store_true", help="leave Inductor's out")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these kernels")
    given = parser.parse_args()
    kernels = eager() + ([] if given.no_compiler else compiled())
    chosen = [one for one in kernels if not given.names or one.name in given.names]
    accused = cases = left = 0
    for one in chosen:
        start = time.perf_counter()
        report = sweep(
            one.kernel, shapes=one.shapes, golden=one.golden, shrink=False, **(one.settings or {})
        )
        own = [found for found in report.cases if found.verdict.value == "SKIPPED"]
        cases += len(report.cases)
        left += len(own)
        accused += not report
        print(
            f"{one.name:28}{report.verdict.value:6}{len(report.cases):4} cases, "
            f"{len(own)} left out, {time.perf_counter() - start:.1f} s",
            flush=True,
        )
        if not report or given.names:
            print(report)
    note = f"{len(chosen)} kernels, {cases} cases, {left} left out"
    print(f"{accused} of {note} accused")
    figure("healthy kernels that sweep accuses", accused, "kernels", at_most=0, note=note)
    return int(accused > 0)


if __name__ == "__main__":
    sys.exit(main())
