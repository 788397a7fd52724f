"""The questions of msprobe's FAQ about the check of single APIs, each as a test, from a capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from ait_llm.apicheck import CheckOptions, check_apis
from ait_llm.apicheck.outcome import ApiResult

Checked = Callable[..., ApiResult]


@pytest.fixture
def checked(captured: Callable[..., Any], tmp_path: Path) -> Checked:
    """Captures the one call of a program and checks it on the CPU."""

    def run(program: Callable[[], Any], task: str = "tensor") -> ApiResult:
        captured(program, task=task, risk_level="ALL")
        (dump,) = (tmp_path / "dump").glob("step0/*/dump.json")
        (result,) = check_apis([dump], tmp_path / "out", CheckOptions(device="cpu")).results
        return result

    return run


def test_2_1_is_jit_compile_on_or_off_in_both(checked: Checked) -> None:
    """Compiled code is captured operator by operator, so there is nothing to switch alike."""
    x = torch.linspace(-1, 1, 64)
    compiled = torch.compile(lambda values: torch.tanh(values), backend="eager")
    result = checked(lambda: compiled(x))
    assert (result.name, result.forward) == ("Torch.tanh.0", "pass")


def test_2_2_what_is_the_check_of_type_as_worth(checked: Checked) -> None:
    x, like = torch.rand(8), torch.ones(1, dtype=torch.float16)
    result = checked(lambda: x.type_as(like))
    assert (result.name, result.forward) == ("Tensor.type_as.0", "pass")
    assert "type conversion: of limited value" in result.message


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_2_3_got_unsupported_scalar_type_bfloat16(checked: Checked, task: str) -> None:
    """With recorded values and with values made from statistics."""
    x = torch.rand(64).bfloat16()
    result = checked(lambda: torch.relu(x), task)
    assert (result.name, result.forward, result.message) == ("Torch.relu.0", "pass", "")
    assert [output.device_dtype for output in result.outputs] == ["torch.bfloat16"]


def test_2_4_why_does_a_dropout_pass_whose_numbers_are_random(checked: Checked) -> None:
    """Its zeros are counted, wherever they are."""
    x = torch.ones(10_000)
    result = checked(lambda: functional.dropout(x, 0.3, True))
    assert (result.name, result.forward) == ("Functional.dropout.0", "pass")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_2_5_why_do_the_types_of_bench_and_device_differ(
    checked: Checked, dtype: torch.dtype
) -> None:
    """The reference of 16 bits is computed in more, which is nearer to the true value."""
    x = torch.rand(64).to(dtype)
    (output,) = checked(lambda: torch.exp(x)).outputs
    assert output.device_dtype == str(dtype)
    assert output.golden_dtype in ("torch.float32", "torch.float64")
