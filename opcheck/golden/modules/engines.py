"""Modules of vLLM: products that hold the share of one rank, joined norms, rotary positions.

Where ranks share a module, its result is theirs together, and one rank's tensors do not make it.
Engines may also put a weight into a form of a kernel's own; what is left of it is an empty tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

_ROTARY = frozenset(
    {
        "LinearScalingRotaryEmbedding",
        "Llama3RotaryEmbedding",
        "NTKScalingRotaryEmbedding",
        "RotaryEmbedding",
        "YaRNScalingRotaryEmbedding",
    }
)


@module(
    "ColumnParallelLinear",
    "GateLinear",
    "MergedColumnParallelLinear",
    "QKVParallelLinear",
    "ReplicatedLinear",
    "RowParallelLinear",
)
def _parallel_linear(given: Given) -> Compute | None:
    """``x @ weight.T + bias`` of the columns or rows of this rank.

    The bias is added unless ``skip_bias_add``; of rows that ranks share only by the first.
    """
    known = given.definition
    shared = known.get("tp_size") != 1 and not known.get("disable_tp")
    per_rank = [given.number(f"{side}_size_per_partition") for side in ("output", "input")]
    whole = [given.number(f"{side}_size") for side in ("output", "input")]
    sizes = [each if each is not None else all_ for each, all_ in zip(per_rank, whole, strict=True)]
    if (
        known.get("quant_method") != "UnquantizedLinearMethod"
        or not given.takes(["weight"], ["bias"])
        or given.weights["weight"] != tuple(sizes)
        or known.get("has_bias") is not ("bias" in given.weights)
        or known.get("out_dtype") is not None
    ):
        return None
    if shared and (known.get("gather_output") or known.get("reduce_results")):
        return None
    by_rows = given.type == "RowParallelLinear"
    if shared and by_rows and known.get("input_is_parallel") is not True:
        return None
    skips = known.get("skip_bias_add") or (by_rows and known.get("tp_rank") != 0)
    returns_bias = known.get("skip_bias_add") and "bias" in given.weights
    if returns_bias and known.get("return_bias") is not False:
        return None  # it is a second output

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        bias = None if skips else tensors.get("bias")
        return functional.linear(only(tensors, given), tensors["weight"], bias)

    return compute


@module("VocabParallelEmbedding", "ParallelLMHead")
def _parallel_embedding(given: Given) -> Compute | None:
    """Rows of the table where one rank has all of it."""
    sizes = given.number("num_embeddings_per_partition"), given.number("embedding_dim")
    if (
        given.definition.get("tp_size") != 1
        or given.definition.get("quant_method") != "UnquantizedEmbeddingMethod"
        or not given.takes(["weight"])
        or given.weights["weight"] != sizes
    ):
        return None
    return lambda t: functional.embedding(only(t, given).long(), t["weight"])


def norm_and_sum(given: Given, eps: float, *, centred: bool) -> Compute | None:
    """An RMS norm of a sum, and the sum: of a layer's result and what passed it by.

    The sum has the type of its terms; where a kernel goes on with more bits of it, it rounds less.
    """
    names = [name for name in given.inputs if name in ("0", "1", "x", "residual")]
    if len(given.inputs) != 2 or len(names) != 2 or len(given.outputs) != 2:
        return None
    if not given.has(["weight"]) or len(given.weights["weight"]) != 1:
        return None
    first, second = sorted(names)[::-1] if "residual" in names and "x" in names else sorted(names)

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        x, residual, weight = tensors[first], tensors[second], tensors["weight"]
        if centred and x.dtype == torch.float16:  # its sum may be too large for float16
            total = x.float() + residual.float()
        else:
            total = x + residual
        wide = total.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        if centred:
            return (wide * (1.0 + weight.to(torch.float32))).to(x.dtype), total
        return wide.to(x.dtype) * weight, total

    return compute


def may_truncate(given: Given) -> bool:
    """True for modules whose kernels may cut their results to bfloat16."""
    return given.type in _ROTARY


def rotary_positions(given: Given) -> Compute | None:
    """Query and key with each head rotated by its position; a key may be absent.

    ``cos_sin_cache`` is ``[positions, rotary_dim]``: cosines, then sines. Where it was not saved,
    it is what vLLM makes of the base.
    """
    size, width = given.number("head_size"), given.number("rotary_dim")
    halves = given.definition.get("is_neox_style")
    cache = given.weights.get("cos_sin_cache", ())
    made = _table(given) if not given.weights else None
    places = [name for name in ("0", "positions") if name in given.inputs]
    rest = [name for name in given.inputs if name not in places]
    if (
        given.type not in _ROTARY
        or size is None
        or width is None
        or type(halves) is not bool
        or len(places) != 1
        or (made is None and not given.has(["cos_sin_cache"]))
        or (made is None and cache[-1:] != (width,))
        or sorted(rest) not in (["1"], ["1", "2"], ["query"], ["key", "query"], ["1", "key"])
        or len(given.outputs) != len(rest)
    ):
        return None
    head, rotated = int(size), int(width)
    rest = sorted(rest, key=lambda name: (name == "key", name))

    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.reshape(x.shape[0], -1, head)
        part, other = heads[..., :rotated], heads[..., rotated:]
        if halves:
            one, two = part.chunk(2, -1)
            turned = torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
        else:
            one, two = part[..., ::2], part[..., 1::2]
            turned = torch.stack((one * cos - two * sin, two * cos + one * sin), -1).flatten(-2)
        return torch.cat((turned, other), -1).reshape(x.shape)

    def compute(tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        positions = tensors[places[0]].flatten()
        table = tensors["cos_sin_cache"] if made is None else made()
        table = table.index_select(0, positions).to(tensors[rest[0]].dtype)
        cos, sin = table.unsqueeze(1).chunk(2, -1)
        return tuple(rotate(tensors[name], cos, sin) for name in rest)

    return compute


def _table(given: Given) -> Callable[[], Tensor] | None:
    """How vLLM makes the table of the plain class; None for others.

    In float32, rounded to the type of the module, as ``RotaryEmbeddingBase`` does.
    """
    base, width, count = map(given.number, ("base", "rotary_dim", "max_position_embeddings"))
    dtype = getattr(torch, str(given.definition.get("dtype")), None)
    if (
        given.type != "RotaryEmbedding"
        or base is None
        or width is None
        or count is None
        or not isinstance(dtype, torch.dtype)
        or given.definition.get("use_flashinfer") is not False
    ):
        return None

    def make() -> Tensor:
        with _disable_current_modes():
            places = torch.arange(0, width, 2, dtype=torch.float)
            angles = torch.outer(torch.arange(count).float(), 1.0 / base ** (places / width))
            return torch.cat((angles.cos(), angles.sin()), -1).to(dtype)

    return make


@module("LogitsProcessor")
def _logits(given: Given) -> Compute | None:
    """Logits of the rows that are asked for, by the table that its caller hands to it.

    ``weight`` is that table. A soft cap is ``cap * tanh(x / cap)``; a scale follows it.
    """
    vocabulary = given.number("org_vocab_size")
    scale, cap = given.number("scale"), given.definition.get("soft_cap")
    (hidden, *others) = given.inputs or ("",)
    tables = given.weights.get("weight", ())
    if (
        others
        or vocabulary is None
        or scale is None
        or len(tables) != 2
        or tables[0] < vocabulary
        or not (cap is None or isinstance(cap, float))
        or not given.has(["weight"])
        or given.definition.get("logits_as_input") is not False
        or given.outputs[0][-1] != vocabulary
    ):
        return None
    factor, rows = float(scale), int(vocabulary)

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        logits = functional.linear(tensors[hidden], tensors["weight"])[..., :rows]
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits if factor == 1.0 else logits * factor

    return compute
