"""The check as a function: stopping, results as values, the benchmark standard."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_calls import RecordedCalls

from ait_llm.apicheck import CheckOptions, check_apis
from ait_llm.apicheck.calls import read_calls
from ait_llm.apicheck.checker import Checker, Selection
from ait_llm.apicheck.judging import Judge
from ait_llm.apicheck.sides import Side, golden_side
from ait_llm.opcheck.api.functions import Functions

CPU = torch.device("cpu")


def nine_calls(root: Path) -> Path:
    calls = RecordedCalls(root)
    for number in range(9):
        calls.add(f"Torch.abs.{number}", torch.full((2,), float(number)))
    return calls.write()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stopped_check_is_incomplete_and_can_be_continued(jobs: int, tmp_path: Path) -> None:
    dump = nine_calls(tmp_path / "run")
    stop = threading.Event()
    options = CheckOptions(device="cpu", jobs=jobs)
    first = check_apis(
        [dump],
        tmp_path,
        options,
        stop=stop,
        on_progress=lambda done, total: stop.set() if done else None,
    )
    assert (first.stopped, first.exit_code(), first.exit_code(allow_skip=True)) == (True, 3, 3)
    done = len(list(first.results))
    assert done < 9
    table = first.checked[0].files[0]
    second = check_apis([dump], tmp_path, CheckOptions(device="cpu", resume=table))
    assert second.checked[0].taken_over == done
    assert [each.name for each in second.results] == [f"Torch.abs.{i}" for i in range(9)]
    assert second.exit_code() == 0


def test_the_metrics_of_each_output_are_in_the_result(tmp_path: Path) -> None:
    outcome = check_apis([nine_calls(tmp_path / "run")], tmp_path, CheckOptions(device="cpu"))
    (output,) = next(outcome.results).outputs
    assert output.shape == (2,)
    assert output.metrics is not None
    assert output.metrics.unequal == 0.0


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "pass"), (1.01, "error")])
def test_the_benchmark_standard_holds_a_device_to_the_cpu_in_its_precision(
    factor: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of its own is simulated: of the runs in half, the first is that of the device."""
    runs: list[torch.dtype] = []
    exp = torch.exp

    def on_device(x: torch.Tensor) -> Any:
        runs.append(x.dtype)
        is_device = x.dtype == torch.float16 and runs.count(torch.float16) == 1
        return (exp(x.float()) * (factor if is_device else 1.0)).to(x.dtype)

    monkeypatch.setattr(torch, "exp", on_device)
    x = torch.linspace(0, 2, 200).half()
    dump = RecordedCalls(tmp_path).add("Torch.exp.0", x).write()
    (file,) = read_calls([dump])
    judge = Judge("benchmark")
    checker = Checker(Functions(), Selection(), judge, golden_side(), Side(CPU))
    result = checker.check(checker.prepare(file.calls[0]), Side(CPU))
    assert result.forward == expected, result.message
    assert runs == [torch.float32, torch.float16, torch.float16]


def test_the_pass_of_a_call_without_gradients_is_not_run_backward(tmp_path: Path) -> None:
    x = torch.ones(4, requires_grad=True)
    calls = RecordedCalls(tmp_path / "run")
    calls.add("Torch.abs.0", x, gradients=[torch.ones(4)], out=torch.zeros(4))
    calls.add("Torch.repeat_interleave.0", x, 2, gradients=[torch.ones(8)])
    calls.add("Torch.unbind.0", x, gradients=[torch.ones(4)])
    outcome = check_apis([calls.write()], tmp_path, CheckOptions(device="cpu"))
    found = {each.name: each for each in outcome.results}
    assert all(each.forward == "pass" for each in found.values())
    assert all(each.backward == "SKIP" for each in found.values())
    missing = {name for name, each in found.items() if each.is_missing}
    assert missing == {"Torch.unbind.0"}  # the others are left out by rule
