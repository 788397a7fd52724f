"""What operators on mixtures of experts refuse, and with which status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.acceptance import Gate
from ait_llm.hostatb.params.base import param_types
from ait_llm.opcheck.golden.base import Refusal, RefusedError

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
I8, I32, I64 = DType.INT8, DType.INT32, DType.INT64
Shapes = Sequence[tuple[int, ...]]


def _gate(name: str, count: int, **fields: Any) -> Gate:
    param = param_types.get(f"{name}Param")()
    for key, value in fields.items():
        now = getattr(param, key)
        setattr(param, key, type(now)(value))
    return Gate(f"{name}Operation", param.entries(printed_only=False), count)


def _status(call: Any, *args: Any) -> int:
    with pytest.raises(RefusedError) as caught:
        call(*args)
    return caught.value.status


def _descs(types: Sequence[DType], shapes: Shapes) -> list[TensorDesc]:
    return [TensorDesc(*one) for one in zip(types, shapes, strict=True)]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("GroupedMatmulInplaceAdd", {"transpose_b": True}),
        ("GroupedMatmulWithRouting", {"top_k": 1}),
        ("GroupedMatmulWithRouting", {"top_k": 2, "out_data_type": 0}),
        ("GmmDeqSwigluQuantGmmDeq", {"weight_up_permute_type": 2}),
        ("GmmDeqSwigluQuantGmmDeq", {"transpose_weight_up": True}),
        ("MmDeqSwigluQuantMmDeq", {"output_type": 1}),
        ("MmDeqSwigluQuantMmDeq", {"transpose_weight_down": False}),
        ("Gating", {"cum_sum_num": 1025}),
        ("Gating", {"topk_expert_num": 2}),
        ("Gating", {"topk_expert_num": 9, "cum_sum_num": 8}),
        ("Gating", {"cum_sum_num": 8, "device_expert": [1, 1]}),
        ("Gating", {"cum_sum_num": 8, "device_expert": [8]}),
        ("GroupTopk", {"group_num": 0, "k": 1}),
        ("GroupTopk", {"group_num": 2, "k": 3}),
        ("GroupTopk", {"k": 1, "group_multi_flag": 1, "n": 0}),
        ("FusedAddTopkDiv", {"k": 0}),
        ("FusedAddTopkDiv", {"group_topk": 2}),
        ("FusedAddTopkDiv", {"activation_type": 1}),
    ],
)
def test_an_operator_on_experts_is_not_created_of_such_parameters(
    name: str, fields: dict[str, Any]
) -> None:
    assert _status(lambda: _gate(name, 2, **fields)) == Refusal.PARAM


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 3, 1), (4, 5), (2,), (6, 5)),
        ((4, 3), (5, 5), (2,), (6, 5)),
        ((4, 3), (4, 5), (129,), (387, 5)),
        ((4, 3), (4, 5), (2,), (7, 5)),
        ((4, 70000), (4, 5), (2,), (140000, 5)),
    ],
    ids=["dimensions", "other k", "many groups", "other total", "many rows"],
)
def test_grouped_products_are_added_to_a_tensor_of_all_groups(shapes: Shapes) -> None:
    gate = _gate("GroupedMatmulInplaceAdd", 4, transpose_a=True)
    types = (F16, F16, I64, F32)
    gate.check_inputs(_descs(types, ((4, 3), (4, 5), (2,), (6, 5))))
    gate.check_inputs(_descs(types, ((4, 3), (4, 5), (2,), (3, 10))))
    assert _status(gate.check_inputs, _descs(types, shapes)) == Refusal.DIM


_UP: Shapes = ((128, 64), (128, 32, 64), (128,), (256,))


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (128, 96)),
        (0, (127, 64)),
        (1, (128, 320, 64)),
        (1, (128, 48, 64)),
        (1, (127, 32, 64)),
        (2, (129,)),
        (3, (128,)),
    ],
)
def test_routed_products_have_sizes_that_the_kernel_takes(
    index: int, shape: tuple[int, ...]
) -> None:
    gate = _gate("GroupedMatmulWithRouting", 4, top_k=2)
    types = (F16, F16, I32, I32)
    gate.check_inputs(_descs(types, _UP))
    shapes = [*_UP[:index], shape, *_UP[index + 1 :]]
    assert _status(gate.check_inputs, _descs(types, shapes)) == Refusal.DIM


def test_routed_products_downwards_share_rows_among_tokens() -> None:
    down = type(param_types.get("GroupedMatmulWithRoutingParam")().grouped_matmul_type)(1)
    gate = _gate("GroupedMatmulWithRouting", 4, top_k=2, grouped_matmul_type=down)
    types = (F16, F16, I32, I32)
    gate.check_inputs(_descs(types, ((256, 32), (128, 64, 32), (128,), (256,))))
    small = ((128, 32), (128, 64, 32), (128,), (128,))
    assert _status(gate.check_inputs, _descs(types, small)) == Refusal.DIM


_BLOCK: Shapes = ((9, 7168), (7168, 4096), (4096,), (9,), (7168, 2048), (7168,))
_GROUPED: Shapes = (
    (9, 7168), (2, 7168, 4096), (2, 4096), (9,), (2,), (2, 7168, 2048), (2, 7168),
)  # fmt: skip


def _block(name: str) -> tuple[Gate, list[DType]]:
    types = [I8, I8, F32, F32, I8, F32]
    if name.startswith("G"):
        types.insert(4, I64)
    return _gate(name, len(types)), types


def _formatted(types: Sequence[DType], shapes: Shapes) -> list[TensorDesc]:
    """Weights are in blocks."""
    weights = [index for index, dtype in enumerate(types) if index and dtype is I8]
    return [
        TensorDesc(dtype, shape, 29 if index in weights else 2)
        for index, (dtype, shape) in enumerate(zip(types, shapes, strict=True))
    ]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("MmDeqSwigluQuantMmDeq", _BLOCK), ("GmmDeqSwigluQuantGmmDeq", _GROUPED)],
    ids=["one", "grouped"],
)
def test_a_quantised_block_has_one_size(name: str, shapes: Shapes) -> None:
    gate, types = _block(name)
    gate.check_inputs(_formatted(types, shapes))
    for index, shape in enumerate(shapes):
        before, after = shapes[:index], shapes[index + 1 :]
        longer = [*before, (*shape[:-1], shape[-1] + 1), *after]
        assert _status(gate.check_inputs, _formatted(types, longer)) == Refusal.DIM
        deeper = [*before, (1, *shape), *after]
        assert _status(gate.check_inputs, _formatted(types, deeper)) == Refusal.DIM_COUNT
    output, wrong = TensorDesc(F16, (9, 7168)), TensorDesc(F16, (8, 7168))
    given = _formatted(types, shapes)
    assert _status(gate.check_setup, given, [wrong], lambda: [output]) == Refusal.SIZE


@pytest.mark.parametrize(
    ("shapes", "status"),
    [
        (((2, 4), (8,)), Refusal.SIZE),
        (((9,), (9,)), Refusal.DIM),
        (((8,), (2, 4)), Refusal.SIZE),
        (((8,), (4,)), Refusal.DIM),
    ],
)
def test_gating_takes_two_vectors_of_one_length(shapes: Shapes, status: int) -> None:
    gate = _gate("Gating", 2, topk_expert_num=2, cum_sum_num=4)
    assert _status(gate.check_inputs, _descs((I32, I32), shapes)) == status


def test_gating_names_a_size_where_an_output_has_other_dimensions() -> None:
    gate = _gate("Gating", 2, topk_expert_num=2, cum_sum_num=4)
    given = _descs((I32, I32), ((8,), (8,)))
    right = _descs((I32, I32, I32), ((8,), (4,), (8,)))
    for index, desc in enumerate(right):
        for shape, status in (((1, *desc.shape), Refusal.SIZE), ((5,), Refusal.DIM)):
            outputs = [*right[:index], TensorDesc(I32, shape), *right[index + 1 :]]
            assert _status(gate.check_setup, given, outputs, lambda: right) == status


@pytest.mark.parametrize(
    ("fields", "shapes", "status"),
    [
        ({"group_num": 8, "k": 2}, ((4, 16, 1), (1024,)), Refusal.DIM_COUNT),
        ({"group_num": 8, "k": 2}, ((4, 20), (1024,)), Refusal.PARAM),
        ({"group_num": 32, "k": 2}, ((4, 16), (1024,)), Refusal.PARAM),
        ({"group_num": 8, "k": 2, "group_multi_flag": 1, "n": 3}, ((4, 16), (1024,)), 1),
        ({"group_num": 8, "k": 2}, ((4, 16), (512,)), Refusal.DIM),
        ({"group_num": 8, "k": 2}, ((4, 2048), (1024,)), Refusal.DIM),
    ],
    ids=["dimensions", "division", "groups", "best of a group", "order", "experts"],
)
def test_groups_of_experts_are_of_equal_size(
    fields: dict[str, int], shapes: Shapes, status: int
) -> None:
    gate = _gate("GroupTopk", 2, **fields)
    assert _status(gate.check_inputs, _descs((F16, I32), shapes)) == status


@pytest.mark.parametrize(
    ("fields", "shapes", "status"),
    [
        ({}, ((4, 16, 1), (16,)), Refusal.DIM_COUNT),
        ({}, ((4, 20), (20,)), Refusal.DIM),
        ({"k": 17}, ((4, 16), (16,)), Refusal.DIM),
        ({"n": 3}, ((4, 16), (16,)), Refusal.DIM),
        ({"group_num": 4}, ((4, 64), (64,)), Refusal.DIM),
        ({}, ((4, 16), (16, 1)), Refusal.DIM_COUNT),
        ({}, ((4, 16), (8,)), Refusal.DIM),
    ],
    ids=["dimensions", "division", "k", "n", "groups", "dimensions of bias", "bias"],
)
def test_chosen_experts_fit_their_groups(
    fields: dict[str, int], shapes: Shapes, status: int
) -> None:
    gate = _gate("FusedAddTopkDiv", 2, **{"group_num": 8, "k": 2} | fields)
    assert _status(gate.check_inputs, _descs((F16, F16), shapes)) == status


@pytest.mark.parametrize(
    ("index", "shape", "status"),
    [
        (2, (16, 1), Refusal.DIM_COUNT),
        (2, (15,), Refusal.DIM),
        (3, (16,), Refusal.DIM_COUNT),
        (3, (16, 129), Refusal.DIM),
    ],
)
def test_copies_of_experts_are_mapped_by_a_table(
    index: int, shape: tuple[int, ...], status: int
) -> None:
    gate = _gate("FusedAddTopkDiv", 4, group_num=8, k=2, enable_expert_mapping=True)
    shapes = [(4, 16), (16,), (16,), (16, 3)]
    types = (F16, F16, I32, I32)
    gate.check_inputs(_descs(types, shapes))
    shapes[index] = shape
    assert _status(gate.check_inputs, _descs(types, shapes)) == status
