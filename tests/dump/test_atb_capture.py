"""The launcher adds up what a run wrote, and says everything that is missing."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from elf_builder import shared_library

from ait_llm.dump.atb import plan_atb_dump, run_atb_dump
from ait_llm.dump.summary import DumpSummary
from ait_llm.errors import FormatError, ProbeError, UsageError
from ait_llm.probe import ProbeConfig
from ait_llm.probe.elf import MACHINES
from ait_llm.probe.library import _GATE, _WRITER

SUPPORT = Path(__file__).parents[1] / "support"
START = "20261121110000"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a host and a probe that pass the checks but do nothing."""
    libraries = tmp_path / "libraries"
    for place in ("hostatb/cxx_abi_1/lib/libatb.so", "libatb_probe_abi1.so"):
        path = libraries / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            shared_library([_GATE[1], _WRITER[1]], machine=MACHINES[platform.machine()])
        )
        path.chmod(0o644)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
    return {**kept, "AIT_LLM_LIB_DIR": str(libraries), "PYTHONPATH": str(SUPPORT)}


def dump(
    environ: dict[str, str], output: Path, code: str, probe: Path | None = None, **settings: Any
) -> DumpSummary:
    words = [sys.executable, "-c", "import os\nfrom simulated_probe import Capture\n" + code]
    settings.setdefault("start_time", START)
    config = ProbeConfig(output=output, min_free_bytes=0, **settings)
    return run_atb_dump(plan_atb_dump(words, config, environ, probe), environ)


def test_a_complete_capture_is_added_up(environ: dict[str, str], tmp_path: Path) -> None:
    code = "c = Capture()\nc.op('0', 0)\nc.op('0_1', 0)\nc.op('0', 1)\nc.seal()"
    summary = dump(environ, tmp_path / "out", code)
    (process,) = summary.processes
    assert summary.complete
    assert (process.devices, process.sealed, process.end) == (("0",), True, "exit")
    assert summary.steps == (0, 1)
    assert [summary.total(n) for n in ("operations", "tensors", "files", "bytes")] == [3, 9, 12, 72]


def test_an_operation_saved_before_and_after_counts_once(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture()\nc.op(phase='before')\nc.op(phase='after')\nc.seal()"
    assert dump(environ, tmp_path, code).total("operations") == 1


def test_kernels_are_counted_apart_from_operations(environ: dict[str, str], tmp_path: Path) -> None:
    code = "c = Capture()\nc.op('0_0_0', type='AddF16Kernel')\nc.op('0_0')\nc.op('0')\nc.seal()"
    summary = dump(environ, tmp_path, code)
    assert (summary.total("operations"), summary.total("kernels")) == (2, 1)


def test_two_devices_are_two_processes(environ: dict[str, str], tmp_path: Path) -> None:
    code = "for d in '10':\n c = Capture(d, pid=70 + int(d))\n c.op()\n c.seal()"
    summary = dump(environ, tmp_path, code)
    assert [(p.devices, p.pid) for p in summary.processes] == [(("0",), 70), (("1",), 71)]
    assert summary.as_dict()["devices"] == ["0", "1"]


def test_a_process_that_drives_two_devices_names_both(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture(pid=7)\n[c.op(path=f'{d}_7/0/0_Linear') for d in (10, 2)]\nc.seal()"
    summary = dump(environ, tmp_path, code)
    assert summary.processes[0].devices == ("2", "10")


def test_a_device_that_was_unknown_at_first_is_taken_from_the_operations(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture('-1', pid=7)\nc.op(path='3_7/0/0_Linear')\nc.seal()"
    assert dump(environ, tmp_path, code).processes[0].devices == ("3",)


def test_no_atb_call_is_said_with_the_reasons(environ: dict[str, str], tmp_path: Path) -> None:
    summary = dump(environ, tmp_path, "pass")
    (problem,) = summary.problems
    assert problem.startswith("no ATB call was seen. If the program computes with PyTorch alone")
    for reason in ("another libatb.so", "C++ ABI than 1", "statically", "RTLD_DEEPBIND"):
        assert reason in problem


def test_a_program_that_failed_before_atb_is_named_as_the_reason(
    environ: dict[str, str], tmp_path: Path
) -> None:
    summary = dump(environ, tmp_path, "raise SystemExit(4)")
    assert summary.exit_code == 4
    assert "the program failed (exit code 4) before" in summary.problems[0]


def test_nothing_selected_names_the_filters(environ: dict[str, str], tmp_path: Path) -> None:
    code = "c = Capture()\nc.seal()"
    summary = dump(environ, tmp_path, code, operation_names=("self",), device=3)
    (problem,) = summary.problems
    assert "ATB was seen, but no operation was selected" in problem
    for reason in ("never reached the step range -er 0,0", "starting with 'self'", "device 3"):
        assert reason in problem


def test_a_process_without_seal_is_incomplete_and_its_last_operation_named(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture()\nc.op('0')\nc.op('0_7')\nos._exit(0)"
    summary = dump(environ, tmp_path, code)
    assert not summary.complete
    assert "without sealing its ledger" in summary.problems[0]
    assert "0_7_Linear" in summary.problems[0]


def test_a_process_of_another_machine_is_not_taken_for_a_running_one(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = f"c = Capture(pid={os.getpid()}, host='elsewhere')\nc.op()"
    assert not dump(environ, tmp_path, code).processes[0].running


def test_a_process_that_still_runs_is_said_to_run(environ: dict[str, str], tmp_path: Path) -> None:
    summary = dump(environ, tmp_path, f"c = Capture(pid={os.getpid()})\nc.op()")
    assert summary.processes[0].running
    assert "is still running" in summary.problems[0]


def test_lost_operations_are_counted_with_their_reason(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "c = Capture()\nc.op()\n"
        "c.op(state='failed', reason='No space left on device', lost=3)\n"
        "c.op(state='dropped', reason='gave up')\nc.seal()"
    )
    summary = dump(environ, tmp_path, code)
    failed, dropped = summary.problems
    assert "1 operations could not be written, 3 tensors lost (No space left on device" in failed
    assert "1 operations were given up" in dropped


@pytest.mark.parametrize(("end", "complete"), [("signal 9", False), ("signal 15", True)])
def test_a_killed_program_is_no_complete_capture(
    environ: dict[str, str], tmp_path: Path, end: str, complete: bool
) -> None:
    summary = dump(environ, tmp_path, f"c = Capture()\nc.op('0_7')\nc.seal({end!r})")
    assert summary.complete == complete
    assert complete or "was killed by signal 9" in summary.problems[0]
    assert complete or "0_7_Linear" in summary.problems[0]


def test_a_full_disk_is_not_taken_for_a_wrong_selection(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header was the last thing that had room."""
    monkeypatch.setattr("ait_llm.dump.summary._LEDGER_BYTES", 1 << 62)
    summary = dump(environ, tmp_path, "Capture()\nos._exit(0)")
    (problem,) = summary.problems
    assert "without sealing its ledger (the disk is full)" in problem


def test_operations_that_only_the_seal_counts_were_selected(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "c = Capture()\nc.append(kind='lost', lines=5)\n"
        "c.append(kind='seal', end='exit', operations=5, failed=5, rows={})"
    )
    text = " ".join(dump(environ, tmp_path, code).problems)
    assert "5 operations could not be written" in text
    assert "step range" not in text


def test_an_output_that_is_a_link_is_not_written_through(
    environ: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ait_dump").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="ait_dump is a link"):
        dump(environ, tmp_path / "out", "Capture().op()")
    assert list(elsewhere.iterdir()) == []


def test_losses_that_only_the_seal_knows_are_counted(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture()\nc.op()\nc.append(kind='seal', end='exit', dropped=12, rows={})"
    assert dump(environ, tmp_path, code).total("dropped") == 12


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("kind='lost', lines=7", "7 lines of its ledger were not written"),
        ("kind='removed'", "the output directory was removed while it wrote"),
        ("kind='seal', end='exit', lost_files=2", "2 tables, topologies or other files were not"),
    ],
)
def test_other_losses_that_a_ledger_names_are_problems(
    environ: dict[str, str], tmp_path: Path, line: str, problem: str
) -> None:
    summary = dump(environ, tmp_path, f"c = Capture()\nc.op()\nc.append({line})\nc.seal()")
    assert problem in summary.problems[0]


def test_damaged_ledger_lines_are_reported(environ: dict[str, str], tmp_path: Path) -> None:
    code = "c = Capture()\nc.op()\nopen(c.ledger, 'a').write('{torn\\n')\nc.seal()"
    assert "1 lines of" in dump(environ, tmp_path, code).problems[0]


def test_only_ledgers_of_this_run_count(environ: dict[str, str], tmp_path: Path) -> None:
    first = dump(environ, tmp_path, "c = Capture(pid=1)\nc.op()\nc.op()\nc.seal()")
    second = dump(
        environ, tmp_path, "c = Capture(pid=2)\nc.op()\nc.seal()", start_time="20261121110001"
    )
    assert first.total("operations") == 2
    assert [process.pid for process in second.processes] == [2]


def test_a_reused_process_id_counts_only_what_this_run_added(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture(pid=1)\nc.op()\nc.seal()"
    dump(environ, tmp_path, code)
    assert dump(environ, tmp_path, code, start_time="20261121110001").total("operations") == 1


def test_a_program_that_replaced_itself_is_sealed_only_by_its_last_part(
    environ: dict[str, str], tmp_path: Path
) -> None:
    code = "c = Capture()\nc.op()\nc.seal('exec')\nc = Capture()\nc.op()"
    summary = dump(environ, tmp_path, code)
    assert summary.total("operations") == 2
    assert not summary.processes[0].sealed


def test_an_output_that_was_removed_meanwhile_is_said(
    environ: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    code = f"import shutil\nc = Capture()\nc.op()\nshutil.rmtree({str(output)!r})"
    assert "the ledger is gone" in dump(environ, output, code).problems[0]


@pytest.mark.parametrize("name", ["op", "kernel", "cpu_profiling", "layer", "model"])
def test_a_type_of_which_nothing_came_is_missing(
    environ: dict[str, str], tmp_path: Path, name: str
) -> None:
    summary = dump(environ, tmp_path, "Capture().seal()", types=(name,))
    assert any(f"type {name!r} was asked for" in problem for problem in summary.problems)


def test_tables_and_topologies_of_earlier_runs_are_not_counted(
    environ: dict[str, str], tmp_path: Path
) -> None:
    old = tmp_path / "ait_dump" / "layer" / "1" / "Old_0.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    os.utime(old, (1, 1))
    code = (
        "c = Capture()\nc.topology('layer', 'New_0')\n"
        "c.file('operation_io_tensors/{pid}/operation_tensors_0.csv')\nc.seal(op=4)"
    )
    summary = dump(environ, tmp_path, code, types=("layer", "op"))
    assert summary.complete
    assert [path.name for path in summary.topologies] == ["New_0.json"]
    assert [path.name for path in summary.tables] == ["operation_tensors_0.csv"]


STATISTICS = "[A_0]:totalTime:188, runnerSetupTime:115\\n"


def test_profiling_is_merged_for_this_run_only(environ: dict[str, str], tmp_path: Path) -> None:
    code = f"c = Capture()\nc.profiling(1, '{STATISTICS}')\nc.seal(cpu_profiling=1)"
    first = dump(environ, tmp_path, code, types=("cpu_profiling",))
    before = first.tables[0].read_bytes()
    text = first.tables[0].with_suffix(".txt")
    text.write_text("mine\n")
    second = dump(environ, tmp_path, code, types=("cpu_profiling",))
    assert first.complete
    assert second.complete
    assert first.tables[0].parent.name == START
    assert second.tables[0].parent.name == "20261121110001"  # the first second was taken
    assert first.tables[0].read_bytes() == before
    assert text.read_text() == "mine\n"


def test_profiling_of_two_processes_is_kept_apart(environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        f"for pid in (1, 2):\n c = Capture(pid=pid)\n c.profiling(1, '{STATISTICS}', pid == 2)\n"
        " c.seal(cpu_profiling=1)"
    )
    summary = dump(environ, tmp_path, code, types=("cpu_profiling",))
    assert [table.parent.name for table in summary.tables] == [START, f"{START}_2"]


def test_nothing_is_left_of_a_run_that_captured_nothing(
    environ: dict[str, str], tmp_path: Path
) -> None:
    dump(environ, tmp_path / "out", "pass", types=("cpu_profiling", "layer", "onnx"))
    assert list((tmp_path / "out").iterdir()) == []


def test_topologies_are_converted_and_the_hand_over_is_removed(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(path: Path) -> Path:
        if "Bad" in path.name:
            raise FormatError(path, "is not a topology")
        return path.with_suffix(".onnx")

    monkeypatch.setattr("ait_llm.topology.to_onnx.topology_to_onnx", convert)
    code = (
        "c = Capture()\n[c.topology('layer', n) for n in ('Bad_0', 'Good_1', 'Good_1', 'Gone_2')]\n"
        "os.remove(c.root / 'layer' / str(c.pid) / 'Gone_2.json')\nc.seal()"
    )
    summary = dump(environ, tmp_path / "out", code, types=("layer", "onnx"))
    assert [path.name for path in summary.onnx] == ["Good_1.onnx"]
    bad, gone = summary.problems
    assert "Bad_0.json was not converted to ONNX" in bad
    assert "Gone_2.json was reported but is gone" in gone
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ait_dump"]


def test_a_probe_without_ledger_counts_files_and_says_that_losses_are_unknown(
    environ: dict[str, str], tmp_path: Path
) -> None:
    own = Path(environ["AIT_LLM_LIB_DIR"]) / "libatb_probe_abi1.so"
    code = (
        "import pathlib\np = pathlib.Path(os.environ['ATB_OUTPUT_DIR']) / 'msit_dump' / 'tensors'\n"
        "p.mkdir(parents=True)\n(p / 'intensor0.bin').write_text('x')"
    )
    summary = dump(environ, tmp_path / "out", code, probe=own)
    assert summary.complete
    assert summary.files == 1
    assert "keeps no ledger" in summary.notes[0]


def test_a_probe_that_wrote_files_but_no_tensors_is_incomplete(
    environ: dict[str, str], tmp_path: Path
) -> None:
    own = Path(environ["AIT_LLM_LIB_DIR"]) / "libatb_probe_abi1.so"
    code = (
        "import pathlib\np = pathlib.Path(os.environ['ATB_OUTPUT_DIR']) / 'atb_dump_data'\n"
        "p.mkdir()\n(p / 'layer.json').write_text('x')"
    )
    summary = dump(environ, tmp_path / "out", code, probe=own)
    assert summary.files == 1
    assert "wrote no tensor file" in summary.problems[0]


def test_a_probe_without_ledger_that_wrote_nothing_is_incomplete(
    environ: dict[str, str], tmp_path: Path
) -> None:
    own = Path(environ["AIT_LLM_LIB_DIR"]) / "libatb_probe_abi1.so"
    assert not dump(environ, tmp_path / "out", "pass", probe=own).complete


def test_too_little_space_is_refused_before_the_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    config = ProbeConfig(output=tmp_path, start_time=START, min_free_bytes=2**60)
    with pytest.raises(UsageError, match="lower --min-free"):
        plan_atb_dump(["true"], config, environ)


def test_an_output_that_is_a_file_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    config = ProbeConfig(output=path, start_time=START)
    with pytest.raises(UsageError, match="cannot be written"):
        plan_atb_dump(["true"], config, environ)


def test_a_probe_that_is_not_built_is_told_with_the_way_out(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(environ["AIT_LLM_LIB_DIR"]) / "libatb_probe_abi1.so").unlink()
    monkeypatch.setattr("ait_llm.__path__", [])
    config = ProbeConfig(output=tmp_path, start_time=START)
    with pytest.raises(ProbeError, match="--probe-lib"):
        plan_atb_dump(["true"], config, environ)
