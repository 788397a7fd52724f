"""A capture that is switched on and off while the program runs, and one that may not write more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_program import PROMPTS, Server, golden_model, injected, server
from torch import nn
from torch.nn.modules import module as torch_hooks

from ait_llm.cli.attach import describe_attached
from ait_llm.core import StepRange
from ait_llm.dump.attach import Attached, ProcessState, Running, find_run, state_of, switch
from ait_llm.dump.inject import switch as switching
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, VARIABLE, TorchSettings
from ait_llm.dump.inject.switch import FILE, Switch, read_switch, write_switch
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_run import plan_torch_dump
from ait_llm.dump.torch_summary import torch_losses, torch_notes
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.program.schedule import engine_schedules

ALL = StepRange(((0, 1 << 40),))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "_SECONDS", 0.001)


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "channel"
    folder.mkdir()
    monkeypatch.setenv(CHANNEL_VARIABLE, str(folder))
    return folder


@pytest.fixture(scope="module")
def model() -> Any:
    return golden_model()


@pytest.fixture(scope="module")
def answers(model: Any) -> dict[str, list[int]]:
    with torch.no_grad(), server(model) as made:
        return made.serve()


def at_pass(made: Server, actions: dict[int, Any]) -> None:
    """Do something before passes, by number."""
    execute = made.runner.execute_model
    count = iter(range(1 << 30))

    def counted(output: Any) -> None:
        action = actions.get(next(count))
        if action is not None:
            action()
            time.sleep(0.005)
        execute(output)

    made.runner.execute_model = counted


def steps(folder: Path) -> set[int]:
    return {operation.step for operation in open_dump(folder).operations()}


def process(folder: Path) -> TorchProcess:
    [path] = (folder / "ait_dump/ledger").glob("*.jsonl")
    found = read_torch_ledger(path, "")
    assert found is not None
    return found


@pytest.mark.usefixtures("channel")
def test_while_it_is_off_no_hook_is_there_and_nothing_is_written(
    tmp_path: Path, model: Any, answers: dict[str, Any]
) -> None:
    seen: list[int] = []
    hooks = len(torch_hooks._global_forward_pre_hooks)
    settings = TorchSettings(tmp_path / "out", steps=ALL, start=False)
    with torch.no_grad(), injected(settings), server(model) as made:
        modules: list[nn.Module] = list(made.runner.model.modules())
        at_pass(made, {2: lambda: seen.append(sum(len(m._forward_hooks) for m in modules))})
        assert made.serve() == answers
        assert len(torch_hooks._global_forward_pre_hooks) == hooks
    assert seen == [0]
    assert not (tmp_path / "out").exists()


def test_it_goes_on_and_off_between_passes(
    tmp_path: Path, channel: Path, model: Any, answers: dict[str, Any]
) -> None:
    settings = TorchSettings(tmp_path / "out", steps=ALL, start=False)
    with torch.no_grad(), injected(settings), server(model) as made:
        at_pass(
            made,
            {
                1: lambda: write_switch(channel / FILE, on=True),
                3: lambda: write_switch(channel / FILE, on=False),
            },
        )
        assert made.serve() == answers
        assert not any(len(m._forward_hooks) for m in made.runner.model.modules())
    assert steps(tmp_path / "out") == {1, 2}
    assert process(tmp_path / "out").end in ("off", "exit")


def test_a_request_that_was_there_before_is_known_with_its_tokens(
    tmp_path: Path, channel: Path, model: Any, answers: dict[str, Any]
) -> None:
    settings = TorchSettings(tmp_path / "out", steps=ALL, start=False)
    with torch.no_grad(), injected(settings), server(model) as made:
        at_pass(made, {2: lambda: write_switch(channel / FILE, on=True)})
        made.serve()
    [found] = open_dump(tmp_path / "out").processes
    assert found.ledger is not None
    requests = engine_schedules(found.ledger.engine).requests
    assert {name: list(each.tokens) for name, each in requests.items()} == {
        name: PROMPTS[name] + answers[name] for name in PROMPTS
    }
    assert {name: each.number for name, each in requests.items()} == {
        name: number for number, name in enumerate(PROMPTS)
    }


def test_it_can_go_on_twice(tmp_path: Path, channel: Path, model: Any) -> None:
    settings = TorchSettings(tmp_path / "out", steps=ALL)
    with torch.no_grad(), injected(settings), server(model) as made:
        at_pass(
            made,
            {
                1: lambda: write_switch(channel / FILE, on=False),
                3: lambda: write_switch(channel / FILE, on=True),
            },
        )
        made.serve()
    assert steps(tmp_path / "out") == {0, 3}
    assert torch_losses([process(tmp_path / "out")]) == []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_a_plain_program_is_switched_between_its_calls(tmp_path: Path, channel: Path) -> None:
    net, x = Net(), torch.ones(1, 2)
    with injected(TorchSettings(tmp_path / "out", steps=ALL)):
        net(x)
        write_switch(channel / FILE, on=False)
        time.sleep(0.005)
        net(x)
        hooks = sum(len(m._forward_hooks) for m in net.modules())
        write_switch(channel / FILE, on=True)
        wait_for(lambda: bool(net._forward_hooks))
        net(x)
    assert hooks == 0
    assert len(steps(tmp_path / "out")) == 2


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 60  # a loaded machine takes its time
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)


def test_what_is_switched_on_within_a_call_begins_with_the_next(
    tmp_path: Path, channel: Path
) -> None:
    class Slow(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            write_switch(channel / FILE, on=True)
            wait_for(lambda: len(torch_hooks._global_forward_pre_hooks) > before)
            return self.inner(x)

    net = Slow()
    before = len(torch_hooks._global_forward_pre_hooks)
    with injected(TorchSettings(tmp_path / "out", steps=ALL, start=False)):
        net(torch.ones(1, 2))
        net(torch.ones(1, 2))
    names = [operation.name for operation in open_dump(tmp_path / "out").operations()]
    assert names == ["root", "root.inner", "root.inner.0"]


def test_a_budget_ends_the_capture_and_not_the_program(
    tmp_path: Path, model: Any, answers: dict[str, Any]
) -> None:
    limit = 300_000
    settings = TorchSettings(tmp_path, steps=ALL, budget=limit)
    with torch.no_grad(), injected(settings), server(model) as made:
        assert made.serve() == answers
    files = {path.stat().st_ino: path.stat().st_size for path in tmp_path.rglob("*.pth")}
    written = sum(files.values())
    found = process(tmp_path)
    assert 0.3 * limit < written < 1.05 * limit
    assert found.sealed
    assert any("the budget of 300000 bytes is spent" in text for text in torch_notes([found]))


def test_processes_share_a_budget(tmp_path: Path) -> None:
    from ait_llm.dump.pytorch.budget import Budget

    (tmp_path / "written_1").write_bytes((7000).to_bytes(8, "little"))
    budget = Budget(10_000, str(tmp_path))
    assert budget.look()
    assert budget.take(200)
    assert not budget.take(600)
    assert not budget.look()
    assert (tmp_path / f"written_{os.getpid()}").read_bytes() == (1500).to_bytes(8, "little")


def test_a_damaged_switch_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    assert read_switch(tmp_path / FILE) is None
    assert Switch(str(tmp_path), on=True).is_on()
    (tmp_path / FILE).write_text("one\n")
    assert not Switch(str(tmp_path), on=False).is_on()


def test_a_file_of_the_user_says_when_to_capture(
    tmp_path: Path, channel: Path, model: Any, answers: dict[str, Any]
) -> None:
    """It holds from the first pass on, and is written as a shell writes it."""
    control = tmp_path / "control"
    control.write_text("off\n")
    settings = TorchSettings(tmp_path / "out", steps=ALL, control=control)
    with torch.no_grad(), injected(settings), server(model) as made:
        at_pass(
            made,
            {
                1: lambda: control.write_text("ON"),
                2: lambda: control.write_text("perhaps"),
                3: lambda: control.write_text("off\n"),
            },
        )
        assert made.serve() == answers
    assert steps(tmp_path / "out") == {1, 2}
    assert not list(channel.glob("switch*"))


def test_attach_writes_the_file_of_the_user(tmp_path: Path) -> None:
    control = tmp_path / "control"
    run = Running(tmp_path, TorchSettings(tmp_path / "out", start=False, control=control))
    assert not state_of(run).wanted
    assert switch(run, on=True, wait=0).wanted
    assert control.read_text() == "on\n"


@pytest.mark.parametrize("name", ["gone/file", "folder"])
def test_a_file_that_cannot_be_followed_is_refused_before_the_program_runs(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    settings = TorchSettings(tmp_path / "out", control=tmp_path / name)
    with pytest.raises(UsageError, match=r"^--control "):
        plan_torch_dump(["true"], settings, os.environ)


@pytest.fixture
def program(tmp_path: Path, channel: Path) -> Iterator[int]:
    """A process under a capture; the one that started it is not."""
    settings = TorchSettings(tmp_path / "out", start=False)
    environment = {**os.environ, VARIABLE: settings.to_json(), "PYTHONPATH": ""}
    code = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'input()'])"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        env={**environment, CHANNEL_VARIABLE: str(channel)},
    )
    yield child.pid
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


def test_a_run_is_found_by_any_of_its_processes(program: int, channel: Path) -> None:
    run = find_run(program)
    assert run.channel == channel
    assert not run.settings.start
    children = Path(f"/proc/{program}/task/{program}/children")
    wait_for(lambda: children.read_text().strip())
    assert find_run(int(children.read_text())).channel == channel


def test_a_process_without_a_capture_is_told_how_to_start(program: int) -> None:
    del program
    with pytest.raises(UsageError, match="there is no process"):
        find_run((1 << 22) - 1)


def test_what_processes_do_is_told(program: int, channel: Path, tmp_path: Path) -> None:
    run = find_run(program)
    me = f"{os.uname().nodename}_{program}"
    lines = [{"event": "torch"}, {"event": "switch", "on": True, "steps": [7]}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (channel / f"{me}.jsonl").write_text(text)
    (channel / f"{os.uname().nodename}_{(1 << 22) - 1}.jsonl").write_text(text)  # has ended
    found = switch(run, on=False, wait=0)
    assert read_switch(channel / FILE) is False
    [state] = found.processes
    assert (state.process, state.on, state.steps) == (me, True, (7,))
    assert found.waiting == (state,)
    assert found.as_dict()["processes"][0]["capture"] == "on"
    (channel / f"{me}.jsonl").write_text(text + json.dumps({"event": "switch", "on": False}) + "\n")
    assert state_of(run).waiting == ()
    assert state_of(run).output == tmp_path / "out" / "ait_dump"


def test_an_engine_that_waits_has_sealed_what_it_computed(tmp_path: Path, model: Any) -> None:
    """A server that is killed then has lost nothing."""
    with (
        torch.no_grad(),
        injected(TorchSettings(tmp_path, steps=ALL, passes=StepRange(((0, 1),)))),
        server(model) as made,
    ):
        made.serve()
        wait_for(lambda: process(tmp_path).end is not None)
        found = process(tmp_path)
    assert (found.end, torch_losses([found])) == ("idle", [])


def test_calls_behind_a_seal_need_another_one(tmp_path: Path) -> None:
    from ait_llm.dump.pytorch.ledger import Ledger

    path = tmp_path / "cpu_1.jsonl"
    ledger = Ledger(path, "cpu", {})
    ledger.rest("idle")
    ledger.rest("idle")
    assert path.read_text().count('"seal"') == 1
    line = {"op": "root", "type": "Net", "path": "", "step": 0, "state": "saved", "tensors": 1}
    ledger.operations([line])
    found = read_torch_ledger(path, "")
    assert found is not None
    assert not found.sealed
    ledger.rest("idle")
    found = read_torch_ledger(path, "")
    assert found is not None
    assert found.sealed


@pytest.mark.parametrize(
    ("on", "wanted", "said"),
    [
        (True, True, "7 captures since step 5"),
        (False, False, "7 does not capture since step 4"),
        (False, True, "7 captures from its next pass on"),
        (True, False, "7 captures nothing from its next pass on"),
    ],
)
def test_what_a_process_does_is_said_and_from_when(
    on: bool, wanted: bool, said: str, tmp_path: Path
) -> None:
    run = Attached(wanted, (ProcessState("host_7", on, (4,)),), tmp_path, 0)
    assert f"process  {said}\n" in describe_attached(run)
