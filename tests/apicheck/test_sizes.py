"""Records of a few bytes that ask for sizes without end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_calls import RecordedCalls

from ait_llm.apicheck import CheckOptions, check_apis, inputs
from ait_llm.apicheck.sizes import check_size
from ait_llm.opcheck.api.unchecked import UncheckableError

HUGE = 1 << 40


def message(root: Path, name: str, *args: Any, **kwargs: Any) -> str:
    dump = RecordedCalls(root / "run").add(name, *args, **kwargs).write()
    outcome = check_apis([dump], root, CheckOptions(device="cpu"))
    (result,) = outcome.results
    assert result.forward == "SKIP"
    assert outcome.exit_code() == 3
    return result.message


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Tensor.repeat.0", (torch.ones(3), HUGE)),
        ("Tensor.expand.0", (torch.ones(1), HUGE)),
        ("Torch.diag.0", (torch.ones(1 << 20),)),
        ("Torch.outer.0", (torch.ones(1 << 20), torch.ones(1 << 20))),
        ("Torch.repeat_interleave.0", (torch.ones(1), torch.tensor([HUGE]))),
        ("Torch.bincount.0", (torch.tensor([HUGE]),)),
        ("Functional.one_hot.0", (torch.tensor([HUGE]),)),
        ("Torch.combinations.0", (torch.ones(100), 20)),
        ("Functional.pad.0", (torch.ones(2), [0, HUGE])),
    ],
)
def test_a_call_that_makes_too_much_is_not_run(
    name: str, args: tuple[Any, ...], tmp_path: Path
) -> None:
    assert "that is too large to be run" in message(tmp_path, name, *args)


def test_what_a_call_makes_on_its_way_counts(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x[:, None] * x[None]).sum()

    with pytest.raises(UncheckableError, match="1099511627776"):
        check_size(function, "square", [torch.ones(1 << 20)], {}, 0)


def test_results_that_the_dump_holds_are_as_large_as_they_are() -> None:
    check_size(torch.zeros, "zeros", [1 << 30], {}, 1 << 30)


def test_tensors_without_values_are_made_up_within_one_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MAX_ELEMENTS", 100)
    calls = RecordedCalls(tmp_path / "run", values=False)
    described = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [60],
        "Max": 1.0,
        "Min": 0.0,
        "requires_grad": False,
    }
    dump = calls.add("Torch.cat.0", [described] * 2).write()
    (result,) = check_apis([dump], tmp_path, CheckOptions(device="cpu")).results
    assert "too large to be made up" in result.message
