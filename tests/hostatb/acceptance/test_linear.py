"""What Linear, LinearSparse and LinearParallel refuse, and with which status."""

from __future__ import annotations

from typing import Any

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb import LinearParallelParam, LinearParam, LinearSparseParam
from ait_llm.hostatb.acceptance import Gate
from ait_llm.opcheck.golden.base import Refusal, RefusedError

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
I8, I32, I64 = DType.INT8, DType.INT32, DType.INT64
NZ = 29

Descs = list[TensorDesc]


def _status(call: Any, *args: Any) -> int:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status


def _gate(count: int, **fields: Any) -> Gate:
    return Gate("LinearOperation", LinearParam(**fields).entries(printed_only=False), count)


def _parallel(count: int, **fields: Any) -> Gate:
    named = {"rank_size": 2, "backend": "lcoc"} | fields
    param = LinearParallelParam(**named)
    return Gate("LinearParallelOperation", param.entries(printed_only=False), count)


def _moe(size: int, **fields: int) -> LinearParallelParam:
    param = LinearParallelParam(
        rank_size=size, backend="lcoc", type=LinearParallelParam.ParallelType(5)
    )
    info = param.moe_info
    for name, value in fields.items():
        setattr(info, name, value)
    param.moe_info = info
    return param


def _descs(*given: tuple[Any, ...]) -> Descs:
    return [TensorDesc(*one) for one in given]


@pytest.mark.parametrize(
    "fields",
    [
        {"matmul_type": 1, "has_bias": True},
        {"matmul_type": 1, "has_bias": False, "transpose_a": True},
        {"matmul_type": 1, "has_bias": False, "en_accum": True},
        {"matmul_type": 1, "has_bias": False, "out_data_type": 1},
        {"out_data_type": 0},
        {"quant_mode": 1},
        {"en_accum": True},
        {"out_data_type": 1, "en_accum": True, "has_bias": False},
        {"out_data_type": 27, "quant_mode": 2},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_a_product_is_not_created_of_parameters_that_exclude_each_other(
    fields: dict[str, Any],
) -> None:
    typed = dict(fields)
    if "matmul_type" in typed:
        typed["matmul_type"] = LinearParam.MatmulType(typed["matmul_type"])
    if "quant_mode" in typed:
        typed["quant_mode"] = LinearParam.QuantMode(typed["quant_mode"])
    if "out_data_type" in typed:
        typed["out_data_type"] = type(LinearParam().out_data_type)(typed["out_data_type"])
    assert _status(lambda: _gate(2, **typed)) == Refusal.PARAM


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (_descs((F16, (6,)), (F16, (4, 6))), Refusal.DIM_COUNT),
        (_descs((F16, (3, 6)), (F16, (1, 1, 4, 6))), Refusal.DIM_COUNT),
        (_descs((F16, (3, 6)), (F16, (2, 4, 6))), Refusal.DIM_COUNT),
        (_descs((F16, (2, 3, 6)), (F16, (3, 4, 6))), Refusal.DIM),
        (_descs((F16, (3, 6)), (F16, (4, 5))), Refusal.DIM),
        (_descs((F16, (3, 16)), (F16, (1, 1, 24, 16), NZ)), Refusal.DIM),
        (_descs((F16, (3, 32)), (F16, (1, 1, 16, 32), NZ)), Refusal.DIM),
        (_descs((F16, (3, 6), NZ), (F16, (4, 6))), Refusal.OPERATOR_TABLE),
        (_descs((F16, (3, 6)), (BF16, (4, 6))), Refusal.OPERATOR_TABLE),
        (_descs((F16, (3, 6))), Refusal.TENSOR_COUNT),
    ],
    ids=[
        "x of one dimension",
        "weight of four dimensions",
        "batch of the weight alone",
        "other batch",
        "other k",
        "rows of blocks",
        "width of blocks",
        "format of x",
        "mixed types",
        "one input",
    ],
)
def test_a_product_refuses_operands_that_do_not_go_together(given: Descs, status: int) -> None:
    gate = _gate(2, has_bias=False)
    assert _status(gate.check_inputs, given) == status


@pytest.mark.parametrize(
    ("shape", "status"),
    [((1, 1, 4), Refusal.DIM_COUNT), ((2, 4), Refusal.DIM), ((5,), Refusal.DIM)],
)
def test_a_product_refuses_a_bias_of_another_shape(shape: tuple[int, ...], status: int) -> None:
    gate = _gate(3)
    given = _descs((F16, (3, 6)), (F16, (4, 6)), (F16, shape))
    assert _status(gate.check_inputs, given) == status


def _by_token() -> Gate:
    kind = type(LinearParam().out_data_type)
    mode = LinearParam.QuantMode.PER_TOKEN
    return _gate(4, has_bias=False, out_data_type=kind(1), quant_mode=mode)


def test_batches_share_the_scales_of_columns_and_of_tokens() -> None:
    _by_token().check_inputs(_descs((I8, (2, 3, 8)), (I8, (2, 4, 8)), (F32, (4,)), (F32, (3,))))


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (((I8, (2, 3, 8)), (I8, (4, 8)), (F32, (4,)), (F32, (3,))), Refusal.DIM_COUNT),
        (((I8, (3, 8)), (I8, (4, 8)), (F32, (1, 4)), (F32, (3,))), Refusal.DIM_COUNT),
        (((I8, (3, 8)), (I8, (4, 8)), (F32, (5,)), (F32, (3,))), Refusal.DIM),
        (((I8, (3, 8)), (I8, (4, 8)), (F32, (4,)), (F32, (2,))), Refusal.DIM),
    ],
    ids=["shared weight", "scale of two dimensions", "columns", "tokens"],
)
def test_scales_by_token_are_refused_in_another_shape(given: Any, status: int) -> None:
    assert _status(_by_token().check_inputs, _descs(*given)) == status


@pytest.mark.parametrize(
    ("fields", "shapes"),
    [
        ({"transpose_a": True}, ((6, 3), (4, 6), (3, 4))),
        ({"transpose_b": False}, ((3, 6), (6, 4), (3, 4))),
        ({}, ((2, 3, 6), (4, 6), (2, 3, 4))),
    ],
    ids=["left transposed", "weight as it is", "batch"],
)
def test_float32_products_are_refused_at_setup_but_for_two_matrices(
    fields: dict[str, bool], shapes: tuple[tuple[int, ...], ...]
) -> None:
    gate = _gate(2, has_bias=False, **fields)
    x, weight, output = (TensorDesc(F32, shape) for shape in shapes)
    gate.check_inputs([x, weight])
    assert _status(gate.check_setup, [x, weight], [output], lambda: [output]) == Refusal.PARAM


def test_a_sparse_product_is_not_created_for_this_chip() -> None:
    entries = LinearSparseParam().entries(printed_only=False)
    assert _status(Gate, "LinearSparseOperation", entries, 5) == Refusal.PARAM


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_size": 0},
        {"rank": 2},
        {"rank_root": -1},
        {"rank_size": 3},
        {"backend": "other"},
        {"comm_domain": "1" * 129},
        {"rank_table_file": "no such file"},
        {"keep_intermediate": True},
        {"backend": "mc2"},
        {"type": LinearParallelParam.ParallelType.UNDEFINED},
        {"type": LinearParallelParam.ParallelType(1), "quant_type": 3},
    ],
    ids=lambda fields: "-".join(f"{key}={str(value)[:12]}" for key, value in fields.items()),
)
def test_a_parallel_product_is_not_created_of_such_parameters(fields: dict[str, Any]) -> None:
    if "quant_type" in fields:
        fields = fields | {"quant_type": LinearParallelParam.QuantType(fields["quant_type"])}
    assert _status(lambda: _parallel(2, **fields)) == Refusal.PARAM


@pytest.mark.parametrize(
    ("size", "fields"),
    [(2, {"epSize": 4}), (2, {"epSize": 2, "localExpertNums": 17})],
    ids=["group", "experts"],
)
def test_experts_of_a_parallel_product_fill_the_group(size: int, fields: dict[str, int]) -> None:
    entries = _moe(size, **fields).entries(printed_only=False)
    assert _status(Gate, "LinearParallelOperation", entries, 4) == Refusal.PARAM


@pytest.mark.parametrize(
    "given",
    [
        _descs((F16, (16,)), (F16, (32, 16))),
        _descs((F16, (2, 16)), (F16, (2, 32, 16))),
        _descs((F16, (2, 16)), (F16, (32, 8))),
    ],
    ids=["one dimension", "batch of weights", "other k"],
)
def test_whatever_is_wrong_with_a_parallel_product_has_one_status(given: Descs) -> None:
    assert _status(_parallel(2).check_inputs, given) == Refusal.DIM


def test_scattered_rows_divide_by_the_ranks() -> None:
    gate = _parallel(2, type=LinearParallelParam.ParallelType.LINEAR_REDUCE_SCATTER)
    given = _descs((F16, (3, 16)), (F16, (32, 16)))
    assert _status(gate.check_inputs, given) == Refusal.DIM


def test_a_group_of_quantised_rows_goes_with_float_activations_at_setup() -> None:
    quant = LinearParallelParam.QuantType.QUANT_TYPE_PER_GROUP
    out = type(LinearParam().out_data_type)(27)
    gate = _parallel(4, quant_type=quant, out_data_type=out)
    given = _descs((I8, (2, 8)), (I8, (4, 8)), (I32, (4,)), (I64, (4,)))
    output = TensorDesc(BF16, (2, 4))
    assert _status(gate.check_setup, given, [output], lambda: [output]) == Refusal.PARAM


def test_a_parallel_product_refuses_an_output_of_another_number_of_dimensions() -> None:
    given = _descs((F16, (2, 16)), (F16, (32, 16)))
    right, wrong = TensorDesc(F16, (2, 32)), TensorDesc(F16, (2, 1, 32))
    assert _status(_parallel(2).check_setup, given, [wrong], lambda: [right]) == Refusal.DIM
