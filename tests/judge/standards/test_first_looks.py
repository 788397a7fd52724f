"""What is looked at first saves time and changes no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.judge.standards.near import near_sums
from ait_llm.opcheck.golden import EXACT, GOLDEN, golden_ops
from ait_llm.opcheck.golden.base import UNROUNDED, Noting

HALVES = [torch.float16, torch.bfloat16]
TOKENS, HEADS, SIZE = 48, 4, 32


def case(name: str, dtype: torch.dtype) -> tuple[str, list[Tensor | None], dict[str, Any]]:
    generator = torch.Generator().manual_seed(7)

    def floats(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    lengths = torch.tensor([TOKENS], dtype=torch.int32)
    attention = {"headNum": HEADS, "kvHeadNum": HEADS, "qkScale": SIZE**-0.5}
    if name == "attention":
        heads: Sequence[Tensor] = [floats(TOKENS, HEADS, SIZE) for _ in range(3)]
        params = {**attention, "calcType": 3, "maskType": 0, "kernelType": 1}
        return "SelfAttentionOperation", [*heads, lengths], params
    if name == "product":
        linear = {"hasBias": False, "transposeB": True}
        return "LinearOperation", [floats(64, 256), floats(96, 256)], linear
    norm = {"layerType": 1, "normParam": {"epsilon": 1e-6, "quantType": 0}}
    return "RmsNormOperation", [floats(32, 256), floats(256)], norm


def judged(name: str, dtype: torch.dtype, mine: Tensor, *, quick: bool) -> bool:
    op_name, inputs, params = case(name, dtype)
    op = golden_ops.get(op_name)
    computation = Computation(
        op, inputs, params, lambda how: op.compute(inputs, params, how), verdict_only=quick
    )
    golden = computation.result(GOLDEN).outputs[0]
    output = Output("outtensor0", 0, False, golden, mine, None, computation)
    return standards.get("contract")(output).passed


def exact(name: str, dtype: torch.dtype) -> Tensor:
    op_name, inputs, params = case(name, dtype)
    return golden_ops.get(op_name).compute(inputs, params, EXACT).outputs[0].double()


def one_wrong(values: Tensor) -> Tensor:
    changed = values.clone()
    changed.view(-1)[5] *= 1.05
    return changed


def row_shifted(values: Tensor) -> Tensor:
    changed = values.clone()
    changed[3] += 0.3 * changed.std()
    return changed


def half_way(values: Tensor) -> Tensor:
    return torch.where(torch.arange(values.numel()).reshape(values.shape) % 3 == 0,
                       values * 1.002, values)  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["attention", "product", "norm"])
@pytest.mark.parametrize(
    "change",
    [
        *(lambda values, by=by: values * (1 + by) for by in (0, 1e-5, 3e-4, 1e-3, -3e-3, 1e-2)),
        *(lambda values, by=by: values + by * values.std() for by in (1e-4, 1e-3, 1e-2)),
        one_wrong,
        row_shifted,
        half_way,
        lambda values: values * float("nan"),
    ],
)
def test_verdicts_are_those_of_the_whole_contract(
    name: str, dtype: torch.dtype, change: Any
) -> None:
    mine = change(exact(name, dtype)).to(dtype)
    assert judged(name, dtype, mine, quick=True) is judged(name, dtype, mine, quick=False)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_kernel_that_stores_probabilities_passes_either_way(dtype: torch.dtype) -> None:
    _, (query, key, value, _), params = case("attention", dtype)
    assert query is not None
    assert key is not None
    assert value is not None
    scores = query.float().transpose(0, 1) @ key.float().permute(1, 2, 0) * params["qkScale"]
    stored = scores.softmax(-1).to(dtype).float() @ value.float().transpose(0, 1)
    mine = stored.transpose(0, 1).to(dtype)
    for quick in (True, False):
        assert judged("attention", dtype, mine, quick=quick)
        assert not judged("attention", dtype, (mine.float() * 1.01).to(dtype), quick=quick)


def test_results_that_round_once_are_known_by_the_first_look() -> None:
    op_name, inputs, params = case("product", torch.float16)
    op = golden_ops.get(op_name)
    computation = Computation(op, inputs, params, lambda how: op.compute(inputs, params, how))
    golden = computation.result(GOLDEN).outputs[0]
    right = exact("product", torch.float16).half()
    sums = near_sums(Output("outtensor0", 0, False, golden, right, None, computation))
    assert sums is not None
    assert 0.9 < sums.worst <= 1
    assert sums.squares / sums.used == pytest.approx(1, rel=0.05)
    error = (right.double() - exact("product", torch.float16)).norm()
    assert sums.error**0.5 == pytest.approx(float(error), rel=1e-3)
    for wrong in (right * 1.01, torch.full_like(right, float("inf"))):
        assert near_sums(Output("outtensor0", 0, False, golden, wrong, None, computation)) is None


def test_golden_before_and_after_its_rounding_come_from_one_evaluation() -> None:
    for name in ("attention", "product", "norm"):
        op_name, inputs, params = case(name, torch.bfloat16)
        op = golden_ops.get(op_name)
        noting = Noting(round_output=False)
        unrounded = op.compute(inputs, params, noting)
        rounded = noting.rounded(unrounded)
        assert rounded is not None
        assert torch.equal(rounded.outputs[0], op.compute(inputs, params, GOLDEN).outputs[0])
        assert torch.equal(unrounded.outputs[0], op.compute(inputs, params, UNROUNDED).outputs[0])


def test_an_operator_that_rounds_before_its_end_is_evaluated_as_ever() -> None:
    x = torch.randn(4, 16).half()
    noting = Noting(round_output=False)
    wide = noting.round(x.float() * 3, torch.float16)
    result = golden_ops.get("ElewiseOperation").compute([wide, wide], {"elewiseType": 8}, noting)
    assert noting.rounded(result) is None
