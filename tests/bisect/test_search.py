"""The search with small models that are captured in this process instead of as programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bisect_programs import TOKENS, InProcess, search
from capture_models import Decoder, capture
from torch import nn

from ait_llm.bisect import Budget, RunRecord
from ait_llm.bisect.captures import OperatorSelection, Selection
from ait_llm.bisect.picture import Picture, look
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError

GUILTY, BEFORE_IT = "root.layers.1.1", "root.layers.1.0"


def scaled(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 1.05


def faulty() -> nn.Module:
    model = Decoder()
    model.get_submodule(GUILTY.removeprefix("root.")).register_forward_hook(scaled)
    return model


class Restless(Decoder):
    """Adds noise in one layer from its second run on, counted over all models."""

    runs = 0

    def __init__(self, calm_runs: int = 1) -> None:
        super().__init__()
        Restless.runs += 1
        if Restless.runs > calm_runs:
            self.get_submodule("layers.2.0").register_forward_hook(
                lambda _module, _inputs, output: output + 1e-3
            )


class Unsteady(Decoder):
    """Has noise in the layer that is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.get_submodule("layers.1.1").register_forward_hook(
            lambda _module, _inputs, output: output + 1e-3
        )


def test_an_operator_is_named_after_values_of_its_module_and_what_feeds_it(tmp_path: Path) -> None:
    runner = InProcess(mine=faulty)
    result = search(tmp_path, runner)
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    assert (result.origin.op, result.origin.certain) == (f"{GUILTY}.aten.mul.Tensor", True)
    assert "golden's code calls no such operator" in result.origin.evidence
    assert result.module == GUILTY
    assert runner.sides == ["mine", "golden", "mine", "golden", "mine", "mine", "golden"]
    asked = [each.operations for _, each in runner.asked if isinstance(each, Selection)]
    assert asked == [(BEFORE_IT, GUILTY)] * 2
    inside = [each for _, each in runner.asked if isinstance(each, OperatorSelection)]
    assert [(each.modules, each.step) for each in inside] == [((GUILTY,), 0)] * 3
    assert [each.values for each in inside] == [False, True, True]


def test_values_end_up_in_the_dumps_of_statistics(tmp_path: Path) -> None:
    search(tmp_path, InProcess(mine=faulty))
    folders = ["golden", "golden_operators", "mine", "mine_operators"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == folders
    for side in ("golden", "mine"):
        calls = list(open_dump(tmp_path / "out" / side).operations())
        with_values = {each.name for each in calls if any(t.has_data for t in each.tensors)}
        assert with_values == {BEFORE_IT, GUILTY}
        assert all(t.statistics is not None for each in calls for t in each.tensors)


def test_the_cost_is_what_all_runs_wrote_against_real_full_dumps(tmp_path: Path) -> None:
    result = search(tmp_path, InProcess(mine=faulty))
    full = 0
    for side, model in (("golden", Decoder()), ("mine", faulty())):
        capture(model, tmp_path / side, TOKENS, mode="tensor")
        full += sum(path.stat().st_size for path in (tmp_path / side).rglob("*.pth"))
    assert result.full == pytest.approx(full, rel=0.1)
    assert result.written == sum(run.written or 0 for run in result.runs) > 0
    assert result.share == result.written / result.full


def test_equal_programs_cost_statistics_only(tmp_path: Path) -> None:
    runner = InProcess()
    result = search(tmp_path, runner)
    assert (result.status, result.exit_code, result.origin) == ("equal", 0, None)
    assert runner.sides == ["mine", "golden"]
    assert result.compared > 20


def test_a_program_that_does_not_repeat_itself_is_told_before_golden_runs(tmp_path: Path) -> None:
    Restless.runs = 0
    runner = InProcess(mine=Restless)
    result = search(tmp_path, runner, runs=2)
    assert (result.status, result.exit_code) == ("unrepeatable", 5)
    assert runner.sides == ["mine", "mine"]
    assert result.unrepeated is not None
    assert (result.unrepeated.op, result.unrepeated.tensor) == ("root.layers.2.0", "outtensor0")
    assert not result.unrepeated.received
    assert "does not repeat itself" in result.unrepeated.sentence()


def test_values_that_are_not_those_of_the_statistics_are_told(tmp_path: Path) -> None:
    models = iter((Decoder, Unsteady))
    result = search(tmp_path, InProcess(mine=faulty, golden=lambda: next(models)()))
    assert (result.status, result.side) == ("unrepeatable", "golden")
    assert result.unrepeated is not None
    assert result.unrepeated.op == GUILTY


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_program_that_fails_ends_the_search_with_its_code(tmp_path: Path, number: int) -> None:
    runner = InProcess(mine=faulty, exit_code={number: 7})
    result = search(tmp_path, runner)
    assert (result.status, result.exit_code) == ("failed", 6)
    assert len(runner.asked) == number
    assert result.side == runner.sides[-1]


def test_statistics_beyond_the_budget_end_the_search(tmp_path: Path) -> None:
    runner = InProcess(mine=faulty)
    result = search(tmp_path, runner, Budget(bytes=1000), runs=2)
    assert (result.status, result.exit_code) == ("undecided", 3)
    assert runner.sides == ["mine"]
    assert "--runs 1" in result.notes[0]


def test_values_beyond_the_budget_are_not_captured(tmp_path: Path) -> None:
    needed = search(tmp_path / "a", InProcess(mine=faulty))
    statistics = sum(run.written or 0 for run in needed.runs[:2])
    runner = InProcess(mine=faulty)
    result = search(tmp_path / "b", runner, Budget(bytes=statistics + 3000))
    assert (result.status, runner.sides) == ("undecided", ["mine", "golden"])
    assert result.written <= statistics + 3000
    assert result.origin is not None
    assert result.origin.op == GUILTY
    assert "raise --budget" in result.notes[-1]


def test_a_share_of_full_dumps_is_a_budget(tmp_path: Path) -> None:
    result = search(tmp_path, InProcess(mine=faulty), Budget(share=0.5))
    assert result.status == "found"
    assert result.full is not None
    assert result.limit == int(0.5 * result.full)
    assert result.written <= result.limit


def test_the_plan_of_each_run_is_told_before_it_starts(tmp_path: Path) -> None:
    runner = InProcess(mine=faulty)
    told: list[tuple[int, RunRecord]] = []
    result = search(
        tmp_path, runner, on_run=lambda record: told.append((len(runner.asked), record))
    )
    before = [record for asked, record in told if record.written is None and asked < record.number]
    assert [record.number for record in before] == [1, 2, 3, 4, 5, 6, 7]
    assert f"--module-name {GUILTY}" in before[2].options
    for planned, done in zip(before[1:], result.runs[1:], strict=True):
        assert planned.planned is not None
        assert done.written is not None
        assert 0.5 * done.written <= planned.planned <= 4 * done.written + 4096


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other").touch()
    with pytest.raises(UsageError, match="in use already"):
        search(tmp_path, InProcess())


def test_an_interrupted_comparison_ends_the_search(tmp_path: Path) -> None:
    def interrupted(golden: Path, mine: Path) -> Picture:
        picture = look(golden, mine)
        return replace(picture, report=replace(picture.report, partial=True))

    runner = InProcess(mine=faulty)
    result = search(tmp_path, runner, looker=interrupted)
    assert (result.status, result.exit_code, len(runner.asked)) == ("interrupted", 130, 2)


def test_a_code_that_changes_its_inputs_is_suspected_and_no_reader_of_them(
    tmp_path: Path,
) -> None:
    class Shifted(Decoder):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return super().forward((input_ids * 3 + 1) % 16)

    result = search(tmp_path, InProcess(mine=Shifted), Budget(bytes=1 << 20))
    assert (result.status, result.exit_code) == ("found", 1)
    assert result.origin is not None
    # statistics do not see another order of the rows; the operators show who changed them
    assert (result.origin.op, result.origin.certain) == ("root.aten.mul.Tensor", True)
    assert "golden's code does not call aten.mul.Tensor, aten.add" in result.origin.evidence
