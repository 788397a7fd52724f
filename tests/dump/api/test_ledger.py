"""The ledger beside the steps: what is missing is told, by the capture and by its readers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from api_captures import Debug, Read
from torch import Tensor, nn

from ait_llm import open_dump
from ait_llm.compare.api.outcome import Outcome
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.dump.api import PrecisionDebugger, folders
from ait_llm.dumps.model import Process

PROC = f"proc{os.getpid()}"


def lines(dump_path: Path) -> list[dict[str, Any]]:
    (path,) = (dump_path / "ledger").iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


def process(dump_path: Path) -> Process:
    (found,) = open_dump(dump_path).processes
    return found


def killed_now(dump_path: Path, to: Path) -> Path:
    """What is on disk at this moment: nothing is kept back, so a killed process leaves this."""
    shutil.copytree(dump_path, to)
    return to


def compared(tmp_path: Path, mine: Path, golden: Path) -> Outcome:
    options = ApiOptions(jobs=1)
    return compare_api_dumps(mine, golden, tmp_path / "out", "1", options, formats=("csv",))


def test_every_record_has_a_line_and_stop_seals(debug: Debug, dump_path: Path) -> None:
    debugger = debug("tensor")
    debugger.start()
    x = torch.ones(3, requires_grad=True)
    torch.exp(x).sum().backward()
    torch.is_grad_enabled()
    debugger.stop()

    header, *records, seal = lines(dump_path)
    assert (header["producer"], header["pid"], header["device"]) == ("api", os.getpid(), PROC)
    assert header["options"]["task"] == "tensor"
    found = {line["op"]: (line["type"], line["state"], line.get("tensors")) for line in records}
    assert found["Torch.exp.0.forward"] == ("Torch.exp", "saved", 2)
    assert found["Tensor.sum.0.backward"] == ("Tensor.sum", "saved", 2)
    assert {line["path"] for line in records} == {f"step0/{PROC}"}
    assert (seal["kind"], seal["end"], seal["operations"]) == ("seal", "stop", len(records))
    assert (process(dump_path).state, process(dump_path).problem) == ("sealed", None)


def test_records_without_data_are_described_and_those_without_tensors_empty(
    debug: Debug, dump_path: Path
) -> None:
    debugger = debug("statistics", level="debug")
    debugger.save(torch.ones(2), "x")
    debugger.save({"step": 3}, "facts")
    debugger.step()

    states = {line["op"]: line["state"] for line in lines(dump_path) if line["kind"] == "op"}
    assert states["x.0.debug"] == "described"
    assert states["facts.0.debug"] == "empty"


def test_process_that_was_killed_is_unfinished_and_its_last_record_is_named(
    debug: Debug, dump_path: Path, tmp_path: Path
) -> None:
    debugger = debug()
    debugger.start()
    torch.exp(torch.ones(3))
    torch.tanh(torch.ones(3))
    killed = process(killed_now(dump_path, tmp_path / "killed"))
    debugger.stop()

    assert killed.state == "unfinished"
    assert "last operation was Torch.tanh Torch.tanh.0.forward" in (killed.problem or "")
    assert process(dump_path).state == "sealed"


def test_process_that_was_killed_later_leaves_a_finished_step(
    debug: Debug, dump_path: Path, tmp_path: Path
) -> None:
    debugger = debug()
    debugger.start()
    torch.exp(torch.ones(3))
    debugger.step()
    torch.exp(torch.ones(3))
    killed = killed_now(dump_path, tmp_path / "killed")
    debugger.stop()

    first, second = (
        compared(tmp_path, killed / step / PROC, dump_path / step / PROC)
        for step in ("step0", "step1")
    )
    assert first.exit_code() == 0
    assert second.exit_code() == 3
    assert "did not finish" in second.pairs[0].problems[0]


def test_unfinished_capture_is_not_compared_in_full(
    debug: Debug, dump_path: Path, tmp_path: Path
) -> None:
    """Both break off at the same call, so that every row has its partner."""
    debugger = debug()
    debugger.start()
    torch.exp(torch.ones(3))
    killed = killed_now(dump_path, tmp_path / "killed")
    debugger.stop()

    outcome = compared(tmp_path, killed, dump_path)
    assert outcome.pairs[0].problems == [
        f"mine: process {os.getpid()} on device -1: it did not finish its capture; its last "
        "operation was Torch.exp Torch.exp.0.forward at step 0"
    ]
    assert outcome.exit_code() == 3
    assert outcome.exit_code(allow_skip=True) == 0
    shutil.copytree(dump_path, tmp_path / "copy")
    assert compared(tmp_path, tmp_path / "copy", dump_path).exit_code() == 0


@pytest.mark.parametrize("later", [False, True])
def test_tensor_that_cannot_be_written_is_a_loss(
    debug: Debug, dump_path: Path, tmp_path: Path, later: bool
) -> None:
    debugger = debug("tensor", section={"list": ["exp"]}, async_dump=later)
    debugger.start()
    data = dump_path / "step0" / PROC / "dump_tensor_data"
    (data / "Torch.exp.1.forward.output.0.pt" / "in the way").mkdir(parents=True)
    for _ in range(3):
        torch.exp(torch.ones(3))
    debugger.stop()

    found = process(dump_path)
    (loss,) = found.losses
    assert (loss.op, loss.state, loss.tensors) == ("Torch.exp.1.forward", "failed", 1)
    assert "lost 1 tensor of 1 operation" in (found.problem or "")
    failed = next(line for line in lines(dump_path) if line.get("state") == "failed")
    assert failed["tensors"] == 1  # the input
    assert compared(tmp_path, dump_path, dump_path).exit_code() == 3


class FromSparse(nn.Module):
    """Its input is of a kind of which there are no views."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.sparse.mm(x, weight)


def test_gradients_that_cannot_be_seen_are_a_loss_and_are_told(
    debug: Debug, captured: Read, dump_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.ModuleDict({"mix": FromSparse()})
    debugger = debug(level="L0")
    debugger.start(model)
    x = torch.eye(3).to_sparse().requires_grad_()
    model["mix"](x, torch.ones(3, 3, requires_grad=True)).sum().backward()
    debugger.stop()

    record = captured().data["Module.mix.FromSparse.backward.0"]
    assert record["input"][0]["Max"] == 1.0
    assert record["output"] == []
    (loss,) = process(dump_path).losses
    assert (loss.op, loss.state) == ("Module.mix.FromSparse.backward.0", "failed")
    assert "1 of the records are not complete" in caplog.text
    assert torch.equal(x.grad.to_dense(), 3 * torch.eye(3))


def test_gradients_that_cannot_be_seen_and_are_never_computed_are_no_loss(
    debug: Debug, dump_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.ModuleDict({"mix": FromSparse()})
    debugger = debug(level="L0")
    debugger.start(model)
    model["mix"](torch.eye(3).to_sparse().requires_grad_(), torch.ones(3, 3))
    debugger.stop()

    assert process(dump_path).problem is None
    assert not caplog.text


def test_record_that_vanished_after_the_capture_is_missing(debug: Debug, dump_path: Path) -> None:
    debugger = debug()
    debugger.start()
    for _ in range(3):
        torch.exp(torch.ones(3))
    debugger.stop()
    PrecisionDebugger._reset()
    path = dump_path / "step0" / PROC / "dump.json"
    kept = [line for line in path.read_text().splitlines() if '"Torch.exp.1.forward"' not in line]
    path.write_text("\n".join(kept) + "\n")

    (loss,) = process(dump_path).losses
    assert (loss.op, loss.state) == ("Torch.exp.1.forward", "missing")


def test_rank_that_was_learnt_later_finds_its_ledger(
    debug: Debug, dump_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debugger = debug()
    debugger.start()
    torch.exp(torch.ones(3))
    monkeypatch.setattr(folders, "rank", lambda: 3)
    debugger.stop()
    debugger.step()

    assert (dump_path / "step0" / "rank3").is_dir()
    assert process(dump_path).state == "sealed"
    assert process(dump_path).device == 3


def test_ledger_of_an_earlier_run_goes_with_its_folders(debug: Debug, dump_path: Path) -> None:
    old = dump_path / "ledger" / "rank0_1.jsonl"
    foreign = dump_path / "ledger" / "rank1_1.jsonl"
    old.parent.mkdir(parents=True)
    for path in (old, foreign):
        path.write_text("{}\n")
    debugger = debug()
    debugger.start(rank_id=0)
    torch.exp(torch.ones(3))
    debugger.stop()

    assert not old.exists()
    assert foreign.exists()
    assert (dump_path / "ledger" / f"rank0_{os.getpid()}.jsonl").exists()


def test_forked_process_leaves_the_ledger_alone(debug: Debug, dump_path: Path) -> None:
    debugger = debug()
    debugger.start()
    torch.exp(torch.ones(3))
    before = lines(dump_path)
    child = os.fork()
    if child == 0:
        try:
            torch.exp(torch.ones(3))
            PrecisionDebugger._reset()
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert lines(dump_path) == before
    debugger.stop()
    assert lines(dump_path)[-1]["kind"] == "seal"


def test_overflow_check_accounts_for_what_it_keeps(debug: Debug, dump_path: Path) -> None:
    debugger = debug("overflow_check", section={"overflow_nums": 1})
    debugger.start()
    torch.exp(torch.ones(3))
    torch.log(torch.zeros(3))
    debugger.stop()

    records = [line for line in lines(dump_path) if line["kind"] == "op"]
    assert [(line["op"], line["tensors"]) for line in records] == [("Torch.log.0.forward", 2)]


def test_what_each_value_is_is_in_the_ledger(debug: Debug, dump_path: Path) -> None:
    debugger = debug("statistics")
    x = torch.ones(2, 6)
    debugger.start()
    first, second = torch.chunk(x, 2, dim=-1)
    torch.mul(first, 1.0)
    torch.relu_(second)
    torch.exp(input=second)
    debugger.stop()

    found: dict[str, tuple[Any, ...]] = {}
    for line in lines(dump_path):
        for item, (storage, version, offset, strides) in line.get("identity", {}).items():
            found[f"{line['op']}.{item}"] = (storage, version, offset, tuple(strides))
    whole = found["Torch.chunk.0.forward.input.0"]
    assert found["Torch.chunk.0.forward.output.1"] == (*whole[:2], 3, (6, 1))
    assert found["Torch.mul.0.forward.input.0"] == whole
    assert found["Torch.mul.0.forward.output.0"][0] != whole[0]
    assert found["Torch.relu_.0.forward.input.0"][:2] == whole[:2]
    assert found["Torch.relu_.0.forward.output.0"][:2] == (whole[0], whole[1] + 1)
    assert found["Torch.exp.0.forward.input.input"] == found["Torch.relu_.0.forward.output.0"]
