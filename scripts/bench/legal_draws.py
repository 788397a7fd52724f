"""Results of kernels at random shapes, legal ones and faulty ones, for ``legal.py``.

Legal ones come from other people's kernels or from the public sources of the device's: torch's in
16 bits, what Inductor and ONNX Runtime make of the same functions, and the emulations of
``ait_llm.opcheck.selftest.emulations``. Faulty ones come from kernels written here in float32 with
one thing wrong. None of them shares code with the golden operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.opcheck.golden import DEVICE, golden_ops
from ait_llm.opcheck.selftest.emulated_attention import causal
from ait_llm.opcheck.selftest.emulations import as_array, as_tensor, emulations, scale_bits

HALVES = (torch.float16, torch.bfloat16)
BLOCK = 128
LONGEST = 4096  # keys of a sequence


@dataclass(frozen=True, eq=False)
class Draw:
    """One operator with inputs, and what a kernel made of them."""

    op: str
    inputs: list[Tensor | None]
    params: dict[str, Any]
    outputs: list[Tensor]
    shape: str


class Chance:
    """Everything random of one draw."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = HALVES[seed % 2]

    def of(self, *choices: Any) -> Any:
        """One of some values."""
        return choices[int(self.numbers.integers(len(choices)))]

    def floats(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed."""
        values = torch.randn(shape, generator=self.generator) * scale
        return values.to(dtype or self.dtype)

    def int8(self, *shape: int, most: int = 127) -> Tensor:
        """Evenly distributed whole numbers."""
        return torch.randint(-most, most + 1, shape, generator=self.generator).to(torch.int8)


# ---- attention: one kernel, with what may be wrong with it ----------------------------------


@dataclass(frozen=True)
class Kernel:
    """Flash attention in float32, probabilities in 16 bits; one thing may be wrong.

    ``half_scores`` and ``half_end`` are legal: kernels for float16 store scores before and after
    each step, or sums and output before they divide.
    """

    scale: float = 1.0  # factor of the right one
    blocks: int = 0  # keys after which the running output is stored in 16 bits
    exponential: float = 0.0  # relative error of exponentials, even and odd keys differ
    stale: int = 0  # keys beyond the end that are read
    tiny: float = 0.0  # relative error of probabilities below a hundredth of the largest
    half_scores: bool = False
    half_end: bool = False
    either: bool = False  # at inputs of either type, where only float16 is what kernels do

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        mask: Tensor | None = None,
    ) -> Tensor:
        """``[q, h, d]`` with ``[k, g, d]`` to ``[q, h, v]``; the mask is ``[q, k]`` and added."""
        dtype, groups = query.dtype, query.shape[1] // key.shape[1]
        keys = key.float().repeat_interleave(groups, 1).permute(1, 2, 0)
        values = value.float().repeat_interleave(groups, 1).transpose(0, 1)

        def kept(values: Tensor) -> Tensor:
            return values.to(dtype).float() if self.half_scores else values

        scores = kept(kept(query.float().transpose(0, 1) @ keys) * (scale * self.scale))
        if mask is not None:
            scores = kept(scores + mask.float())
        powers = torch.exp(kept(scores - scores.amax(-1, keepdim=True)))
        if self.exponential:
            powers[..., ::2] *= 1 + self.exponential
        if self.tiny:
            powers = torch.where(powers < 0.01, powers * (1 + self.tiny), powers)
        sums = powers.sum(-1, keepdim=True)
        stored = powers.to(dtype).float()
        if self.half_end:
            return ((stored @ values).to(dtype) / sums.to(dtype)).transpose(0, 1)
        if not self.blocks:
            return (stored @ values / sums).to(dtype).transpose(0, 1)
        total = torch.zeros(*scores.shape[:2], values.shape[-1])
        for start in range(0, keys.shape[-1], self.blocks):
            part = stored[..., start : start + self.blocks] @ values[:, start : start + self.blocks]
            total = (total + part).to(dtype).float()
        return (total / sums).to(dtype).transpose(0, 1)


def prefill(chance: Chance, kernel: Kernel) -> Draw:
    """SelfAttention of packed sequences with the kernel of high precision."""
    if (kernel.half_scores or kernel.half_end) and not kernel.either:
        chance.dtype = torch.float16
    return _packed(chance, kernel)


Attend = Callable[[Tensor, Tensor, Tensor, float, Tensor | None], Tensor]


def _packed(chance: Chance, kernel: Attend) -> Draw:
    size, heads = chance.of(64, 128), chance.of(2, 4)
    shared = chance.of(1, 2)
    lengths = [int(chance.of(48, 130, 300, 777, 1024)) for _ in range(chance.of(1, 2))]
    scale = 1 / math.sqrt(size)
    query = chance.floats(sum(lengths), heads, size, scale=chance.of(1.0, 2.0))
    key, value = (chance.floats(sum(lengths), heads // shared, size) for _ in range(2))
    most, hidden = max(lengths), chance.of(None, -math.inf, -10000.0)
    mask = None if hidden is None else torch.full((most, most), hidden).triu(1).to(chance.dtype)
    first, pieces = 0, []
    for count in lengths:
        rows = slice(first, first + count)
        own = None if mask is None else mask[:count, :count]
        pieces.append(kernel(query[rows], key[rows], value[rows], scale, own))
        first += count
    params = {"headNum": heads, "kvHeadNum": heads // shared, "qkScale": scale}
    params |= {"calcType": 3, "kernelType": int(not getattr(kernel, "half_scores", False))}
    params |= {"socVersion": "Ascend910B"}  # where that kernel keeps no scores in 16 bits
    inputs = [query, key, value, torch.tensor(lengths, dtype=torch.int32)]
    if mask is not None:
        inputs.insert(3, mask)
        params["maskType"] = 1
    return Draw("SelfAttentionOperation", inputs, params, [torch.cat(pieces)], f"{lengths}x{size}")


def decode(chance: Chance, kernel: Kernel) -> Draw:
    """PagedAttention of one token each over caches."""
    if (kernel.half_scores or kernel.half_end) and not kernel.either:
        chance.dtype = torch.float16
    size, heads = chance.of(64, 128), chance.of(4, 8)
    lengths = [int(chance.of(100, 700, 2048, LONGEST)) for _ in range(2)]
    pages = 1 + LONGEST // BLOCK
    caches = [chance.floats(2 * pages, BLOCK, 2, size) for _ in range(2)]
    table = torch.randperm(2 * pages, generator=chance.generator).reshape(2, pages).int()
    query, scale = chance.floats(2, heads, size), 1 / math.sqrt(size)
    rows = []
    for row, length in enumerate(lengths):
        own = [cache[table[row].long()].flatten(0, 1)[: length + kernel.stale] for cache in caches]
        rows.append(kernel(query[row : row + 1], own[0], own[1], scale))
    params = {"headNum": heads, "kvHeadNum": 2, "qkScale": scale}
    inputs = [query, *caches, table, torch.tensor(lengths, dtype=torch.int32)]
    if kernel.half_scores:  # the kernel of several tokens
        params["calcType"] = 1
        inputs.append(torch.ones(2, dtype=torch.int32))
    return Draw("PagedAttentionOperation", inputs, params, [torch.cat(rows)], f"{lengths}x{size}")


def ring(chance: Chance, kernel: Kernel) -> Draw:
    """RingMLA without what came before: heads of 128 and 64, and the logarithm of the sums."""
    chance.dtype = torch.float16
    tokens, heads, scale = int(chance.of(40, 130, 500)), 2, 192**-0.5
    query, key = (chance.floats(tokens, heads, 192) for _ in range(2))
    value = chance.floats(tokens, heads, 128)
    mine = kernel(query, key, value, scale)
    scores = torch.einsum("qhd,khd->hqk", query.float(), key.float()).half().float() * scale
    parts = [part.contiguous() for one in (query, key) for part in one.split((128, 64), -1)]
    params = {"headNum": heads, "kvHeadNum": heads, "qkScale": scale, "calcType": 1, "maskType": 0}
    mask = torch.zeros(512, 512, dtype=torch.float16)
    inputs = [*parts, value, mask, torch.tensor([tokens], dtype=torch.int32)]
    outputs = [mine, scores.half().float().logsumexp(-1)]
    return Draw("RingMLAOperation", list(inputs), params, outputs, f"{tokens}x192")


# ---- products ---------------------------------------------------------------------------------


def product(chance: Chance, split: int = 0, factor: float = 1.0) -> Draw:
    """Linear; ``split`` parts of the sum stored in 16 bits, the result ``factor`` too large."""
    inner = int(chance.of(256, 1000, 4096, 11008))
    x, weight = chance.floats(16, inner), chance.floats(64, inner, scale=inner**-0.5)
    if not split:
        total = functional.linear(x, weight) if factor == 1 else x.float() @ weight.float().T
    else:
        parts = zip(x.chunk(split, 1), weight.chunk(split, 1), strict=True)
        total = torch.zeros(16, 64, dtype=x.dtype)
        for a, b in parts:
            total = total + (a.float() @ b.float().T).to(x.dtype)
    mine = (total.float() * factor).to(x.dtype)
    return Draw("LinearOperation", [x, weight], {"hasBias": False}, [mine], f"16x{inner}x64")


# ---- rotary positions -------------------------------------------------------------------------


def rotary(
    chance: Chance, base: float = 1.0, *, stored: bool = False, either: bool = False
) -> Draw:
    """Rope over up to 4,096 positions; with tables of another base, or in steps of 16 bits.

    Args:
        chance: what is random.
        base: factor of the right one.
        stored: each step is rounded, as the device's kernel does in float16.
        either: and at inputs of either type.
    """
    if stored and not either:
        chance.dtype = torch.float16
    heads, size = chance.of(2, 4), chance.of(64, 128)
    tokens, first = int(chance.of(16, 130, 1024)), int(chance.of(0, 500, LONGEST - 1024))
    theta = chance.of(1e4, 5e5)
    inputs = [chance.floats(tokens, heads * size) for _ in range(2)]

    def tables(theta: float) -> list[Tensor]:
        places = torch.arange(first, first + tokens).double()
        angles = places.outer(theta ** -(torch.arange(0, size, 2).double() / size))
        return [table.repeat(1, 2).to(chance.dtype) for table in (angles.cos(), angles.sin())]

    given = tables(theta)
    cos, sin = (table.unsqueeze(1) for table in tables(theta * base))

    def rotated(x: Tensor) -> Tensor:
        one = x.reshape(tokens, heads, size)
        left, right = one.chunk(2, -1)
        turned = torch.cat([-right, left], -1)
        if stored:
            return one * cos + turned * sin
        return (one.float() * cos.float() + turned.float() * sin.float()).to(x.dtype)

    outputs = [rotated(x) for x in inputs]
    lengths = torch.tensor([tokens], dtype=torch.int32)
    params = {"rotaryCoeff": 2, "cosFormat": 0}
    shape = f"{first}+{tokens}x{heads}x{size}"
    return Draw("RopeOperation", [*inputs, *given, lengths], params, outputs, shape)


# ---- kernels of other libraries ---------------------------------------------------------------

Function = Callable[..., Tensor]


def _norm_params(key: str) -> dict[str, Any]:
    return {"layerType": 1, key: {"epsilon": 1e-5}}


def functions() -> dict[str, tuple[str, dict[str, Any], int, Function]]:
    """By name: operator, parameters, number of weights of a row, and the same in torch."""
    epsilon = 1e-5
    return {
        "softmax": ("SoftmaxOperation", {"axes": [-1]}, 0, lambda x: functional.softmax(x, -1)),
        "gelu": ("ActivationOperation", {"activationType": 2, "dim": -1, "scale": 1.0}, 0,
                 lambda x: functional.gelu(x, approximate="tanh")),
        "silu": ("ActivationOperation", {"activationType": 4, "dim": -1, "scale": 1.0}, 0,
                 functional.silu),
        "rms norm": ("RmsNormOperation", _norm_params("normParam"), 1,
                     lambda x, w: functional.rms_norm(x, x.shape[-1:], w, epsilon)),
        "layer norm": ("LayerNormOperation",
                       {"layerType": 1, "normParam": {"epsilon": epsilon, "beginNormAxis": 1,
                                                      "beginParamsAxis": 1}}, 2,
                       lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, epsilon)),
    }  # fmt: skip


def of_function(chance: Chance, name: str, run: Function | None = None) -> Draw:
    """One of :func:`functions` at a random shape, computed by torch or by ``run``."""
    op, params, weights, own = functions()[name]
    rows, width = int(chance.of(3, 16, 40)), int(chance.of(64, 512, 4096, 11008))
    inputs = [chance.floats(rows, width, scale=chance.of(0.5, 1.0, 3.0))]
    inputs += [(1 + 0.2 * chance.floats(width, dtype=torch.float32)).to(chance.dtype)
               for _ in range(weights)]  # fmt: skip
    with torch.no_grad():
        mine = (run or own)(*inputs)
    return Draw(op, list(inputs), params, [mine], f"{rows}x{width}")


def sdpa(chance: Chance) -> Draw:
    """SelfAttention by torch's fused kernel in 16 bits."""

    def fused(
        query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        given = [each.transpose(0, 1)[None] for each in (query, key, value)]
        given[1:] = [each.repeat_interleave(groups, 1) for each in given[1:]]
        found = functional.scaled_dot_product_attention(*given, mask, scale=scale)
        return found[0].transpose(0, 1)

    return _packed(chance, fused)


# ---- the device's kernels ---------------------------------------------------------------------


def emulated(chance: Chance, name: str) -> Draw:
    """One of the emulations of the device's kernels."""
    either = chance.dtype
    op, inputs, params = _given(chance, name, either)
    found = emulations[op]([as_array(one) for one in inputs], params)
    assert found is not None, name
    if chance.of(True, False):  # nobody may know the chip
        params.pop("socVersion", None)
    outputs = [as_tensor(one) for one in found]
    assert inputs[0] is not None
    return Draw(op, list(inputs), params, outputs, "x".join(map(str, inputs[0].shape)))


EMULATED = (
    "flash", "one core flash", "paged int8", "int8 product", "swiglu quant", "asymmetric quant",
    "rms norm 1", "rms norm 2", "layer norm 1", "layer norm 2", "rms norm, residual",
    "relay", "razor", "latent prefill", "ring", "laser gradient",
)  # fmt: skip


Given = tuple[str, Sequence[Tensor | None], dict[str, Any]]


def _given(chance: Chance, name: str, either: torch.dtype) -> Given:
    if name in (own := {"relay": _relay, "razor": _razor, "laser gradient": _gradient}):
        chance.dtype = either
        return own[name](chance)
    if name in ("latent prefill", "ring"):
        chance.dtype = either
        return _prefilled(chance, ring=name == "ring")
    chance.dtype = torch.float16
    width = int(chance.of(256, 1024, 4096, 11008))
    row = chance.floats(24, width, scale=chance.of(0.3, 1.0, 4.0))
    weights = [1 + chance.floats(width, scale=0.2), chance.floats(width, scale=0.1)]
    if name.endswith("flash"):
        tokens, size = int(chance.of(16, 130, 400, 1024)), chance.of(64, 128)
        params = {"headNum": 2, "kvHeadNum": 1, "qkScale": 1 / math.sqrt(size), "calcType": 3}
        query = chance.floats(tokens, 2, size, scale=chance.of(0.5, 1.0, 3.0))
        given = [query, *(chance.floats(tokens, 1, size) for _ in range(2))]
        if name == "one core flash":
            params |= {"socVersion": "Ascend310P", "kernelType": chance.of(0, 1, 2)}
        if chance.of(True, False):
            given.append(torch.from_numpy(causal(tokens)))
            params["maskType"] = 1
        return "SelfAttentionOperation", [*given, torch.tensor([tokens]).int()], params
    if name == "paged int8":
        lengths = [int(chance.of(100, 700, 1500, 3000)) for _ in range(2)]
        caches = [chance.int8(48, BLOCK, 2, 64) for _ in range(2)]
        table = torch.randperm(48, generator=chance.generator).reshape(2, 24).int()
        scales = [torch.full((4,), chance.of(1, 2, 4) / 8000), torch.full((4,), 1 / 40)]
        params = {"headNum": 4, "kvHeadNum": 2, "qkScale": 0.125, "quantType": 3, "outDataType": 1}
        given = [chance.int8(2, 4, 64), *caches, table, torch.tensor(lengths).int(), *scales]
        return "PagedAttentionOperation", given, params
    if name == "int8 product":
        scale = (1 + 0.2 * chance.floats(96, dtype=torch.float32)).abs() * 0.1 / width
        given = [chance.int8(32, width), chance.int8(96, width)]
        bits = torch.from_numpy(scale_bits(scale.numpy()))
        return "LinearOperation", [*given, bits], {"hasBias": False, "outDataType": 1}
    if name == "swiglu quant":
        return "SwigluQuantOperation", [row], {"quantType": 0}
    if name == "asymmetric quant":
        shifted = row + chance.of(0.0, 0.3, 2.0)
        return (
            "ElewiseOperation",
            [shifted],
            {"elewiseType": 19, "quantParam": {"asymmetric": True}},
        )
    if name == "rms norm, residual":
        quantised = [torch.tensor([chance.of(0.02, 0.05)]).half(), torch.tensor([3]).to(torch.int8)]
        given = [row, chance.floats(24, width), *weights, *quantised]
        params = {"layerType": 2, "preNormParam": {"epsilon": 1e-5, "quantType": 2}}
        return "RmsNormOperation", given, params
    own = {"epsilon": 1e-5, "quantType": 2, "dynamicQuantType": int(name[-1])}
    if name.startswith("layer"):
        own |= {"beginNormAxis": 1, "beginParamsAxis": 1}
    op = "LayerNormOperation" if name.startswith("layer") else "RmsNormOperation"
    return op, [row, *weights], {"layerType": 1, "normParam": own}


def _relay(chance: Chance) -> Given:
    size, kv_heads = int(chance.of(64, 128)), 2
    shared = [int(chance.of(0, 100, 700, 2000)) for _ in range(2)]
    own = [int(chance.of(1, 90, 300)) for _ in range(4)]
    groups = [int(chance.of(-1, 0, 1)) for _ in own]
    lengths = [a + (shared[g] if g >= 0 else 0) for a, g in zip(own, groups, strict=True)]
    scale = chance.of(0.5, 1.0, 2.0)
    caches = [chance.floats(len(own), max(own), kv_heads, size) for _ in range(2)]
    prefixes = [chance.floats(2, max(*shared, 1), kv_heads, size) for _ in range(2)]
    counts = [torch.tensor(each, dtype=torch.int32) for each in ([1] * 4, lengths, groups, shared)]
    query = chance.floats(len(own), 4 * size, scale=scale)
    params = {"headNum": 4, "kvHeadNum": kv_heads, "qkScale": size**-0.5}
    return "RelayAttentionOperation", [query, *caches, *prefixes, torch.empty(0), *counts], params


def _razor(chance: Chance) -> Given:
    size, length = int(chance.of(64, 128)), int(chance.of(60, 200, 700, 1500))
    text_rows, text_keys = int(chance.of(0, 10)), int(chance.of(0, 40))
    params = {
        "razorLen": length, "tileQ": 1, "tileKv": 1, "textQLen": text_rows, "textKvLen": text_keys,
        "preTokens": 2 * length + 256, "nextTokens": 2 * length + 256, "headNum": 2,
        "kvHeadNum": 2, "qkScale": size**-0.5,
    }  # fmt: skip
    rows, keys = length + text_rows, length + text_keys
    query = chance.floats(rows, 2, size, scale=chance.of(0.5, 1.0, 3.0))
    given = [query, *(chance.floats(keys, 2, size) for _ in range(2))]
    return "RazorFusionAttentionOperation", given, params


def _prefilled(chance: Chance, *, ring: bool) -> Given:
    heads, counts = 2, [int(chance.of(5, 60, 160, 400)) for _ in range(2)]
    tokens, loud = sum(counts), chance.of(0.5, 1.0, 2.0)
    sizes = (128, 64, 128, 64, 128)
    parts: list[Tensor | None] = [
        chance.floats(tokens, heads, size, scale=loud if at < 2 else 1.0)
        for at, size in enumerate(sizes)
    ]
    params = {"headNum": heads, "kvHeadNum": heads, "qkScale": 192**-0.5}
    given = torch.tensor(counts, dtype=torch.int32)
    if not ring:
        own = {"cacheMode": 1, "calcType": 4, "maskType": chance.of(0, 3)}
        return "MultiLatentAttentionOperation", [*parts, given, given.clone()], params | own
    mask = torch.triu(torch.ones(512, 512), 1) * -10000
    lengths = torch.stack([given, given])
    own = {"maskType": chance.of(0, 1), "calcType": 1}
    return "RingMLAOperation", [*parts, mask.to(chance.dtype), lengths], params | own


def _gradient(chance: Chance) -> Given:
    chance.dtype = torch.bfloat16
    tokens, size = int(chance.of(128, 256, 512)), int(chance.of(64, 128))
    tensors = [chance.floats(1, heads, tokens, size) for heads in (4, 2, 2)]
    params = {"headNum": 4, "inputLayout": "BNSD", "scaleValue": size**-0.5, "preTokens": tokens}
    mask = None
    if chance.of(True, False):
        mask = torch.triu(torch.ones(tokens, tokens), 1).to(chance.dtype)
    forward = golden_ops.get("LaserAttentionOperation").compute(
        [*tensors, None, None, None, mask, None, None, None], params, DEVICE
    )
    maxima, sums, _, attention = forward.outputs
    given = [*tensors, chance.floats(*attention.shape), None, None, None, mask, maxima, sums]
    return "LaserAttentionGradOperation", [*given, None, attention, None, None, None], params
