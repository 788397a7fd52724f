"""A captured server that is killed, loses a worker or has no disk: nothing is lost in silence."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_program import Server, golden_model, injected, server

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch import ledger, tensor_jobs
from ait_llm.dump.torch_ledger import TorchProcess, read_torch_ledger
from ait_llm.dump.torch_summary import torch_losses
from ait_llm.dumps import open_dump
from ait_llm.dumps.ledger import read_ledger

ALL = StepRange(((0, 1 << 40),))


@pytest.fixture(scope="module")
def model() -> Any:
    return golden_model()


@pytest.fixture(scope="module")
def answers(model: Any) -> dict[str, list[int]]:
    """Without a capture."""
    with torch.inference_mode(), server(model) as made:
        return made.serve()


def captured(folder: Path, model: Any, then: Callable[[Server], None], **settings: Any) -> Any:
    settings = {"steps": ALL, **settings}
    with torch.inference_mode(), injected(TorchSettings(folder, **settings)), server(model) as made:
        then(made)
        return made.answers


def in_worker(work: Callable[[], object]) -> int:
    """Run something in a process that is forked off; the signal that ended it, or 0."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def processes(folder: Path) -> list[TorchProcess]:
    found = [read_torch_ledger(path, "") for path in (folder / "ait_dump/ledger").glob("*.jsonl")]
    return [each for each in found if each is not None]


def serve_and_wait(made: Server, folder: Path) -> None:
    """Answer, and wait for more requests until the capture has said that nothing is open."""
    made.serve()
    end = time.monotonic() + 20
    while time.monotonic() < end and processes(folder)[0].end != "idle":
        time.sleep(0.02)


def die_in_the_next_pass(made: Server) -> None:
    """In its second layer, whose inputs are being captured."""
    layer = made.runner.model.model.layers[1]
    layer.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_killed_while_it_waits_has_lost_nothing(
    number: int, model: Any, tmp_path: Path
) -> None:
    def work(made: Server) -> None:
        serve_and_wait(made, tmp_path)
        os.kill(os.getpid(), number)

    assert in_worker(lambda: captured(tmp_path, model, work)) == number
    [process] = processes(tmp_path)
    assert (process.steps, process.end) == ({0, 1, 2, 3}, "idle")
    assert torch_losses([process]) == []


@pytest.mark.parametrize("types", [("torch",), ("torch-stats",)])
def test_a_server_that_is_killed_within_a_pass_is_said_to_be(
    types: tuple[str, ...], model: Any, tmp_path: Path
) -> None:
    def work(made: Server) -> None:
        serve_and_wait(made, tmp_path)
        die_in_the_next_pass(made)
        Server(made.runner, made.module).serve()

    assert in_worker(lambda: captured(tmp_path, model, work, types=types)) == signal.SIGKILL
    [process] = processes(tmp_path)
    assert not process.sealed
    assert read_ledger(process.path).seal is None
    [sentence] = torch_losses([process])
    assert "ended without sealing its ledger (killed?); the last call it recorded is" in sentence
    finished = [each for each in open_dump(tmp_path).operations() if each.step == 0]
    assert finished


def test_a_worker_that_dies_is_named_and_the_others_are_whole(model: Any, tmp_path: Path) -> None:
    def work(made: Server) -> None:
        die_in_the_next_pass(made)
        made.serve()

    def stay(made: Server) -> None:
        serve_and_wait(made, tmp_path)

    in_worker(lambda: captured(tmp_path, model, stay))
    died = in_worker(lambda: captured(tmp_path, model, work))
    states = [(each.sealed, len(torch_losses([each]))) for each in processes(tmp_path)]
    assert died == signal.SIGKILL
    assert sorted(states) == [(False, 1), (True, 0)]


def test_a_full_disk_changes_no_answer_and_is_counted(
    model: Any, answers: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = tensor_jobs.write_files, []

    def full(kernels: Any, orders: Any) -> list[int]:
        room = max(50 - len(written), 0)
        written.extend(order.path for order in orders)
        lost = [errno.ENOSPC] * len(orders[room:])
        return [*write(kernels, orders[:room]), *lost] if room else lost

    monkeypatch.setattr(tensor_jobs, "write_files", full)
    assert captured(tmp_path, model, lambda made: made.serve()) == answers
    [process] = processes(tmp_path)
    assert process.sealed
    assert process.tensors == len(list(tmp_path.rglob("*.pth")))  # links to the first 50, too
    assert process.lost_tensors >= len(written) - 50
    assert "No space left on device" in torch_losses([process])[0]


def test_a_ledger_that_cannot_grow_changes_no_answer_and_tells_how_much_is_missing(
    model: Any, answers: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = ledger._append
    full = {"now": False}
    monkeypatch.setattr(
        ledger, "_append", lambda file, data: not full["now"] and append(file, data)
    )

    def work(made: Server) -> None:
        full["now"] = True
        made.serve()
        full["now"] = False

    assert captured(tmp_path, model, work, types=("torch-stats",)) == answers
    [path] = (tmp_path / "ait_dump/ledger").glob("*.jsonl")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert "lost" in kinds
    assert kinds[-1] == "seal"
    [process] = processes(tmp_path)
    assert re.fullmatch(
        r"process \d+ on cpu: [1-9]\d* lines of its ledger were not written",
        torch_losses([process])[0],
    )


def test_a_ledger_that_a_full_disk_left_open_is_not_only_called_killed(tmp_path: Path) -> None:
    path = tmp_path / "cpu_1.jsonl"
    lines = [
        {"kind": "header", "producer": "torch", "device": "cpu", "pid": 1, "options": {}},
        {"kind": "op", "op": "root.a", "type": "Linear", "step": 0, "state": "failed", "lost": 1},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    process = read_torch_ledger(path, "")
    assert process is not None
    assert "(killed, or the disk was full)" in torch_losses([process])[-1]
