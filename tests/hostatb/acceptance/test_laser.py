"""LaserAttention's third output, whose shape the library does not look at."""

from __future__ import annotations

import pytest
import torch

from ait_llm.hostatb.context import current_context
from ait_llm.hostatb.operation import Operation
from ait_llm.hostatb.params.train import LaserAttentionParam
from ait_llm.hostatb.tensors import native_tensor

pytestmark = pytest.mark.native
SHAPE = (1, 1, 256, 128)


@pytest.mark.parametrize("room", [(1,), SHAPE], ids=["too small", "as inferred"])
def test_an_output_that_is_not_looked_at_is_written_where_there_is_room(
    room: tuple[int, ...],
) -> None:
    operation = Operation(LaserAttentionParam(head_num=1, pre_tokens=256, scale_value=0.1))
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(SHAPE, generator=generator).bfloat16() for _ in range(3)]
    absent = [torch.empty(0, dtype=kind) for kind in ABSENT]
    sums = [torch.zeros(1, 1, 256) for _ in range(2)]
    made = [*sums, torch.full(room, 7.0).bfloat16(), torch.zeros(SHAPE).bfloat16()]
    inputs, outputs = ([native_tensor(one) for one in side] for side in ([*given, *absent], made))
    context = current_context()
    operation._native.setup(context, inputs, outputs)
    operation._native.execute(context, inputs, outputs)
    scores = given[0].double() @ given[1].double().mT * 0.1
    torch.testing.assert_close(
        made[3].double(), scores.softmax(-1) @ given[2].double(), rtol=0.05, atol=0.05
    )
    assert (made[2] == 7).all().item() == (room == (1,))


ABSENT = (
    torch.bfloat16, torch.uint8, torch.bfloat16, torch.bfloat16, torch.int64, torch.int64,
    torch.int64,
)  # fmt: skip
