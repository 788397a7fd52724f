"""What Activation, Elewise, Softmax and Reduce refuse, and with which status."""

from __future__ import annotations

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.acceptance import Gate
from ait_llm.opcheck.golden.base import Refusal, RefusedError

F16, F64 = DType.FLOAT16, DType.FLOAT64


def _params(kind: int, dim: int = -1) -> dict[str, int]:
    return {"activationType": kind, "dim": dim}


@pytest.mark.parametrize(("kind", "dim"), [(0, -1), (10, -1), (6, 0), (2, 1)])
def test_an_activation_is_not_created_of_an_unknown_type_or_along_another_dimension(
    kind: int, dim: int
) -> None:
    with pytest.raises(RefusedError) as caught:
        Gate("ActivationOperation", _params(kind, dim), 1)
    assert caught.value.status == Refusal.PARAM


@pytest.mark.parametrize(
    ("desc", "status"),
    [
        (TensorDesc(F64, (2, 4)), Refusal.OPERATOR_TABLE),
        (TensorDesc(F16, (2, 4), 29), Refusal.OPERATOR_TABLE),
        (TensorDesc(F16, ()), Refusal.DIM),
        (TensorDesc(F16, (2, 0)), Refusal.SIZE),
        (TensorDesc(F16, (1 << 20, 1 << 20)), Refusal.SIZE),
    ],
    ids=["type", "format", "no dimension", "no element", "too large"],
)
def test_swiglu_refuses_an_input_when_shapes_are_inferred(desc: TensorDesc, status: int) -> None:
    gate = Gate("ActivationOperation", _params(6), 1)
    with pytest.raises(RefusedError) as caught:
        gate.check_inputs([desc])
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (TensorDesc(DType.BFLOAT16, (2, 4)), Refusal.OPERATOR_TABLE),
        (TensorDesc(F16, (2, 4, 1)), Refusal.DIM),
        (TensorDesc(F16, (2, 5)), Refusal.DIM),
    ],
    ids=["type", "number of dimensions", "dimension"],
)
def test_relu_of_float16_refuses_an_output_at_setup(output: TensorDesc, status: int) -> None:
    gate = Gate("ActivationOperation", _params(2), 1)
    desc = TensorDesc(F16, (2, 4))
    with pytest.raises(RefusedError) as caught:
        gate.check_setup([desc], [output], lambda: [desc])
    assert caught.value.status == status
