"""Exchange between ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import (
    MOST_DIMS,
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_output,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank, require_shape
from ait_llm.hostatb.acceptance.ranks import require_backend, require_group
from ait_llm.hostatb.params.collective import AllReduceParam
from ait_llm.opcheck.golden.base import Refusal

_INT64_END = 1 << 63


def _group(*backends: str) -> Callable[[Params], None]:
    def create(params: Params) -> None:
        require_backend(params, *backends)
        require_group(params)

    return create


def _section(name: str) -> Callable[[Params], str]:
    return lambda params: name


# -- Gathering ----------------------------------------------------------------------------------


def _gather_inputs(params: Params, inputs: Descs) -> None:
    require_input(len(inputs[0].shape) < MOST_DIMS, 0, inputs[0], f"ndim < {MOST_DIMS}")


def _gather_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """Only the new first dimension is looked at."""
    got, wanted = outputs[0], inferred[0]
    if len(got.shape) != len(wanted.shape) or got.shape[0] != params["rankSize"]:
        require_output(0, got, wanted, Refusal.DIM)


accept(
    Acceptance(
        "AllGatherOperation",
        _section("AllGatherOperation"),
        _group("hccl", "lccl"),
        _gather_inputs,
        _gather_outputs,
    )
)


def _several_ranks(params: Params) -> None:
    require_backend(params, "hccl")
    require_param(params["rankSize"] >= 2, "rankSize", params["rankSize"], ">= 2")
    require_group(params)


def _gather_v_inputs(params: Params, inputs: Descs) -> None:
    size = params["rankSize"]
    for index in range(1, 5):
        require_rank(index, inputs[index], 1)
    for index, length in ((1, 1), (2, size), (3, size)):
        require_shape(index, inputs[index], length)


accept(
    Acceptance(
        "AllGatherVOperation",
        _section("AllGatherVOperation"),
        _several_ranks,
        _gather_v_inputs,
    )
)

# -- Reducing -----------------------------------------------------------------------------------

_Quant = AllReduceParam.QuantType
_REDUCTIONS = ("sum", "prod", "max", "min")
_NO_PRODUCT = (DType.INT16, DType.BFLOAT16)  # of the hccl backend
_MOST_CHANNELS = 4194304


def _require_reduction(params: Params, name: str) -> None:
    require_param(params[name] in _REDUCTIONS, name, params[name], ", ".join(_REDUCTIONS))
    product = params["backend"] == "lccl" and params[name] == "prod"
    require_param(not product, name, params[name], "sum, max, min (lccl)")


def _require_reducible(params: Params, name: str, inputs: Descs) -> None:
    """Types that the backend cannot reduce."""
    x = inputs[0]
    label = f"{x.dtype.label}{list(x.shape)}"
    if params["backend"] == "lccl":
        refused = x.dtype is DType.INT64
    else:
        refused = params[name] == "prod" and x.dtype in _NO_PRODUCT
    how = f"{name} {params[name]}, {params['backend']}"
    require_param(not refused, "x", label, f"other types ({how})", Refusal.DTYPE)


def _reduce(params: Params) -> None:
    quant, backend, out = params["quantType"], params["backend"], int(params["outDataType"])
    if quant != _Quant.QUANT_TYPE_UNQUANT:
        kinds = (_Quant.QUANT_TYPE_PER_TENSOR, _Quant.QUANT_TYPE_PER_CHANNEL)
        require_param(quant in kinds, "quantType", int(quant), "0, 1, 2")
        require_param(backend == "lccl", "quantType", int(quant), f"0 ({backend})")
        how = params["allReduceType"]
        require_param(how == "sum", "allReduceType", how, f"sum (quantType {int(quant)})")
        half = DType.FLOAT16.code
        require_param(out == half, "outDataType", out, f"{half} (quantType {int(quant)})")
    require_backend(params, "hccl", "lccl")
    require_group(params)
    _require_reduction(params, "allReduceType")


def _reduce_table(params: Params) -> str:
    quantised = params["quantType"] != _Quant.QUANT_TYPE_UNQUANT
    return f"AllReduceOperation{'Quant' if quantised else ''}"


def _reduce_inputs(params: Params, inputs: Descs) -> None:
    _require_reducible(params, "allReduceType", inputs)
    if len(inputs) == 1:
        return
    x, scale, offset = inputs
    channels = x.shape[-1]
    require_input(channels % 16 == 0, 0, x, "[..., 16 * n]")
    require_shape(2, offset, 1)
    require_rank(1, scale, 1, 2)
    if params["quantType"] == _Quant.QUANT_TYPE_PER_TENSOR:
        require_shape(1, scale, 1)
        return
    require_input(channels <= _MOST_CHANNELS, 0, x, f"[..., <= {_MOST_CHANNELS}]")
    fits = scale.shape in ((channels,), (1, channels))
    require_input(fits, 1, scale, f"[{channels}]")


accept(
    Acceptance(
        "AllReduceOperation",
        _reduce_table,
        _reduce,
        _reduce_inputs,
        counted_as(Refusal.DIM),
    )
)


def _scatter(params: Params) -> None:
    require_backend(params, "hccl", "lccl")
    _require_reduction(params, "reduceType")
    require_group(params)


def _scatter_inputs(params: Params, inputs: Descs) -> None:
    x, size = inputs[0], params["rankSize"]
    require_input(x.shape[0] % size == 0, 0, x, f"[{size} * n, ...]")
    _require_reducible(params, "reduceType", inputs)


def _scatter_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """Only the first dimension is looked at."""
    got, wanted = outputs[0], inferred[0]
    if len(got.shape) != len(wanted.shape) or got.shape[0] != wanted.shape[0]:
        require_output(0, got, wanted, Refusal.DIM)


accept(
    Acceptance(
        "ReduceScatterOperation",
        _section("ReduceScatterOperation"),
        _scatter,
        _scatter_inputs,
        _scatter_outputs,
    )
)


def _scatter_v(params: Params) -> None:
    """One rank alone passes without another look."""
    require_backend(params, "hccl")
    if params["rankSize"] < 2:
        return
    how = params["reduceType"]
    require_param(how in ("sum", "max", "min"), "reduceType", how, "sum, max, min")
    require_group(params)


def _scatter_v_inputs(params: Params, inputs: Descs) -> None:
    size = params["rankSize"]
    for index, rank in enumerate((2, 1, 1, 1, 1)):
        require_rank(index, inputs[index], rank)
    for index, length in ((1, size), (2, size), (3, 1)):
        require_shape(index, inputs[index], length)


accept(
    Acceptance(
        "ReduceScatterVOperation",
        _section("ReduceScatterVOperation"),
        _scatter_v,
        _scatter_v_inputs,
    )
)

# -- Exchanging ---------------------------------------------------------------------------------

_MOST_ROW_BYTES, _MOST_TENSOR_BYTES = 90 << 10, 190 << 20
_COUNTED_BYTES = 4  # of an entry, whatever its type is


def _exchange(params: Params) -> None:
    require_backend(params, "hccl", "lccl")
    backend, size, transposes = params["backend"], params["rankSize"], params["transpose"]
    wanted = backend == "lccl"  # this chip has the one kind with each backend
    require_param(transposes == wanted, "transpose", transposes, f"{wanted}".lower())
    require_group(params)
    if backend == "lccl":
        require_param(size % 2 == 0, "rankSize", size, "2 * n (lccl)")


def _exchange_table(params: Params) -> str:
    return f"AllToAllOperation{'Transpose' if params['transpose'] else ''}"


def _exchange_inputs(params: Params, inputs: Descs) -> None:
    if not params["transpose"]:
        return
    x, size = inputs[0], params["rankSize"]
    require_rank(0, x, 2)
    require_input(x.shape[1] % size == 0, 0, x, f"[rows, {size} * n]")
    most = _MOST_ROW_BYTES // _COUNTED_BYTES
    row = x.shape[1] * _COUNTED_BYTES // size
    require_input(row < _MOST_ROW_BYTES, 0, x, f"[rows, < {most * size}]")
    bytes_used = math.prod(x.shape) * x.dtype.bits // 8
    require_input(bytes_used <= _MOST_TENSOR_BYTES, 0, x, f"<= {_MOST_TENSOR_BYTES >> 20} MiB")


def _exchange_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    count = Refusal.DIM_COUNT if params["transpose"] else Refusal.DIM
    require_output(0, outputs[0], inferred[0], count)


accept(
    Acceptance(
        "AllToAllOperation",
        _exchange_table,
        _exchange,
        _exchange_inputs,
        _exchange_outputs,
    )
)

_LISTS = ("sendCounts", "sdispls", "recvCounts", "rdispls")


def _exchange_v(params: Params) -> None:
    require_backend(params, "hccl")
    require_group(params)
    size = params["rankSize"]
    for name in _LISTS:
        values = list(params[name])
        require_param(len(values) == size, f"len({name})", len(values), str(size))
        require_param(all(value >= 0 for value in values), name, values, ">= 0")


def _exchange_v_inputs(params: Params, inputs: Descs) -> None:
    send, sent_at, receive, received_at = (list(params[name]) for name in _LISTS)
    given, total = math.prod(inputs[0].shape), sum(receive)
    require_param(0 < total < _INT64_END, "sum(recvCounts)", total, "> 0")
    for names, counts, places, end in (
        ("sendCounts + sdispls", send, sent_at, given),
        ("recvCounts + rdispls", receive, received_at, total),
    ):
        ends = [count + place for count, place in zip(counts, places, strict=True)]
        require_param(max(ends) <= end, names, ends, f"<= {end}")


accept(
    Acceptance(
        "AllToAllVOperation",
        _section("AllToAllVOperation"),
        _exchange_v,
        _exchange_v_inputs,
    )
)


def _exchange_v2_setup(params: Params, inputs: Descs) -> None:
    size = params["rankSize"]
    for index in range(1, 5):
        fits = inputs[index].shape[0] == size
        require_input(fits, index, inputs[index], f"[{size}]", Refusal.PARAM)


accept(
    Acceptance(
        "AllToAllVV2Operation",
        _section("AllToAllVV2Operation"),
        _group("hccl"),
        setup_inputs=_exchange_v2_setup,
    )
)

# -- One rank to others -------------------------------------------------------------------------

accept(
    Acceptance(
        "BroadcastOperation",
        _section("BroadcastOperation"),
        _group("hccl", "lccl"),
    )
)


def _peer(name: str) -> Callable[[Params], None]:
    def create(params: Params) -> None:
        other, rank, size = params[name], params["rank"], params["rankSize"]
        require_param(other != rank and other < size, name, other, f"< {size}, != {rank}")
        require_backend(params, "hccl")
        require_group(params)

    return create


accept(Acceptance("SendOperation", _section("SendOperation"), _peer("destRank")))
accept(Acceptance("RecvOperation", _section("RecvOperation"), _peer("srcRank")))
