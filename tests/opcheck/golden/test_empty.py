"""No tokens, no problem: shapes follow and nothing fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result

Run = Callable[..., Result]


def _half(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float16)


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


NONE = _int32()
HEADS = {"headNum": 4, "kvHeadNum": 2}
CASES: list[tuple[str, list[Tensor], dict[str, Any]]] = [
    ("LinearOperation", [_half(0, 32), _half(64, 32), _half(64)], {}),
    ("LinearOperation", [_half(2, 0, 32), _half(64, 32), _half(64)], {}),
    ("RmsNormOperation", [_half(0, 32), _half(32)], {"layerType": 1}),
    (
        "RmsNormOperation",
        [_half(0, 32), _half(32), _half(32)],
        {"layerType": 1, "normParam": {"quantType": 2, "dynamicQuantType": 1}},
    ),
    (
        "LayerNormOperation",
        [_half(0, 32), _half(32), _half(32)],
        {"layerType": 1, "normParam": {"beginNormAxis": 1}},
    ),
    ("ElewiseOperation", [_half(0, 32), _half(1, 32)], {"elewiseType": 8}),
    ("ElewiseOperation", [_half(0, 32)], {"elewiseType": 19}),
    ("ActivationOperation", [_half(0, 32)], {"activationType": 6}),
    ("GatherOperation", [_half(5, 32), NONE], {}),
    ("GatherOperation", [_half(0, 32), _int32(0)], {}),
    (
        "RopeOperation",
        [_half(0, 32), _half(0, 16), _half(0, 16), _half(0, 16), NONE],
        {"rotaryCoeff": 2},
    ),
    ("SoftmaxOperation", [_half(0, 5)], {"axes": [-1]}),
    ("SoftmaxOperation", [_half(5, 0)], {"axes": [-1]}),
    ("TransposeOperation", [_half(0, 5)], {"perm": [1, 0]}),
    ("SplitOperation", [_half(0, 6)], {"splitDim": 1}),
    ("SliceOperation", [_half(0, 6)], {"offsets": [0, 0], "size": [-1, 2]}),
    ("ConcatOperation", [_half(0, 6), _half(2, 6)], {}),
    ("SortOperation", [_half(0, 6)], {"num": [2]}),
    ("ReduceOperation", [_half(0, 6)], {"axis": [0], "reduceType": 3}),
    (
        "ReshapeAndCacheOperation",
        [_half(0, 2, 16), _half(0, 2, 16), _half(3, 4, 2, 16), _half(3, 4, 2, 16), NONE],
        {},
    ),
    (
        "SelfAttentionOperation",
        [_half(0, 4, 16), _half(0, 2, 16), _half(0, 2, 16), _int32(0, 0)],
        {**HEADS, "calcType": 3},
    ),
    (
        "SelfAttentionOperation",
        [_half(0, 64), _half(0, 32), _half(0, 32), _int32(0)],
        {**HEADS, "calcType": 3},
    ),
    (
        "PagedAttentionOperation",
        [_half(0, 4, 16), _half(3, 4, 2, 16), _half(3, 4, 2, 16), NONE.reshape(0, 3), NONE],
        HEADS,
    ),
    ("TopkToppSamplingOperation", [_half(0, 16), _half(0, 1)], {"topk": 4}),
    (
        "TopkToppSamplingOperation",
        [_half(0, 16), NONE.reshape(0, 1), _half(0, 1)],
        {"topkToppSamplingType": 1},
    ),
    (
        "KvCacheOperation",
        [_half(0, 16), _int32(0), _half(1, 2, 4, 16), _int32(0, 0), _int32(0, 0)],
        {},
    ),
    ("CumsumOperation", [_half(0, 4)], {"axes": [0]}),
    ("NonzeroOperation", [torch.zeros(0, 3, dtype=torch.int64)], {}),
    ("SwigluQuantOperation", [_half(0, 16)], {}),
    ("MultinomialOperation", [_half(0, 16)], {}),
    ("TransdataOperation", [_half(0, 16)], {"transdataType": 2}),
    ("RepeatOperation", [_half(0, 16)], {"multiples": [2, 2]}),
]


@pytest.mark.parametrize(("op", "inputs", "params"), CASES, ids=[case[0] for case in CASES])
def test_empty_inputs_give_outputs_of_the_inferred_shape(
    run: Run, op: str, inputs: list[Tensor], params: dict[str, Any]
) -> None:
    run(op, inputs, params)


def test_the_largest_of_none_is_refused(run: Run) -> None:
    x = torch.zeros(0, 6, dtype=torch.bfloat16)
    with pytest.raises(OperationError, match="largest of none"):
        run("ReduceOperation", [x], {"axis": [0], "reduceType": 1})


def test_an_absent_input_is_named(run: Run) -> None:
    with pytest.raises(OperationError, match="input 1 is absent"):
        run("LinearOperation", [_half(2, 16), None], {"hasBias": False}, infer=False)
