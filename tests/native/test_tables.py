"""Operation and kernel tables, profiling."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from native_host import Host, Run, call

pytestmark = pytest.mark.native

HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError"
)


def rows_of(run: Run, kind: str = "operation", count: int = 0) -> list[dict[str, str]]:
    (file,) = (run.dump / f"{kind}_io_tensors").glob(f"*/{kind}_tensors_{count}.csv")
    text = file.read_text()
    assert text.splitlines()[0] == HEADER
    assert text.endswith("\n")
    return list(csv.DictReader(text.splitlines(), delimiter="|", quoting=csv.QUOTE_NONE))


def test_the_worked_row_is_written_character_for_character(host: Host) -> None:
    param = (
        '{"elewiseType":8,"mulsParam":{"varAttr":0.0},"outTensorType":-1,'
        '"quantParam":{"asymmetric":false,"inputOffset":0,"inputScale":1.0}}'
    )
    folder = "0_4242/0/0_DecoderLayer/2_ElewiseOperation/after"
    desc = "float16,nd,2x2"
    run = host.script(
        call(
            "op",
            0,
            "ElewiseOperation_0_2",
            param,
            f"{desc},{folder}/intensor0.bin;{desc},{folder}/intensor1.bin",
            f"{desc},{folder}/outtensor0.bin",
        ),
        ATB_DUMP_TYPE="op",
    )
    files = f"{run.dump}/tensors/{folder}"
    (table,) = (run.dump / "operation_io_tensors").rglob("*.csv")
    assert table == run.dump / f"operation_io_tensors/{run.pid}/operation_tensors_0.csv"
    assert table.read_text() == (
        f"{HEADER}\n1|ElewiseOperation_0_21|ElewiseOperation_0_2|{param}|2|float16;float16|nd;nd|"
        f"2,2;2,2|1|float16|nd|2,2|customize;customize| |{files}/intensor0.bin;"
        f"{files}/intensor1.bin|{files}/outtensor0.bin| | | | |NO_ERROR\n"
    )


def test_rows_come_in_the_order_of_execution(host: Host) -> None:
    run = host.trace(ATB_DUMP_TYPE="op|kernel")
    assert [row["OpName"] for row in rows_of(run)] == [
        "LinearOperation_0_0",
        "LinearOperation_0_1_0",
        "ActivationOperation_0_1_1",
        "ElewiseOperation_0_2",
    ]
    assert [row["OpName"] for row in rows_of(run, "kernel")] == [
        "MatMulOperation",
        "MatMulOperation",
        "ActivationOperation",
        "ElewiseOperation",
    ]
    assert [row["CaseNum"] for row in rows_of(run)] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("generation", ["80", "83", "91"])
@pytest.mark.parametrize("time", ["0", "1", "2"])
@pytest.mark.parametrize("kind", ["operation", "kernel"])
def test_tables_name_the_files_that_were_written(
    host1: Host, generation: str, time: str, kind: str
) -> None:
    run = host1.trace(
        f"generation={generation}", ATB_DUMP_TYPE="tensor|op|kernel", ATB_SAVE_TENSOR_TIME=time
    )
    rows = rows_of(run, kind)
    assert len(rows) == 4
    for row in rows:
        inputs = [Path(name) for name in row["InTensorFile"].split(";")]
        outputs = [Path(name) for name in row["OutTensorFile"].split(";")]
        assert all(file.is_file() for file in inputs + outputs)
        assert {file.parent.name for file in inputs} == {"after" if time == "1" else "before"}
        assert {file.parent.name for file in outputs} == {"before" if time == "0" else "after"}
        if kind == "kernel":
            assert {file.parents[1].name.endswith("Kernel") for file in inputs + outputs} == {True}


def test_a_kernel_that_was_not_selected_keeps_the_path_of_atb(host1: Host) -> None:
    run = host1.trace(ATB_DUMP_TYPE="tensor|kernel", ATB_SAVE_TENSOR_IDS="0_2")
    rows = rows_of(run, "kernel")
    assert not Path(rows[0]["OutTensorFile"]).exists()
    assert "Kernel/" in rows[3]["OutTensorFile"]
    assert Path(rows[3]["OutTensorFile"]).is_file()


def test_separators_inside_parameters_are_escaped(host: Host) -> None:
    run = host.script(
        call("op", 0, "A_0", '{"text":"a|b\\nc"}', "", "float16,nd,2,0_1/0/0_A/after/x.bin"),
        ATB_DUMP_TYPE="op",
    )
    (row,) = rows_of(run)
    # The line break came as a real one, so that it is legal JSON only as an escape.
    assert json.loads(row["OpParam"]) == {"text": "a|b\nc"}
    assert row["InNum"] == "0"
    assert row["InDType"] == ""


def test_case_numbers_have_no_limit(host1: Host) -> None:
    line = call("op", 0, "A_0", "{}", "", "")
    run = host1.script(*[line] * 10050, ATB_DUMP_TYPE="op")
    assert [row["CaseNum"] for row in rows_of(run)] == [str(i + 1) for i in range(10050)]


def test_steps_and_devices_restrict_the_tables_and_ids_do_not(host1: Host) -> None:
    def report(kind: str, count: int, device: int) -> str:
        return call(kind, count, "A_0", "{}", "", f"float16,nd,2,{device}_1/0/0_A/after/x.bin")

    run = host1.script(
        *(report(kind, n, d) for kind in ("op", "kernel") for n in (0, 1, 2) for d in (0, 1)),
        ATB_DUMP_TYPE="op|kernel",
        ATB_SAVE_TENSOR_RANGE="1,1",
        ATB_DEVICE_ID="1",
        ATB_SAVE_TENSOR_IDS="7",
        ATB_SAVE_TENSOR_RUNNER="zzz",
    )
    files = sorted(path.name for path in run.dump.rglob("*.csv"))
    assert files == ["kernel_tensors_1.csv", "operation_tensors_1.csv"]
    assert len(rows_of(run, "operation", 1)) == 1


def test_many_tables_stay_complete(host1: Host) -> None:
    calls = [call("op", n, f"A_{n}", "{}", "", "") for n in range(80)] * 2
    run = host1.script(*calls, ATB_DUMP_TYPE="op", ATB_SAVE_TENSOR_RANGE="all")
    for n in (0, 40, 79):
        assert [row["CaseNum"] for row in rows_of(run, "operation", n)] == ["1", "2"]


def test_an_older_table_of_the_same_process_id_is_replaced(host1: Host) -> None:
    process = host1.popen("script", ATB_DUMP_TYPE="op")
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    old = host1.output / "ait_dump" / "operation_io_tensors" / str(pid)
    old.mkdir(parents=True)
    (old / "operation_tensors_0.csv").write_text("old\n")
    host1.finish(process, call("op", 0, "A_0", "{}", "", "") + "\n")
    lines = (old / "operation_tensors_0.csv").read_text().splitlines()
    assert lines[0] == HEADER
    assert len(lines) == 2


@pytest.mark.parametrize("generation", ["80", "81", "83"])
def test_profiling_writes_one_line_per_report(host: Host, generation: str) -> None:
    run = host.trace(
        f"generation={generation}",
        "rounds=2",
        ATB_DUMP_TYPE="cpu_profiling",
        AIT_PROBE_START_TIME="20261121110000",
    )
    folder = run.dump / "cpu_profiling" / "20261121110000"
    assert sorted(path.name for path in folder.iterdir()) == [
        "operation_statistic_1.txt",
        "operation_statistic_2.txt",
    ]
    lines = (folder / "operation_statistic_1.txt").read_text().splitlines()
    setup = "[DecoderLayer_0]:totalTime:188, runnerCreateTime:12, runnerSetupTime:115"
    execute = "[DecoderLayer_0]:totalTime:535801, streamSyncTime:0, kernelExecuteTime:416"
    assert lines == ([setup, execute] if generation == "80" else [setup])
    assert run.ledger()[-1]["cpu_profiling"] == "20261121110000"


def test_processes_of_one_launch_keep_their_profiling_apart(host1: Host) -> None:
    settings = {"ATB_DUMP_TYPE": "cpu_profiling", "AIT_PROBE_START_TIME": "20261121110000"}
    pids = [host1.trace(**settings).summary["pid"] for _ in range(2)]
    folders = sorted(path.name for path in (host1.output / "ait_dump/cpu_profiling").iterdir())
    assert folders == ["20261121110000", f"20261121110000_{pids[1]}"]
    seals = [
        json.loads(file.read_text().splitlines()[-1])["cpu_profiling"]
        for file in (host1.output / "ait_dump/ledger").iterdir()
    ]
    assert sorted(seals) == folders


def test_without_a_start_time_profiling_is_named_after_the_process(host1: Host) -> None:
    run = host1.trace(ATB_DUMP_TYPE="cpu_profiling")
    assert [p.name for p in (run.dump / "cpu_profiling").iterdir()] == [str(run.summary["pid"])]
