"""Routed experts, the int8 feed-forward block, linear operators of older libraries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.selftest.cases import HALVES, Built, Draw, case


def _bits(scale: Tensor) -> Tensor:
    """float32 scales as the dequantising unit takes them: bit patterns in 64-bit integers."""
    return scale.view(torch.int32).to(torch.int64)


def _int8(draw: Draw, *shape: int) -> Tensor:
    return draw.integers(-128, 128, *shape, dtype=torch.int8)


def _scales(draw: Draw, *shape: int, size: float) -> Tensor:
    return draw.around_one(*shape, dtype=torch.float32).abs() * size


def _routing(name: str, *, up: bool, quantised: bool = False) -> None:
    @case("GroupedMatmulWithRoutingOperation", name)
    def build(draw: Draw) -> Built:
        experts, top, tokens, inner, columns = 4, 2, 12, 256, 64
        positions = tokens * top
        ends = torch.tensor([7, 7, 18, 24], dtype=torch.int32)
        # Each token goes to as many positions as it has experts.
        index = (draw.order(positions) % tokens).to(torch.int32)
        rows = tokens if up else positions
        params = {"moeType": 0 if up else 1, "topK": top, "outDataType": -1}
        if not quantised:
            x, weight = draw.floats(rows, inner), draw.floats(experts, columns, inner, scale=0.05)
            return Built([x, weight, ends, index], params)
        params["outDataType"] = 1 if draw.dtype == torch.float16 else 27
        scales = [_scales(draw, experts, columns, size=0.01), _scales(draw, rows, size=0.01)]
        x, weight = _int8(draw, rows, inner), _int8(draw, experts, columns, inner)
        return Built([x, weight, ends, index, *scales], params)


_routing("up", up=True)
_routing("down", up=False)
_routing("up, int8", up=True, quantised=True)
_routing("down, int8", up=False, quantised=True)


def _feed_forward(op: str, *, grouped: bool) -> None:
    @case(op, dtypes=(torch.float16,))
    def build(draw: Draw) -> Built:
        lead = (2,) if grouped else ()
        x = _int8(draw, 12, 128)
        up, down = _int8(draw, *lead, 128, 512), _int8(draw, *lead, 64, 256)
        ends = [torch.tensor([5, 12])] if grouped else []
        inputs = [
            x, up, _scales(draw, *lead, 512, size=1e-2), _scales(draw, 12, size=1e-2), *ends,
            down, _scales(draw, *lead, 64, size=1e-2),
        ]  # fmt: skip
        return Built(inputs, {"outputType": 0, "transposeWeightDown": True})


_feed_forward("GmmDeqSwigluQuantGmmDeqOperation", grouped=True)
_feed_forward("MmDeqSwigluQuantMmDeqOperation", grouped=False)


def _quantised(draw: Draw, *, size: float = 1e-5) -> list[Tensor | None]:
    bias = draw.integers(-9999, 9999, 96)
    return [_int8(draw, 24, 256), _int8(draw, 96, 256), bias, _bits(_scales(draw, 96, size=size))]


@case("LinearQuantOperation", dtypes=(torch.float16,))
def linear_quant(draw: Draw) -> Built:
    return Built(_quantised(draw), {})


@case("LinearSparseOperation", "original weight", dtypes=(torch.float16,))
def linear_sparse(draw: Draw) -> Built:
    return Built([*_quantised(draw), torch.zeros(4, dtype=torch.int8)], {})


def _activated(kind: int, name: str) -> None:
    @case("LinearActivationOperation", name, dtypes=(torch.float16,))
    def linear_activation(draw: Draw) -> Built:
        inputs = [draw.floats(24, 1024), draw.floats(96, 1024, scale=0.03), draw.floats(96)]
        return Built(inputs, {"activationFuncType": kind})

    @case("LinearActivationQuantOperation", name, dtypes=(torch.float16,))
    def linear_activation_quant(draw: Draw) -> Built:
        return Built(_quantised(draw), {"activationFuncType": kind})


for _kind, _name in ((1, "relu"), (3, "fast gelu"), (4, "swish")):
    _activated(_kind, _name)


def _preprocess(name: str, mode: int, quant: int | None, dtypes: Any = HALVES) -> None:
    """Latent attention's projections; ``quant`` None has weights of floats."""

    @case("MlaPreprocessOperation", name, dtypes=dtypes)
    def build(draw: Draw) -> Built:
        tokens, hidden, heads, latent, rope, query, plain = 64, 512, 8, 128, 64, 256, 128
        width, out = latent + rope + query, heads * (plain + rope)
        empty = torch.empty(0)
        half = [
            torch.tensor([0.03]).to(draw.dtype),
            torch.tensor([3], dtype=torch.int8),
        ]
        own = half if quant == 0 else [empty, empty]

        def projection(rows: int, inner: int) -> list[Tensor]:
            if quant is None:
                return [draw.floats(rows, inner, scale=inner**-0.5), empty, empty]
            # A sum of int8 products, each of the size of 32 * 73, is about one after this scale.
            scale = _scales(draw, rows, size=inner**-0.5 / 2400)
            bias = draw.integers(-999, 999, 1, rows) if quant == 0 else empty
            bits = quant == 0 and draw.dtype == torch.float16
            return [_int8(draw, rows, inner), _bits(scale) if bits else scale, bias]

        angle = draw.floats(tokens, rope, dtype=torch.float32)
        joined = mode == 0
        cache = draw.floats(5, 16, 1, latent + (rope if joined else 0))
        rope_cache = draw.floats(5, 16, 1, rope)
        inputs = [
            draw.floats(tokens, hidden),
            draw.around_one(hidden),
            draw.floats(hidden, scale=0.1),
            *own,
            *projection(width, hidden),
            draw.around_one(query),
            draw.floats(query, scale=0.1),
            *own,
            *projection(out, query),
            draw.around_one(latent),
            angle.cos().to(draw.dtype),
            angle.sin().to(draw.dtype),
            draw.floats(heads, plain, latent, scale=plain**-0.5),
            cache,
            empty if joined else rope_cache,
            draw.order(80, tokens),
            empty,
            empty,
        ]
        params = {"epsilon": 1e-5, "cacheMode": mode, "quantMode": quant or 0}
        return Built(inputs, params, heads=heads)


_preprocess("int8 per tensor", 0, 0)
_preprocess("int8 per tensor, split caches", 1, 0)
_preprocess("int8 per token", 1, 1)
_preprocess("floats", 1, None)
