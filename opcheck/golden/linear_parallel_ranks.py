"""The products and exchanges of LinearParallel, over the tensors of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Arithmetic, Params, Refusal, Result, UnverifiableError
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.linear_parallel_config import (
    NAME,
    Config,
    ParallelType,
    QuantType,
    two_dimensions,
)
from ait_llm.opcheck.golden.linear_parallel_experts import expert_rows
from ait_llm.opcheck.golden.products import integer_matmul, wide_matmul
from ait_llm.opcheck.golden.quantise import matrix_unit_scale
from ait_llm.opcheck.golden.shapes import BF16, F16
from ait_llm.opcheck.golden.support import (
    int_param,
    optional_at,
    refused,
    tensor_at,
    torch_dtype,
)


@dataclass(frozen=True, slots=True)
class Rank:
    """The tensors of one rank, by name."""

    config: Config
    tensors: dict[str, Tensor]

    @property
    def x(self) -> Tensor:
        return self.tensors["x"]

    def weight(self) -> Tensor:
        """``[..., K, N]``, NZ blocks joined."""
        weight = self.tensors["weight"]
        if weight.dim() == 4:
            weight = nz_to_nd(weight)
            weight = weight[0] if weight.shape[0] == 1 and not self.config.moe else weight
        return weight.transpose(-1, -2) if self.config.transpose else weight

    def out_dtype(self) -> torch.dtype:
        if self.x.dtype != torch.int8:
            return self.x.dtype
        return torch_dtype(F16 if self.config.out_dtype is F16 else BF16)

    def scale(self) -> Tensor:
        return matrix_unit_scale(self.tensors["scale"])


def rank_of(config: Config, inputs: Sequence[Tensor | None]) -> Rank:
    """The tensors of a rank under their names; the bias may be absent."""
    tensors = {}
    for index, name in enumerate(config.names):
        found = optional_at(inputs, index) if name == "bias" else tensor_at(NAME, inputs, index)
        if found is not None:
            tensors[name] = found
    return Rank(config, tensors)


def _float_weight(rank: Rank) -> Tensor:
    """The weight for float x, dequantised and rounded to its dtype where it is int8."""
    weight = rank.weight()
    if rank.config.quant is QuantType.NONE:
        return weight
    values = weight.float()
    if "bias" in rank.tensors:
        values = values + rank.tensors["bias"].float()
    scale = rank.scale()
    if rank.config.quant is QuantType.PER_GROUP:
        size = rank.config.group_size
        if size < 1:
            raise refused(NAME, f"quantGroupSize is {size}; it takes at least 1", Refusal.PARAM)
        scale = scale.repeat_interleave(size, dim=0)[: values.shape[-2]]
    return (values * scale).to(rank.x.dtype)


def product(rank: Rank, x: Tensor, arithmetic: Arithmetic, token_scale: Tensor | None) -> Tensor:
    """``x . weight`` of one rank, dequantised, not rounded."""
    if x.dtype != torch.int8:
        return wide_matmul(x, _float_weight(rank), arithmetic)
    whole = integer_matmul(x, rank.weight())
    if "bias" in rank.tensors:
        whole = whole + rank.tensors["bias"]
    y = whole.float() * rank.scale()
    return y if token_scale is None else y * token_scale.reshape(-1).float().unsqueeze(-1)


def finished(rank: Rank, y: Tensor, arithmetic: Arithmetic) -> Tensor:
    """The residual added, the sum rounded."""
    if "residual" in rank.tensors:
        y = y + arithmetic.widen(rank.tensors["residual"])
    return arithmetic.round(y, rank.out_dtype())


def gathered(ranks: Sequence[Rank]) -> tuple[Tensor, Tensor | None]:
    """x of several ranks, one below the other, and their scales per token."""
    scales = [rank.tensors["token_scale"] for rank in ranks if "token_scale" in rank.tensors]
    return torch.cat([rank.x for rank in ranks]), torch.cat(scales) if scales else None


def own_products(ranks: Sequence[Rank], arithmetic: Arithmetic) -> list[Tensor]:
    """The product of each rank with its own x."""
    return [product(rank, rank.x, arithmetic, rank.tensors.get("token_scale")) for rank in ranks]


def all_reduce(ranks: Sequence[Rank], arithmetic: Arithmetic) -> list[Tensor]:
    """Type 0: the sum on every rank."""
    total = torch.stack(own_products(ranks, arithmetic)).sum(dim=0)
    return [finished(rank, total, arithmetic) for rank in ranks]


def reduce_scatter(ranks: Sequence[Rank], arithmetic: Arithmetic) -> list[Tensor]:
    """Type 1: a part of the rows of the sum for each rank."""
    total = torch.stack(own_products(ranks, arithmetic)).sum(dim=0)
    axis = 1 if total.dim() == 3 and total.shape[0] == 1 else 0
    if total.shape[axis] % len(ranks):
        raise refused(NAME, f"{total.shape[axis]} rows do not divide by {len(ranks)} ranks")
    parts = total.chunk(len(ranks), dim=axis)
    return [finished(rank, part, arithmetic) for rank, part in zip(ranks, parts, strict=True)]


def gather_and_scatter(
    ranks: Sequence[Rank], params: Params, arithmetic: Arithmetic
) -> list[Tensor]:
    """Type 4: x gathered in one direction of the grid of ranks, products summed in the other."""
    gather, scatter, inner_gather = two_dimensions(params, len(ranks))
    products = []
    for number, rank in enumerate(ranks):
        if inner_gather:
            first = number - number % gather
            peers = ranks[first : first + gather]
        else:
            peers = ranks[number % scatter :: scatter]
        x, scales = gathered(peers)
        products.append(product(rank, x, arithmetic, scales))
    outputs = []
    for number, rank in enumerate(ranks):
        if inner_gather:
            others, part = range(number % gather, len(ranks), gather), number // gather
        else:
            first = number - number % scatter
            others, part = range(first, first + scatter), number % scatter
        total = torch.stack([products[other] for other in others]).sum(dim=0)
        if len(total) % scatter:
            raise refused(NAME, f"{len(total)} rows do not divide by {scatter} ranks")
        outputs.append(finished(rank, total.chunk(scatter)[part], arithmetic))
    return outputs


def _picked(tables: Sequence[Tensor], source: Tensor, row: Tensor) -> Tensor:
    """``tables[source[i]][row[i]]``; the tables may have different lengths."""
    starts = torch.tensor([0, *(len(table) for table in tables)]).cumsum(0)
    if len(row) and bool((row >= starts.diff()[source]).any()):
        raise refused(NAME, "the token counts are more than the rows of a rank")
    return torch.cat(list(tables))[starts[source] + row]


def _expert_product(
    rank: Rank, x: Tensor, experts: Tensor, token_scale: Tensor | None, arithmetic: Arithmetic
) -> Tensor:
    """Rows times the weight of their local expert; experts ascend."""
    weight = rank.weight()
    parts = []
    for expert in range(len(weight)):
        rows = x[experts == expert]
        if x.dtype == torch.int8:
            scale = rank.scale().reshape(-1, weight.shape[-1])
            factor = scale[expert if len(scale) > 1 else 0]
            parts.append(integer_matmul(rows, weight[expert]).float() * factor)
        else:
            parts.append(wide_matmul(rows, weight[expert], arithmetic))
    y = torch.cat(parts)
    return y if token_scale is None else y * token_scale.float().unsqueeze(-1)


def expert_exchange(
    ranks: Sequence[Rank], params: Params, arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """Types 5 and 6: rows to their experts and multiplied there, or multiplied and sent back."""
    if int_param(NAME, params, "tpSize", 1) > 1:
        raise UnverifiableError(f"{NAME}: the order of rows with tpSize > 1 is not published")
    local = int_param(NAME, params, "local_expert_nums", 1)
    counts = ranks[0].tensors["token_counts"].long().reshape(len(ranks), -1)
    if counts.shape[1] != len(ranks) * local:
        raise refused(NAME, f"the token counts {list(counts.shape)} do not fit {len(ranks)} ranks")
    to_experts = ranks[0].config.kind is ParallelType.ALLTOALLVC_ALL_GATHER_GMM
    columns = ranks[0].weight().shape[-1]
    lengths = [rank.tensors["shape_holder"].shape[0] for rank in ranks]
    wide = (
        torch.float32 if ranks[0].x.dtype == torch.int8 else arithmetic.widen(ranks[0].x[:0]).dtype
    )
    outputs = [torch.zeros(length, columns, dtype=wide) for length in lengths]
    filled = [0] * len(ranks)
    for number, rank in enumerate(ranks):
        source, row, expert = expert_rows(counts, number, local)
        limit = min(len(row), lengths[number] if to_experts else len(rank.x))
        source, row, expert = source[:limit], row[:limit], expert[:limit]
        if to_experts:
            x = _picked([other.x for other in ranks], source, row)
            scales = None
            if "token_scale" in rank.tensors:
                tables = [other.tensors["token_scale"].reshape(-1) for other in ranks]
                scales = _picked(tables, source, row)
            outputs[number][:limit] = _expert_product(rank, x, expert, scales, arithmetic)
            filled[number] = limit
            continue
        scales = rank.tensors.get("token_scale")
        scales = None if scales is None else scales.reshape(-1)[:limit]
        y = _expert_product(rank, rank.x[:limit], expert, scales, arithmetic)
        for target in range(len(ranks)):
            chosen = source == target
            outputs[target][row[chosen]] = y[chosen]
            filled[target] = int(counts[target].sum())
    return tuple(
        Result(
            (finished(rank, output, arithmetic),),
            undefined={0: torch.arange(len(output)).unsqueeze(1) >= count},
        )
        for rank, output, count in zip(ranks, outputs, filled, strict=True)
    )
