"""Weights in FRACTAL_NZ with the dims of their matrix, as torch_npu's format cast makes them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from fault_matrix import dump

import ait_llm.hostatb as torch_atb
from ait_llm.core import FORMAT_FRACTAL_NZ
from ait_llm.core.comparison import Verdict
from ait_llm.errors import OperationError
from ait_llm.hostatb.tensors import format_cast, native_tensor, with_format
from ait_llm.opcheck.pipeline import opcheck

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
SHAPES = [((5, 48), (32, 48)), ((2, 3), (4, 3)), ((2, 5, 40), (2, 20, 40)), ((2, 2, 3), (4, 3))]
PROGRAM = """
import torch
import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.tensors import format_cast

torch.manual_seed(0)
linear = torch_atb.Operation(torch_atb.LinearParam(has_bias=False))
linear.forward([torch.randn(2, {k}).half(), format_cast(torch.randn({n}, {k}).half(), 29)])
"""


@pytest.mark.parametrize(("x_shape", "shape"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_with_blocked_weights_is_that_with_the_matrix(
    x_shape: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, weight = torch.randn(x_shape).to(dtype), torch.randn(shape).to(dtype)
    blocked = format_cast(weight, FORMAT_FRACTAL_NZ)
    assert native_tensor(blocked).desc.shape == shape
    (found,) = torch_atb.Operation(torch_atb.LinearParam(has_bias=False)).forward([x, blocked])
    expected = x.double() @ weight.double().transpose(-1, -2)
    assert torch.allclose(found.double(), expected, rtol=2e-2, atol=2e-2)


def test_the_memory_holds_blocks_of_16_columns_and_their_padding() -> None:
    weight = torch.arange(1.0, 2 * 20 + 1).reshape(2, 20).half()
    stored = torch.empty(0).half().set_(format_cast(weight, FORMAT_FRACTAL_NZ).untyped_storage())
    blocks = stored.reshape(2, 16, 16)
    assert torch.equal(blocks[0, :2], weight[:, :16])
    assert torch.equal(blocks[1, :2, :4], weight[:, 16:])
    assert blocks.sum() == weight.sum()


@pytest.mark.parametrize("transposed", [True, False])
def test_per_token_scales_belong_to_the_rows_of_each_of_a_batch_of_int8_products(
    transposed: bool,
) -> None:
    shape = (2, 32, 64) if transposed else (2, 64, 32)
    x = torch.randint(-9, 10, (2, 3, 64)).to(torch.int8)
    weight = torch.randint(-9, 10, shape).to(torch.int8)
    scale, token_scale = torch.rand(32) / 64, torch.rand(3)
    param = torch_atb.LinearParam(
        transpose_b=transposed, has_bias=False, out_data_type=torch_atb.AclDataType.ACL_FLOAT16
    )
    param.quant_mode = torch_atb.LinearParam.QuantMode.PER_TOKEN
    matrix = weight.transpose(-1, -2) if transposed else weight
    exact = x.double() @ matrix.double() * scale.double() * token_scale.double().unsqueeze(-1)
    (found,) = torch_atb.Operation(param).forward([x, weight, scale, token_scale])
    assert torch.allclose(found.double(), exact, rtol=1e-3, atol=1e-4)


def test_int8_weights_lie_in_blocks_of_32_columns() -> None:
    x = torch.randint(-9, 10, (2, 3, 64)).to(torch.int8)
    weight = torch.randint(-9, 10, (2, 32, 64)).to(torch.int8)
    scale = torch.full((2, 32), 2.0**-6)
    bits = scale.view(torch.int32).long()
    param = torch_atb.LinearParam(has_bias=False, out_data_type=torch_atb.AclDataType.ACL_FLOAT16)
    inputs = [x, format_cast(weight, FORMAT_FRACTAL_NZ), bits]
    (found,) = torch_atb.Operation(param).forward(inputs)
    exact = x.double() @ weight.double().transpose(-1, -2) / 64
    assert torch.equal(found.double(), exact.half().double())


def test_a_marked_tensor_that_has_no_room_for_its_blocks_is_refused() -> None:
    weight = with_format(torch.zeros(4, 3).half(), FORMAT_FRACTAL_NZ)
    linear = torch_atb.Operation(torch_atb.LinearParam(has_bias=False))
    with pytest.raises(OperationError, match=r"takes 512 bytes of blocks .*format_cast"):
        linear.forward([torch.zeros(2, 3).half(), weight])


def test_other_formats_are_not_made() -> None:
    with pytest.raises(OperationError, match="format 3 of "):
        format_cast(torch.zeros(4, 4), 3)
    with pytest.raises(OperationError, match="format 29 of "):
        format_cast(torch.zeros(4), FORMAT_FRACTAL_NZ)


@pytest.mark.parametrize(("n", "k", "verdict"), [(32, 48, Verdict.PASS), (4, 3, Verdict.SKIPPED)])
def test_a_dump_of_blocked_weights_is_no_failure(
    n: int, k: int, verdict: Verdict, tmp_path: Path
) -> None:
    dump([sys.executable, "-c", PROGRAM.format(n=n, k=k)], tmp_path, "--type", "tensor", "op")
    report = opcheck(str(tmp_path / "ait_dump"))
    (item,) = report.items
    assert item.verdict is verdict, item.reason
    if verdict is Verdict.SKIPPED:
        assert "padding of its blocks was not saved" in item.reason
