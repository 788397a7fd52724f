from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from ait_llm.core.file_orders import FileOrder
from ait_llm.core.kernels import NativeKernels
from ait_llm.dump.pytorch import tensor_jobs
from ait_llm.dump.pytorch import writer as module
from ait_llm.dump.pytorch.tensor_jobs import Outcome, WriteJob
from ait_llm.dump.pytorch.writer import BackgroundWriter


def job(path: Path, outcome: Outcome, **facts: object) -> WriteJob:
    tensor = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    return WriteJob(str(path), tensor, outcome, size=12, **facts)  # type: ignore[arg-type]  # tests


def test_drain_returns_when_everything_is_written(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(), Outcome()
    for number in range(20):
        writer.put(job(tmp_path / "a" / f"{number}.pth", outcome))
    writer.drain()
    assert outcome.tensors == len(list((tmp_path / "a").iterdir())) == 20
    assert torch.load(tmp_path / "a" / "7.pth", weights_only=True).dtype == torch.bfloat16
    writer.close()


def test_actions_run_after_the_files_queued_before_them(tmp_path: Path) -> None:
    writer, outcome, seen = BackgroundWriter(), Outcome(), []
    for number in range(5):
        writer.put(job(tmp_path / f"{number}.pth", outcome))
        writer.call(lambda: seen.append(len(list(tmp_path.glob("*.pth")))))
    writer.close()
    assert seen == [1, 2, 3, 4, 5]


def test_what_is_left_is_flushed_when_nothing_else_waits_and_at_the_end(tmp_path: Path) -> None:
    done: list[str] = []
    flushed: list[int] = []
    writer = BackgroundWriter(flush=lambda: flushed.append(len(done)))
    writer.call(lambda: done.append("first"))
    writer.drain()
    assert flushed[-1] == 1
    writer.call(lambda: done.append("second"))
    writer.close()
    assert flushed[-1] == 2


def test_small_pieces_of_a_while_are_flushed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GATHER_SECONDS", 0.2)
    gathered: list[int] = []
    flushed: list[int] = []
    both = threading.Event()

    def flush() -> None:
        flushed.append(len(gathered))
        if len(gathered) == 2:
            both.set()

    writer = BackgroundWriter(flush=flush)
    gathered.append(1)
    writer.soon()
    gathered.append(2)
    writer.soon()
    assert both.wait(10)
    assert flushed[0] == 2
    writer.close()


def test_writer_that_rests_wakes_for_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0001)
    monkeypatch.setattr(module, "_IDLE_LOOKS", 1)
    flushed = threading.Event()
    writer = BackgroundWriter(flush=flushed.set)
    writer.drain()
    writer.call(lambda: None)
    for _ in range(1000):
        if writer._asleep:
            break
        threading.Event().wait(0.01)
    assert writer._asleep
    flushed.clear()
    writer.soon()
    assert flushed.wait(10)
    writer.close()


def test_full_queue_makes_the_caller_wait(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(queue_bytes=20), Outcome()
    gate, third = threading.Event(), threading.Event()
    writer.put(job(tmp_path / "1.pth", outcome, ready=gate.wait))

    def more() -> None:
        writer.put(job(tmp_path / "2.pth", outcome))
        third.set()

    thread = threading.Thread(target=more)
    thread.start()
    assert not third.wait(0.05)
    gate.set()
    assert third.wait(10)
    thread.join()
    writer.close()
    assert outcome.tensors == 2


def test_tensor_larger_than_the_queue_passes_alone(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(queue_bytes=1), Outcome()
    writer.put(job(tmp_path / "1.pth", outcome))
    writer.put(job(tmp_path / "2.pth", outcome))
    writer.close()
    assert outcome.tensors == 2


def test_writer_wakes_after_a_long_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0001)
    monkeypatch.setattr(module, "_IDLE_LOOKS", 1)
    writer, outcome, done = BackgroundWriter(), Outcome(), threading.Event()
    writer.put(job(tmp_path / "1.pth", outcome))
    writer.drain()
    for _ in range(1000):
        if writer._asleep:
            break
        threading.Event().wait(0.01)
    assert writer._asleep
    writer.call(done.set)
    assert done.wait(10)
    writer.close()


def test_closed_writer_starts_again(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(), Outcome()
    writer.put(job(tmp_path / "1.pth", outcome))
    writer.close()
    writer.close()
    writer.put(job(tmp_path / "2.pth", outcome))
    writer.close()
    assert outcome.tensors == 2


def test_failure_is_counted_and_the_buffer_comes_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    writer, outcome, back = BackgroundWriter(), Outcome(), []
    writer.put(job(tmp_path / "file" / "1.pth", outcome, release=lambda: back.append(1)))
    writer.put(job(tmp_path / "2.pth", outcome, release=lambda: back.append(2)))
    writer.close()
    assert (outcome.tensors, outcome.lost, back) == (1, 1, [1, 2])
    assert outcome.errno
    assert outcome.reason


def test_error_in_an_action_is_reported_and_the_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    writer, outcome = BackgroundWriter(), Outcome()

    def broken() -> None:
        raise KeyError("broken")

    writer.call(broken)
    writer.put(job(tmp_path / "1.pth", outcome))
    writer.close()
    assert [args.exc_type for args in reported] == [KeyError]
    assert outcome.tensors == 1


def test_a_value_whose_first_file_is_missing_says_that(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(), Outcome()
    writer.put(WriteJob(str(tmp_path / "2.pth"), None, outcome, link_from=str(tmp_path / "1.pth")))
    writer.close()
    assert (outcome.lost, outcome.reason) == (1, "the tensor that it equals was not written")


def test_same_value_is_linked_to_its_first_file(tmp_path: Path) -> None:
    writer, outcome = BackgroundWriter(), Outcome()
    writer.put(job(tmp_path / "a" / "1.pth", outcome))
    writer.put(
        WriteJob(str(tmp_path / "b/2.pth"), None, outcome, link_from=str(tmp_path / "a/1.pth"))
    )
    writer.close()
    assert (tmp_path / "a" / "1.pth").samefile(tmp_path / "b" / "2.pth")
    assert outcome.tensors == 2


def test_tensor_above_4_gib_goes_to_torch_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_jobs, "MAX_PLAIN_BYTES", 11)
    monkeypatch.setattr(tensor_jobs, "write_pth", None)
    writer, outcome = BackgroundWriter(), Outcome()
    writer.put(job(tmp_path / "1.pth", outcome))
    writer.close()
    assert outcome.tensors == 1
    assert outcome.bytes == (tmp_path / "1.pth").stat().st_size
    read = torch.load(tmp_path / "1.pth", weights_only=True)
    assert torch.equal(read, torch.arange(6, dtype=torch.bfloat16).view(2, 3))
    assert [entry.name for entry in tmp_path.iterdir()] == ["1.pth"]


def test_files_that_wait_together_are_written_in_one_call_and_one_that_fails_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    write_files = tensor_jobs.write_files

    def counted(kernels: NativeKernels, orders: Sequence[FileOrder]) -> list[int]:
        calls.append(len(orders))
        return write_files(kernels, orders)

    monkeypatch.setattr(tensor_jobs, "write_files", counted)
    writer, begin = BackgroundWriter(), threading.Event()
    outcomes = [Outcome() for _ in range(10)]
    writer.call(begin.wait)
    for number, outcome in enumerate(outcomes):
        if number == 4:
            (tmp_path / "4.pth").mkdir()  # cannot be replaced by a file
        writer.put(job(tmp_path / f"{number}.pth", outcome))
    begin.set()
    writer.close()
    assert calls == [10]
    assert [(each.tensors, each.lost) for each in outcomes] == [
        (0, 1) if number == 4 else (1, 0) for number in range(10)
    ]
    assert outcomes[4].reason == "Is a directory"
    assert not list(tmp_path.glob("*.part"))


def test_a_device_that_fails_costs_its_own_tensor_only(tmp_path: Path) -> None:
    def lost() -> None:
        raise KeyError("device")

    writer, begin, outcomes = BackgroundWriter(), threading.Event(), [Outcome(), Outcome()]
    writer.call(begin.wait)
    writer.put(job(tmp_path / "1.pth", outcomes[0], ready=lost))
    writer.put(job(tmp_path / "2.pth", outcomes[1]))
    begin.set()
    writer.close()
    assert [each.lost for each in outcomes] == [1, 0]
    assert (tmp_path / "2.pth").is_file()
