"""What the vendor's own generator makes of its cases is a legal result, whoever computes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from vendor_outputs import judged

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck import check
from ait_llm.opcheck.selftest.recorded import Recorded, load

CASES = load()


def _to_whole_numbers_at_once(one: Recorded) -> Tensor:
    """RmsNorm that rounds float32 to int8, where the device's kernel has float16 between them."""
    x, gamma, beta, scale, offset = (tensor.float() for tensor in one.inputs)
    norm = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma + beta
    return (norm / scale + offset).round().clamp(-128, 127).to(torch.int8)


def _rotated_in_steps_of_float16(one: Recorded) -> Tensor:
    """Where the device's kernel computes in float32 and casts once."""
    key, cos, sin, slots = one.inputs[2:6]
    left, right = key.chunk(2, -1)
    rotated = key * cos + torch.cat([-right, left], -1) * sin
    made = one.compute().outputs[0].flatten(0, 1)
    made[slots.long(), :, -key.shape[1] :] = rotated.unsqueeze(1)
    return made.reshape(one.golden[0].shape)


PLACEHOLDER = "the operator does not say what this output holds"
# No kernel makes them: what the generator does otherwise, which gives its numbers.
NOT_OF_A_KERNEL = {
    "rms_norm 13": _to_whole_numbers_at_once,
    "norm_rope_reshape 5, smaller": _rotated_in_steps_of_float16,
}


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.op}-{one.case}")
def test_a_result_of_the_vendors_is_not_accused(one: Recorded) -> None:
    failed = [item for item in judged(one) if item.checked.verdict is not Verdict.PASS]
    if one.case not in NOT_OF_A_KERNEL:
        assert {item.checked.reason for item in failed} <= {PLACEHOLDER}
        return
    assert failed
    made = NOT_OF_A_KERNEL[one.case](one)
    assert torch.equal(made, one.golden[0].reshape(made.shape))


def test_a_result_with_one_wrong_element_is_accused() -> None:
    """The test above can fail."""
    found = set()
    for one in CASES:
        first = one.golden[0]
        if not first.is_floating_point() or first.numel() < 8 or not bool(first.isfinite().all()):
            continue
        wrong = first.clone()
        wrong.reshape(-1)[3] = wrong.abs().max() * 2 + 1
        changed = Recorded(
            one.op, one.case, one.params, one.inputs, [wrong, *one.golden[1:]], one.ranks
        )
        if all(item.checked.verdict is Verdict.PASS for item in judged(changed)):
            found.add(one.op)
    assert found <= {"DynamicNTKOperation"}, found


def _half_rope_gradients(*inputs: Tensor) -> tuple[Tensor, ...]:
    """As the device's kernel has it: the sum of the tables, and each product, in float16."""
    query, key, cos, sin = inputs
    table = cos + torch.cat([sin[:, 64:], -sin[:, :64]], -1)
    return query * table[: len(query)], key * table[: len(key)]


def test_gradients_of_rotary_positions_may_take_the_sum_of_their_tables_in_float16() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(300, 128).half() * 40 for _ in range(2)]
    inputs += [(torch.randn(512, 128) * 9).half() for _ in range(2)]
    found = check(
        "RopeGradOperation", inputs, {"qSeqLen": [300]}, outputs=_half_rope_gradients(*inputs)
    )
    assert found, str(found)
    wrong = [one * 1.01 for one in _half_rope_gradients(*inputs)]
    assert not check("RopeGradOperation", inputs, {"qSeqLen": [300]}, outputs=wrong)
