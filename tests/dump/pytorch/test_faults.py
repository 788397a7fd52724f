"""A capture that is killed, cannot write, or is in a forked process."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
from capture_models import Decoder, calls, hook_state, ids, opened, values
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.core.notices import show_notices
from ait_llm.dump.pytorch import tensor_jobs
from ait_llm.dump.pytorch.tensor_jobs import Outcome, WriteJob
from ait_llm.dump.pytorch.writer import BackgroundWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def _run(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_killed_process_leaves_readable_tensors_and_an_open_ledger(tmp_path: Path) -> None:
    done = _run(
        """
        import os, signal, sys, torch
        from torch import nn
        from ait_llm import DumpConfig, register_hook

        class Killer(nn.Module):
            def forward(self, x):
                if x[0] == 3:
                    session.recorder.writer.drain()
                    os.kill(os.getpid(), signal.SIGKILL)
                return x + 1

        model = nn.Sequential(nn.Identity(), Killer(), nn.Identity())
        handle = register_hook(model, DumpConfig(sys.argv[1], token_range=range(9)))
        session = handle._session
        for i in range(9):
            model(torch.full((4,), float(i)))
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    dump = opened(tmp_path)
    [process] = dump.processes
    assert process.state == "unfinished"
    assert process.last_operation is not None
    assert (process.last_operation.op, process.last_operation.step) == ("root.0", 3)
    assert process.problem is not None
    assert "its last operation was Identity root.0 at step 3" in process.problem
    for call in dump.operations():
        for stem, tensor in values(call).items():
            expected = call.step + (stem == "output" and call.name != "root.0")
            expected += call.name == "root.2" and stem == "input_0"
            assert tensor.tolist() == [expected] * 4, (call.name, call.step, stem)
    assert set(calls(dump, 3)) >= {"root.0", "root.1", "root"}
    assert not list(tmp_path.rglob("*.part"))


def test_a_full_disk_is_told_and_does_not_stop_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Decoder(2)
    expected = model(ids())
    writev = os.writev

    def full(file: int, parts: list[bytes]) -> int:
        if threading.current_thread().name == "ait-writer" and sum(map(len, parts)) > 1500:
            raise OSError(28, "No space left on device")
        return writev(file, parts)

    with register_hook(model, DumpConfig(str(tmp_path))):
        monkeypatch.setattr(tensor_jobs, "native_kernels", lambda: None)
        monkeypatch.setattr(os, "writev", full)
        assert torch.equal(model(ids(16, 4)), model(ids(16, 4)))
        assert torch.equal(model(ids()), expected)
    [process] = opened(tmp_path).processes
    assert process.sealed
    assert process.losses
    assert {loss.state for loss in process.losses} == {"failed"}
    assert "No space left" in process.losses[0].reason or "No such file" in process.losses[0].reason
    text = caplog.text
    assert len(caplog.messages) == 1
    assert "lists all that is missing" in text


def test_a_ledger_that_cannot_be_written_says_how_many_lines_it_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ait_llm.dump.pytorch import ledger as module

    path = tmp_path / "cpu_1.jsonl"
    ledger = module.Ledger(path, "cpu", {})
    line = {"op": "root", "type": "T", "path": "p", "step": 0, "state": "saved"}
    ledger.operations([line])
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        ledger.operations([line])
        ledger.operations([line])
    ledger.operations([line, line])
    ledger.seal("exit")
    ledger.operations([line])
    kinds = [entry["kind"] for entry in _lines(path)]
    assert kinds == ["header", "op", "lost", "op", "op", "seal"]
    assert _lines(path)[2]["lines"] == 2
    assert _lines(path)[-1]["operations"] == 5


def test_of_calls_told_together_only_those_that_fit_are_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ait_llm.dump.pytorch import ledger as module

    path = tmp_path / "cpu_1.jsonl"
    ledger = module.Ledger(path, "cpu", {})
    room = path.stat().st_size + 200
    write = os.write

    def limited(file: int, data: bytes) -> int:
        return write(file, data[: max(0, room - path.stat().st_size)])

    names = ["a", "b", "c" * 200, "d"]
    lines = [{"op": n, "type": "T", "path": "p", "step": 0, "state": "saved"} for n in names]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", limited)
        ledger.operations(lines)
    ledger.seal("exit")
    told = [entry.get("op", entry["kind"]) for entry in _lines(path)]
    assert told == ["header", "a", "b", "lost", "seal"]
    assert _lines(path)[3]["lines"] == 2


def _lines(path: Path) -> list[dict[str, object]]:
    import json

    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_deleted_output_folder_is_told_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, model = tmp_path / "out", Decoder(1)
    with register_hook(model, DumpConfig(str(out), token_range=range(5))) as handle:
        model(ids())
        assert handle._session is not None
        handle._session.recorder.writer.drain()
        shutil.rmtree(out)
        model(ids())
        handle._session.recorder.writer.drain()
        model(ids())
    [process] = opened(out).processes
    assert process.sealed
    assert process.ledger is not None
    assert "removed" in process.ledger.incidents[0]
    assert torch.equal(values(calls(opened(out), 2)["root"])["output"], model(ids()))
    assert len(caplog.messages) == 1


def test_a_folder_that_becomes_a_file_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, model = tmp_path / "out", Decoder(1)
    with register_hook(model, DumpConfig(str(out), mode="both")):
        shutil.rmtree(out)
        out.write_text("")
        model(ids())
    assert "could not be written" in caplog.text
    assert out.read_text() == ""


def test_the_queue_holds_no_more_than_its_bound(tmp_path: Path) -> None:
    writer = BackgroundWriter(10_000)
    gate, high = threading.Event(), []

    def wait() -> None:
        gate.wait(30)

    for _ in range(3):
        tensor = torch.zeros(1000)
        writer.put(WriteJob(str(tmp_path / "x.pth"), tensor, Outcome(), ready=wait, size=4000))
        high.append(writer._waiting)
        if len(high) == 2:
            threading.Timer(0.05, gate.set).start()
    writer.close()
    assert max(high) <= 10_000
    assert gate.is_set()


def _child(model: nn.Module) -> None:
    model(ids())


@pytest.mark.parametrize("during", [False, True])
def test_a_forked_child_has_its_own_sealed_capture(tmp_path: Path, during: bool) -> None:
    model = Decoder(1)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=[0, 1])):
        model(ids())
        if during:
            process = multiprocessing.get_context("fork").Process(target=_child, args=(model,))
            process.start()
            process.join(60)
            pid, code = process.pid, process.exitcode
        else:
            child = os.fork()
            if child == 0:
                try:
                    model(ids(3))
                    from ait_llm.dump.pytorch.session import sessions

                    sessions.close_all()
                finally:
                    os._exit(0)
            pid, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
    assert code == 0
    dump = opened(tmp_path)
    assert {process.pid for process in dump.processes} == {os.getpid(), pid}
    assert all(process.sealed for process in dump.processes)
    own = {call.name for call in dump.operations(pid=pid)}
    assert {"root", "root.head"} <= own
    assert dump.processes[0].problem is None


def test_a_spawned_child_gets_the_model_without_the_capture(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, torch
            from torch import nn
            from ait_llm import DumpConfig, register_hook

            def work(model, out):
                hooks = len(model._forward_hooks)
                with register_hook(model, DumpConfig(out)):
                    model(torch.ones(1, 2))

            if __name__ == "__main__":
                model = nn.Sequential(nn.Linear(2, 2))
                register_hook(model, DumpConfig(sys.argv[1]))
                model(torch.ones(1, 2))
                child = multiprocessing.get_context("spawn").Process(
                    target=work, args=(model, sys.argv[1])
                )
                child.start()
                child.join()
                sys.exit(child.exitcode)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    dump = opened(tmp_path / "out")
    assert len(dump.processes) == 2
    assert all(process.sealed for process in dump.processes)
    assert [call.name for call in dump.operations()] == ["root", "root.0"] * 2


class _Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index])


def test_data_loader_workers_write_nothing(tmp_path: Path) -> None:
    model = Decoder(1)
    with register_hook(model, DumpConfig(str(tmp_path), token_range=range(4))):
        loader = torch.utils.data.DataLoader(
            _Numbers(), num_workers=2, multiprocessing_context="fork"
        )
        for batch in loader:
            model(batch)
    assert [process.pid for process in opened(tmp_path).processes] == [os.getpid()]
    assert opened(tmp_path).steps == (0, 1, 2, 3)


def test_the_end_of_the_interpreter_seals_the_ledger(tmp_path: Path) -> None:
    done = _run(
        """
        import sys, torch
        from torch import nn
        from ait_llm import DumpConfig, register_hook
        model = nn.Linear(2, 2)
        register_hook(model, DumpConfig(sys.argv[1]))
        model(torch.ones(1, 2))
        raise SystemExit(3)
        """,
        tmp_path,
    )
    assert done.returncode == 3, done.stderr
    [process] = opened(tmp_path).processes
    assert (process.end, process.problem) == ("exit", None)
    assert list(calls(opened(tmp_path), 0)) == ["root"]


def test_a_child_that_cannot_write_runs_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    show_notices()  # as in a program that a command started
    out, model = tmp_path / "out", Decoder(1)
    before = hook_state(model)
    with register_hook(model, DumpConfig(str(out))):
        shutil.move(out, tmp_path / "gone")
        out.write_text("")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if model(ids()).shape == (1, 4, 16) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert f"nothing of process {child} is captured" in capfd.readouterr().err
    assert hook_state(model) == before
