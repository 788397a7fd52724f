"""API calls of programs and engines that do not know of the capture, by ``--type api``."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from api_captures import Captured
from click.testing import CliRunner
from engine_program import PROMPTS, Server, golden_model, server
from torch.nn.modules import module as torch_hooks

from ait_llm import compare
from ait_llm.cli.main import ait
from ait_llm.core import StepRange
from ait_llm.core.comparison import Report, Verdict
from ait_llm.core.notices import show_notices
from ait_llm.dump.golden.run import GoldenSettings, plan_golden, run_golden
from ait_llm.dump.inject.api_calls import ApiCalls
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, TorchSettings
from ait_llm.dump.inject.switch import FILE, write_switch
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.program.passes import passes_of
from ait_llm.program.schedule import schedule_of

ALL = StepRange(((0, 1 << 40),))


@contextmanager
def recorded(folder: Path, **settings: Any) -> Iterator[None]:
    """The capture of programs that do not know of it, in this process."""
    finders = list(sys.meta_path)
    settings = {"types": ("api",), "steps": ALL, **settings}
    calls = ApiCalls(TorchSettings(output=folder, **settings))
    calls.install()
    try:
        yield
    finally:
        calls.close()
        sys.meta_path[:] = finders


class Meeting(torch.nn.Module):
    """The second call begins within the first one, and goes on when that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        self.meets = Meets()

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        made: torch.Tensor = self.layers(self.meets(x, number))
        if number == 0:
            self.meets.first_done.set()
        return made


class Meets(torch.nn.Module):
    """Where one call waits for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.second_here, self.first_done = threading.Event(), threading.Event()

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        if number == 0:
            self.second_here.wait(60)
        else:
            self.second_here.set()
            self.first_done.wait(60)
            time.sleep(0.3)  # until the first one has left its model, too
        return x


def served(folder: Path, model: Any, **settings: Any) -> dict[str, list[int]]:
    with torch.inference_mode(), recorded(folder, **settings), server(model) as made:
        return made.serve()


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    [path] = (folder / "ledger").glob("*.jsonl")
    every = map(json.loads, path.read_text().splitlines())
    return [line for line in every if line["kind"] == kind]


def steps(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("step*")}


@pytest.fixture(scope="module")
def model() -> Any:
    return golden_model()


@pytest.fixture(scope="module")
def checkpoint(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def mine(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    (folder.parent / "answers.json").write_text(json.dumps(served(folder, model)))
    return folder


def test_answers_are_the_same_with_the_capture(mine: Path, model: Any) -> None:
    with torch.inference_mode(), server(model) as made:
        assert json.loads((mine.parent / "answers.json").read_text()) == made.serve()


def test_each_pass_of_an_engine_is_a_sealed_step_and_warming_up_is_none(mine: Path) -> None:
    assert steps(mine) == {"step0", "step1", "step2", "step3"}
    [dump] = [open_dump(mine)]
    assert [len(lines(mine, kind)) for kind in ("request", "schedule")] == [len(PROMPTS), 4]
    assert len([line for line in lines(mine, "seal") if line["end"] == "step"]) == 4
    assert [process.end for process in dump.processes] == ["exit"]


def test_each_row_knows_its_request_and_token(mine: Path) -> None:
    dump = open_dump(mine)
    [first, *_] = passes_of(dump, dump.processes[0])
    schedule = schedule_of(first)
    assert schedule is not None
    expected = [("b-2", 0), *(("a-1", position) for position in range(7))]
    assert [place[1:] for place in schedule.places()] == expected


def test_logits_belong_to_the_step_that_made_their_hidden_states(mine: Path) -> None:
    rows = [
        [name for name in Captured(mine, step).data if name.startswith("Module.logits_processor.")]
        for step in range(4)
    ]
    assert [len(each) for each in rows] == [1, 1, 1, 1]


def golden_compared(checkpoint: Path, mine: Path, folder: Path) -> Report:
    assert run_golden(plan_golden(GoldenSettings(checkpoint, mine, folder))).complete
    return compare(folder, mine, jobs=1)


def test_a_healthy_engine_passes_against_its_golden_run(
    mine: Path, checkpoint: Path, tmp_path: Path
) -> None:
    report = golden_compared(checkpoint, mine, tmp_path)
    verdicts = [each.verdict for each in report.comparisons]
    assert report.verdict is Verdict.PASS
    assert verdicts.count(Verdict.PASS) > 700


def test_a_wrong_product_is_the_first_origin(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    weight = model.model.layers[1].mlp.down_proj.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[3] = 0
        served(tmp_path / "mine", model)
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    report = golden_compared(checkpoint, tmp_path / "mine", tmp_path / "golden")
    assert report.verdict is Verdict.FAIL
    # four products in each layer: the last of the second one
    assert [each.op for each in report.origins] == ["Functional.linear.7.forward"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"passes": StepRange(((1, 2),))}, {"step1", "step2"}),
        ({"requests": ("3",)}, {"step1", "step2", "step3"}),
        ({"steps": StepRange(((2, 2),)), "requests": ("a-1",)}, {"step2"}),
    ],
)
def test_passes_are_selected_by_number_request_and_token(
    model: Any, tmp_path: Path, settings: dict[str, Any], expected: set[str]
) -> None:
    served(tmp_path, model, types=("api", "torch-stats"), **settings)
    assert steps(tmp_path) == expected
    assert len(lines(tmp_path, "schedule")) == 4  # what was chosen before stays known


def test_statistics_stand_in_the_place_of_data(model: Any, tmp_path: Path) -> None:
    served(tmp_path, model, types=("api", "torch-stats"), passes=StepRange(((0, 0),)))
    captured = Captured(tmp_path, 0)
    [output] = captured.data["Module.model.layers.0.mlp.down_proj.RowParallelLinear.forward.0"][
        "output"
    ][:1]
    assert {"Max", "Min", "Mean", "Norm"} <= set(output)
    assert not captured.files


def test_nothing_is_captured_until_it_is_switched_on(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = tmp_path / "channel"
    channel.mkdir()
    monkeypatch.setenv(CHANNEL_VARIABLE, str(channel))
    before = len(torch_hooks._global_forward_pre_hooks)
    folder = tmp_path / "mine"
    off = recorded(folder, start=False, types=("api", "torch-stats"))
    with torch.inference_mode(), off, server(model) as made:
        made.serve()
        assert len(torch_hooks._global_forward_pre_hooks) == before
        assert not folder.exists()
        write_switch(channel / FILE, on=True)
        time.sleep(0.25)
        Server(made.runner, made.module).serve()
    assert steps(folder) == {"step4", "step5", "step6", "step7"}


def test_each_call_of_a_plain_model_is_a_step(tmp_path: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    with recorded(tmp_path, steps=StepRange(((1, 2),))):
        for _ in range(4):
            layers(torch.ones(2, 4))
    assert steps(tmp_path) == {"step1", "step2"}
    assert "Functional.gelu.0.forward" in Captured(tmp_path, 1).data


def test_calls_that_overlap_on_two_threads_are_one_step_and_keep_their_results(
    tmp_path: Path,
) -> None:
    model = Meeting()
    with torch.no_grad():
        alone = [model.layers(torch.full((2, 4), float(number))) for number in range(2)]
    found: dict[int, torch.Tensor] = {}

    def call(number: int) -> None:
        with torch.no_grad():
            found[number] = model(torch.full((2, 4), float(number)), number)

    with recorded(tmp_path):
        threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert all(torch.equal(found[number], alone[number]) for number in range(2))
    calls = lines(tmp_path, "op")
    assert {each["state"] for each in calls} == {"saved"}
    assert {each["step"] for each in calls} == {0}
    assert sum(each["op"].startswith("Module.layers.1.") for each in calls) == 2


def test_a_folder_that_cannot_be_written_is_said_and_the_answers_stay(
    model: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    show_notices()
    (tmp_path / "mine").write_text("in the way")
    answers = served(tmp_path / "mine", model)
    assert sorted(answers) == sorted(PROMPTS)
    assert capfd.readouterr().err.count("API calls are not captured") == 1


def test_a_program_that_does_not_know_of_it_is_captured(tmp_path: Path) -> None:
    code = (
        "import torch; m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())\n"
        "for _ in range(2): m(torch.ones(2, 4))"
    )
    settings = TorchSettings(output=tmp_path, types=("api",), steps=ALL)
    plan = plan_torch_dump([sys.executable, "-c", code], settings, os.environ)
    summary = run_torch_dump(plan, os.environ)
    assert (summary.exit_code, summary.problems) == (0, ())
    [process] = summary.processes
    assert (process.steps, process.end) == ({0, 1}, "exit")
    assert (process.modules, process.operators) == (4, 4)


@pytest.mark.parametrize("option", [["--layers", "0,1"], ["--budget", "1G"], ["--weights"]])
def test_options_that_select_modules_are_refused(option: list[str], tmp_path: Path) -> None:
    words = ["llm", "dump", "--exec", "true", "--type", "api", "-o", str(tmp_path), *option]
    done = CliRunner().invoke(ait, words)
    assert done.exit_code == 2
    assert f"{option[0]} is not for --type api" in done.stderr


def test_other_types_are_refused_beside_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torch-op cannot be captured with it"):
        TorchSettings(output=tmp_path, types=("api", "torch-op"))
