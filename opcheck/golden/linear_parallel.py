"""LinearParallel: a matrix product fused with the exchange between ranks that tensor or expert
parallelism needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Refusal,
    Result,
    collective_op,
)
from ait_llm.opcheck.golden.linear_parallel_config import (
    NAME,
    Config,
    ParallelType,
    QuantType,
    fused,
    read_config,
    two_dimensions,
)
from ait_llm.opcheck.golden.linear_parallel_ranks import (
    all_reduce,
    expert_exchange,
    finished,
    gather_and_scatter,
    gathered,
    own_products,
    product,
    rank_of,
    reduce_scatter,
)
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
    if index is not None and descs[index].is_absent:
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


_SUMMED = (
    ParallelType.LINEAR_ALL_REDUCE,
    ParallelType.LINEAR_REDUCE_SCATTER,
    ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER,
)


def _kernel(params: Params) -> KernelArithmetic:
    """What is stored in 16 bits before the output.

    The product of each rank, and all sums of ranks but the last; a product before its residual is
    added; an int8 weight dequantised.
    """
    kind = params.get("type", 0) if fused(params) else ParallelType.LINEAR_ALL_REDUCE
    ranks = int(params.get("rankSize", 0))
    if kind == ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        ranks = int(dict(params.get("twoDimTPInfo") or {}).get("rsDim", ranks))
    exchanged = max(0, ranks - 1) if kind in _SUMMED else 0
    quantised = fused(params) and params.get("quantType", -1) != QuantType.NONE
    roundings = exchanged + bool(params.get("hasResidual")) + quantised
    return KernelArithmetic(roundings=roundings, products=not roundings)


@collective_op(
    NAME,
    infer_shape=infer_shape,
    recover=_recover,
    needs_peers=_needs_peers,
    kernel=_kernel,
)
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
    ranks = [rank_of(config, own) for own in inputs]
    if config.kind is ParallelType.PURE_LINEAR:
        products = own_products(ranks, arithmetic)
        pairs = zip(ranks, products, strict=True)
        return tuple(Result((finished(rank, y, arithmetic),)) for rank, y in pairs)
    if {rank_size(NAME, own) for own in params} != {len(ranks)}:
        raise refused(NAME, f"got tensors of {len(ranks)} ranks; rankSize says another number")
    if config.moe:
        return expert_exchange(ranks, params[0], arithmetic)
    if config.kind is ParallelType.ALL_GATHER_LINEAR:
        x, scales = gathered(ranks)
        outputs = [
            finished(rank, product(rank, x, arithmetic, scales), arithmetic) for rank in ranks
        ]
        kept = (x,) if config.keep else ()
        return tuple(Result((output, *kept)) for output in outputs)
    if config.kind is ParallelType.LINEAR_REDUCE_SCATTER:
        outputs = reduce_scatter(ranks, arithmetic)
    elif config.kind is ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        outputs = gather_and_scatter(ranks, params[0], arithmetic)
    else:
        outputs = all_reduce(ranks, arithmetic)
    return tuple(Result((output,)) for output in outputs)
