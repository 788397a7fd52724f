"""LinearParallel: a matrix product fused with the exchange between ranks that tensor or expert
parallelism needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    Params,
    Refusal,
    Result,
    UnverifiableError,
    collective_op,
)
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.linear import integer_matmul
from ait_llm.opcheck.golden.linear_parallel_config import (
    NAME,
    Config,
    ParallelType,
    QuantType,
    fused,
    read_config,
    two_dimensions,
)
from ait_llm.opcheck.golden.linear_parallel_experts import expert_rows
from ait_llm.opcheck.golden.quantise import scale_from_bits
from ait_llm.opcheck.golden.ranks import rank_size
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
    replace,
)
from ait_llm.opcheck.golden.support import (
    int_param,
    optional_at,
    refused,
    tensor_at,
    torch_dtype,
)


def _dtypes(config: Config, descs: Sequence[TensorDesc]) -> list[tuple[DType, ...]]:
    """Rows of the operator table for the inputs that the parameters imply."""
    rows = []
    for x, bias, scale, real in (
        *((real, real, real, real) for real in (F16, BF16)),
        (I8, I32, I64, F16),
        (I8, I32, I64, BF16),
        (I8, I32, F32, BF16),
    ):
        int8 = x is I8
        if int8 and config.quant is QuantType.NONE:
            continue
        types = {"x": x, "bias": bias, "scale": scale, "residual": real, "token_scale": F32}
        types["weight"] = x if config.quant is QuantType.NONE else I8
        rows.append(tuple(types.get(name, I32) for name in config.names))
    index = config.names.index("bias") if "bias" in config.names else None
    if index is not None and descs[index].elements == 0:
        rows = [(*row[:index], descs[index].dtype, *row[index + 1 :]) for row in rows]
    return rows


def _product_shape(config: Config, descs: Sequence[TensorDesc]) -> list[int]:
    """Shape of the local product."""
    check_rank(NAME, descs, 0, 2, 3)
    check_rank(NAME, descs, 1, 2, 3, 4)
    shape = descs[1].shape
    stored, columns = shape[-2:] if len(shape) < 4 else (shape[2], shape[1] * shape[3])
    if config.transpose:
        stored, columns = columns, stored
    if stored != descs[0].shape[-1]:
        raise refused(
            NAME,
            f"x has {descs[0].shape[-1]} and the weight {stored} entries along the summed "
            "dimension; they must be equal (see transWeight)",
        )
    return [*descs[0].shape[:-1], columns]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The local product's shape, its rows times ranks that gather, over ranks that scatter."""
    config = read_config(params)
    check_count(NAME, descs, len(config.names))
    check_dtypes(NAME, descs, _dtypes(config, descs))
    shape = _product_shape(config, descs)
    size, columns = rank_size(NAME, params), shape[-1]
    if "residual" in config.names:
        check_shape(NAME, descs, config.names.index("residual"), (1, columns), (columns,))
    dtype = descs[0].dtype if descs[0].dtype is not I8 else config.out_dtype
    if dtype not in (F16, BF16):
        raise refused(NAME, "an int8 x needs outDataType float16 (1) or bf16 (27)", Refusal.PARAM)
    if config.moe:
        local = int_param(NAME, params, "local_expert_nums", 1)
        group = int_param(NAME, params, "epSize", 1)
        check_shape(NAME, descs, len(descs) - 2, (group, group * local))
        shape[0] = descs[-1].shape[0]
    axis = 1 if config.kind is ParallelType.LINEAR_REDUCE_SCATTER and shape[0] == 1 else 0
    times, over = 1, 1
    if config.kind is ParallelType.LINEAR_REDUCE_SCATTER:
        over = size
    elif config.kind is ParallelType.ALL_GATHER_LINEAR:
        times = size
    elif config.kind is ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        times, over, _ = two_dimensions(params, size)
    if shape[axis] * times % over:
        raise refused(NAME, f"{shape[axis] * times} rows do not divide by {over} ranks")
    shape[axis] = shape[axis] * times // over
    output = TensorDesc(dtype, tuple(shape), FORMAT_ND)
    if not config.keep:
        return (output,)
    return output, replace(descs[0], (descs[0].shape[0] * size, *descs[0].shape[1:]))


@dataclass(frozen=True, slots=True)
class _Rank:
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
        return scale_from_bits(self.tensors["scale"])


def _rank_of(config: Config, inputs: Sequence[Tensor | None]) -> _Rank:
    tensors = {}
    for index, name in enumerate(config.names):
        found = optional_at(inputs, index) if name == "bias" else tensor_at(NAME, inputs, index)
        if found is not None:
            tensors[name] = found
    return _Rank(config, tensors)


def _wide_weight(rank: _Rank, arithmetic: Arithmetic) -> Tensor:
    """The weight for float x, dequantised and rounded to its dtype where it is int8."""
    weight = rank.weight()
    if rank.config.quant is QuantType.NONE:
        return arithmetic.widen(weight)
    values = weight.float()
    if "bias" in rank.tensors:
        values = values + rank.tensors["bias"].float()
    scale = rank.scale()
    if rank.config.quant is QuantType.PER_GROUP:
        size = rank.config.group_size
        if size < 1:
            raise refused(NAME, f"quantGroupSize is {size}; it takes at least 1", Refusal.PARAM)
        scale = scale.repeat_interleave(size, dim=0)[: values.shape[-2]]
    return arithmetic.widen((values * scale).to(rank.x.dtype))


def _product(rank: _Rank, x: Tensor, arithmetic: Arithmetic, token_scale: Tensor | None) -> Tensor:
    """``x . weight`` of one rank, dequantised, not rounded."""
    if x.dtype != torch.int8:
        return torch.matmul(arithmetic.widen(x), _wide_weight(rank, arithmetic))
    product = integer_matmul(x, rank.weight())
    if "bias" in rank.tensors:
        product = product + rank.tensors["bias"]
    y = product.float() * rank.scale()
    return y if token_scale is None else y * token_scale.reshape(-1).float().unsqueeze(-1)


def _finished(rank: _Rank, y: Tensor, arithmetic: Arithmetic) -> Tensor:
    """The residual added, the sum rounded."""
    if "residual" in rank.tensors:
        y = y + arithmetic.widen(rank.tensors["residual"])
    return arithmetic.round(y, rank.out_dtype())


def _gathered(ranks: Sequence[_Rank]) -> tuple[Tensor, Tensor | None]:
    """x of several ranks, one below the other, and their scales per token."""
    scales = [rank.tensors["token_scale"] for rank in ranks if "token_scale" in rank.tensors]
    return torch.cat([rank.x for rank in ranks]), torch.cat(scales) if scales else None


def _own(ranks: Sequence[_Rank], arithmetic: Arithmetic) -> list[Tensor]:
    return [_product(rank, rank.x, arithmetic, rank.tensors.get("token_scale")) for rank in ranks]


def _all_reduce(ranks: Sequence[_Rank], arithmetic: Arithmetic) -> list[Tensor]:
    total = torch.stack(_own(ranks, arithmetic)).sum(dim=0)
    return [_finished(rank, total, arithmetic) for rank in ranks]


def _reduce_scatter(ranks: Sequence[_Rank], arithmetic: Arithmetic) -> list[Tensor]:
    total = torch.stack(_own(ranks, arithmetic)).sum(dim=0)
    axis = 1 if total.dim() == 3 and total.shape[0] == 1 else 0
    if total.shape[axis] % len(ranks):
        raise refused(NAME, f"{total.shape[axis]} rows do not divide by {len(ranks)} ranks")
    parts = total.chunk(len(ranks), dim=axis)
    return [_finished(rank, part, arithmetic) for rank, part in zip(ranks, parts, strict=True)]


def _gather_and_scatter(
    ranks: Sequence[_Rank], params: Params, arithmetic: Arithmetic
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
        x, scales = _gathered(peers)
        products.append(_product(rank, x, arithmetic, scales))
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
        outputs.append(_finished(rank, total.chunk(scatter)[part], arithmetic))
    return outputs


def _picked(tables: Sequence[Tensor], source: Tensor, row: Tensor) -> Tensor:
    """``tables[source[i]][row[i]]``; the tables may have different lengths."""
    starts = torch.tensor([0, *(len(table) for table in tables)]).cumsum(0)
    if len(row) and bool((row >= starts.diff()[source]).any()):
        raise refused(NAME, "the token counts are more than the rows of a rank")
    return torch.cat(list(tables))[starts[source] + row]


def _expert_product(
    rank: _Rank, x: Tensor, experts: Tensor, token_scale: Tensor | None, arithmetic: Arithmetic
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
            parts.append(arithmetic.widen(rows) @ arithmetic.widen(weight[expert]))
    y = torch.cat(parts)
    return y if token_scale is None else y * token_scale.float().unsqueeze(-1)


def _experts(ranks: Sequence[_Rank], params: Params, arithmetic: Arithmetic) -> tuple[Result, ...]:
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
            (_finished(rank, output, arithmetic),),
            undefined={0: torch.arange(len(output)).unsqueeze(1) >= count},
        )
        for rank, output, count in zip(ranks, outputs, filled, strict=True)
    )


def _needs_peers(params: Params) -> bool:
    pure = fused(params) and params.get("type", 0) == ParallelType.PURE_LINEAR
    return not pure and bool(params.get("rankSize", 0) > 1)


def _recover(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
) -> Params:
    """``twoDimTPInfo`` is never printed: output rows are input rows times agDim over rsDim.

    That neighbours gather is the default.
    """
    x, y = optional_at(inputs, 0), optional_at(outputs, 0)
    kind = ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER
    if "twoDimTPInfo" in params or params.get("type") != kind or x is None or y is None:
        return params
    size = rank_size(NAME, params)
    gather = math.isqrt(size * len(y) // len(x))
    if gather < 1 or gather * gather * len(x) != size * len(y) or size % gather:
        return params
    info = {"agDim": gather, "rsDim": size // gather, "innerDimIsAg": 1}
    return {**params, "twoDimTPInfo": info}


@collective_op(NAME, infer_shape=infer_shape, recover=_recover, needs_peers=_needs_peers)
def compute_ranks(
    inputs: Sequence[Sequence[Tensor | None]], params: Sequence[Params], arithmetic: Arithmetic
) -> tuple[Result, ...]:
    """With ``L_r = x_r . w_r``, by ``type``; sums are wide and rounded once.

    * 0: ``sum(L_r) + residual``; backends that do not fuse always do this.
    * 1: the rank's part of the rows of that sum, plus residual.
    * 2: ``cat(x_r) . w + residual``, with ``keepIntermediate`` also ``cat(x_r)``.
    * 3: ``L_r + residual``.
    * 4: x gathered over ``agDim`` ranks, products summed and scattered over ``rsDim`` ranks.
    * 5: rows sent to the ranks of their experts and multiplied there, ordered by local expert, then
      by source; 6: the reverse. Rows past the last token are undefined.

    Inputs, each where enabled: x; weight (transWeight ``[N, K]``, NZ too; experts leading for 5 and
    6); bias; scale; residual ``[N]``; token scale; token counts ``[epSize, epSize * local]``; a
    shape holder as long as the output. An int8 x is dequantised after the product,
    ``(acc + bias) * scale * token_scale``; beside a float x the weight is,
    ``(w + bias) * scale``, by groups of rows if ``quantType`` is 2.
    """
    config = read_config(params[0])
    ranks = [_rank_of(config, own) for own in inputs]
    if config.kind is ParallelType.PURE_LINEAR:
        products = _own(ranks, arithmetic)
        pairs = zip(ranks, products, strict=True)
        return tuple(Result((_finished(rank, y, arithmetic),)) for rank, y in pairs)
    if {rank_size(NAME, own) for own in params} != {len(ranks)}:
        raise refused(NAME, f"got tensors of {len(ranks)} ranks; rankSize says another number")
    if config.moe:
        return _experts(ranks, params[0], arithmetic)
    if config.kind is ParallelType.ALL_GATHER_LINEAR:
        x, scales = _gathered(ranks)
        outputs = [
            _finished(rank, _product(rank, x, arithmetic, scales), arithmetic) for rank in ranks
        ]
        kept = (x,) if config.keep else ()
        return tuple(Result((output, *kept)) for output in outputs)
    if config.kind is ParallelType.LINEAR_REDUCE_SCATTER:
        outputs = _reduce_scatter(ranks, arithmetic)
    elif config.kind is ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        outputs = _gather_and_scatter(ranks, params[0], arithmetic)
    else:
        outputs = _all_reduce(ranks, arithmetic)
    return tuple(Result((output,)) for output in outputs)
