"""Names of chips, and what golden operators make of them."""

from __future__ import annotations

import pytest
import torch

from ait_llm.errors import UsageError
from ait_llm.opcheck import check
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.soc import Soc, soc_named, soc_of

ATTENTION = {"headNum": 1, "calcType": 3, "qkScale": 0.125, "maskType": 1}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Ascend910B3", Soc.ASCEND_910B),
        ("910b", Soc.ASCEND_910B),
        ("Ascend910_9391", Soc.ASCEND_910_93),
        ("Ascend310P3", Soc.ASCEND_310P),
        (" ascend310b4 ", Soc.ASCEND_310B),
        ("Ascend910ProB", Soc.ASCEND_910A),
        ("Ascend910PremiumA", Soc.ASCEND_910A),
        ("Ascend950PR_9599", Soc.ASCEND_950),
    ],
)
def test_a_chip_belongs_to_its_family(name: str, family: Soc) -> None:
    assert soc_named(name) is family


@pytest.mark.parametrize("name", ["", "Ascend", "A100", "Ascend910", 7, None])
def test_what_is_no_chip_of_the_library_is_refused_or_not_known(name: object) -> None:
    assert soc_of(name) is None
    with pytest.raises(UsageError, match=r"unknown chip .*Ascend310P, Ascend910A"):
        soc_named(str(name))


@pytest.mark.parametrize(
    ("kernel", "soc", "sums"),
    [(0, "", True), (0, "Ascend910B", True), (0, "Ascend310P3", False), (1, "", False)],
)
def test_the_default_kernel_keeps_sums_in_float16_but_on_chips_with_one_kind_of_core(
    kernel: int, soc: str, sums: bool
) -> None:
    golden = golden_ops.get("SelfAttentionOperation")
    params = {**ATTENTION, "kernelType": kernel, "socVersion": soc}
    assert golden.kernel(params).half_sums is sums


def test_masks_in_blocks_are_added_as_they_are_whatever_the_precision() -> None:
    query, key, value = (torch.randn(4, 1, 16).half() for _ in range(3))
    mask = torch.ones(4, 4).triu(1).half()
    inputs = [query, key, value, mask, torch.tensor([4], dtype=torch.int32)]
    params = {**ATTENTION, "kernelType": 1}
    scores = query[:, 0].float() @ key[:, 0].float().T / 8 + mask.float()
    mine = (scores.softmax(-1) @ value[:, 0].float()).half().unsqueeze(1)
    op = "SelfAttention"
    assert check(op, inputs, params, outputs=mine, soc="Ascend310P3")
    assert not check(op, inputs, params, outputs=mine, soc="Ascend910B3")


def test_a_check_refuses_a_chip_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="unknown chip 'A100'"):
        check(
            "Cumsum", [torch.ones(2, 2).half()], {"axes": [1]}, outputs=torch.ones(2, 2), soc="A100"
        )
