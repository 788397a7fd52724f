"""Tables, ledgers and reports: files of lines."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import seeds
from engine import Target
from envelopes import archive
from mutations import mutate_json_lines, mutate_text, table_mutation
from report_builder import decoder_report, problems

from ait_llm.apicheck.precision_compare import compare_precision
from ait_llm.apicheck.tables import DETAIL_COLUMNS, RESULT_COLUMNS, Tables
from ait_llm.compare.api.merge import MergeSettings, merge_results
from ait_llm.compare.resume import EarlierReport
from ait_llm.dump import ledger as launcher_ledger
from ait_llm.dump.profiling import merge_profiling
from ait_llm.dump.torch_ledger import read_torch_ledger
from ait_llm.dumps import ge_names, ge_tables, torch_tables
from ait_llm.dumps.io_table import read_io_table
from ait_llm.dumps.ledger import read_ledger
from ait_llm.dumps.ptdbg_lines import is_text, read_lines
from ait_llm.errcheck.files import move_reports
from ait_llm.opcheck.journal import read_journal
from ait_llm.report.jsonl import read_jsonl, write_jsonl

_GE_TABLE = (
    b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    b"NaN Count,Negative Inf Count,Positive Inf Count\n"
    b"Input,0,24,DT_FLOAT,ND,[2;3],1.5,-1,0.25,6,0,0,0\n"
    b"Output,0,24,DT_BF16,FRACTAL_NZ,2x3,nan,NA,0.25,6,1,0,2\n"
)
_TORCH_TABLE = (
    b"module,call,tensor,dtype,shape,min,max,mean,l2norm,nan,inf\n"
    b'root.layers.0,0,input_0,float16,"2,3",-1.0,1.0,0.5,2.0,0,0\n'
    b"root.head,1,output,bfloat16,4,N/A,N/A,N/A,N/A,N/A,N/A\n"
)
_STATISTICS = b"[A_0]:totalTime:188, runnerSetupTime:115\n[A_0]:totalTime:5, kernelExecuteTime:4\n"
_OVERFLOWS = b"Overflow detected! Operator name: LinearOperation_2_0:MatMulKernel\nother\n"
_PTDBG = b"""["Tensor_permute_1_forward_input.0", 1, [], "torch.float32", [2, 3], [1.0, -1.0, 0.1]]
["Tensor_permute_1_forward_input.1", 1, [], "<class 'int'>", "[]", [0, 0, 0]]
["Tensor_permute_1_forward_stack_info", [["/home/u/t.py", "31", "forward", "x = x"]]]
["VF_lstm_99_forward_input.1.0", 101, ["b20e96b1"], "torch.float16", [3], [1.0, "Nan", 0.1, 2.5]]
"""
_ENTRY = {
    "kind": "op",
    "op": "0_1",
    "type": "LinearOperation",
    "phase": "after",
    "step": 0,
    "path": "0_4242/0/0_Layer/1_LinearOperation",
    "tensors": 2,
    "bytes": 48,
}
_LEDGER = [
    {
        "kind": "header",
        "schema": 1,
        "tool": "ait-llm",
        "device": "0",
        "pid": 4242,
        "host": "h",
        "options": {"AIT_PROBE_START_TIME": "20260102030405"},
        "environment": {"ATB_HOME": "/a"},
    },
    {**_ENTRY, "state": "saved"},
    {**_ENTRY, "state": "failed", "lost": 1, "reason": "No space left on device"},
    {"kind": "file", "path": "layer/1.json", "reason": "No space left on device"},
    {"kind": "lost", "lines": 2},
    {"kind": "seal", "end": "signal 9", "saved": 1, "failed": 1, "rows": {"op": 4}},
]
_TORCH_LEDGER = [
    {
        "kind": "header",
        "schema": 1,
        "producer": "torch",
        "device": "cpu",
        "pid": 7,
        "run": "r",
        "weights": [],
        "steps": [0],
    },
    {**_ENTRY, "op": "root.layers.0", "state": "saved", "path": "cpu_7/0/root.layers.0", "call": 0},
    {
        **_ENTRY,
        "op": "root.head",
        "state": "dropped",
        "reason": "limit",
        "path": "cpu_7/0/root.head",
    },
    {"kind": "step", "step": 0, "tensors": 2, "bytes": 48},
    {"kind": "seal", "end": "exit", "saved": 1},
]
JOURNAL_HEADER = b'{"kind": "header", "schema": 1, "options": {"rerun": false}}\n'
JOURNAL: list[dict[str, Any]] = [
    {"kind": "header", "schema": 1, "options": {"rerun": False}},
    {
        "kind": "operator",
        "outputs": [
            {
                "device": 0,
                "pid": 1,
                "step": 0,
                "op_id": "0_1",
                "op_type": "LinearOperation",
                "output": "outtensor0",
                "verdict": "PASS",
                "shape": [2, 3],
                "values": {"cosine": 1.0, "kl": "inf"},
            }
        ],
    },
]
_RANK_TABLE = (
    b"NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Shape,Bench Shape,Cosine,MaxAbsErr,"
    b"MaxRelativeErr,NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,Bench mean,"
    b"Bench l2norm,Accuracy Reached or Not,Err_Message\n"
    b"Distributed.all_reduce.0.forward.input.0,same,torch.float32,torch.float32,[2],[2],1.0,0.0,0.0"
    b",1,0,0.5,1,1,0,0.5,1,Yes,\n"
    b"Distributed.all_reduce.0.forward.input.1,same,torch.ProcessGroup,x,[0],[0],N/A,N/A,N/A"
    b',"[0, 1]",N/A,N/A,N/A,"[0, 1]",N/A,N/A,N/A,Yes,\n'
)
_RANK_TABLE_NAME = "compare_result_rank0-rank0_20260102030405"


def _read_statistics(path: Path) -> None:
    torch_tables.read_statistics(path)


def _read_ledger(path: Path) -> None:
    for _ in read_ledger(path).entries():
        pass


def _read_launcher_ledger(path: Path) -> None:
    launcher_ledger.read_ledger(path, "20260102030405")


def _read_torch_ledger(path: Path) -> None:
    read_torch_ledger(path, "r")


def _read_ptdbg(path: Path) -> None:
    is_text(path)
    for line in read_lines(path):
        _ = line.role, line.is_overflow, line.stack
        line.recorded("x.npy")


def _read_report(path: Path) -> None:
    EarlierReport(path, read_jsonl(path).options)


def _merge_reports(path: Path) -> None:
    target = path.parent / "moved"
    target.mkdir(exist_ok=True)
    move_reports(path.parent, target)


def _read_checked(path: Path) -> None:
    """An interrupted check goes on behind what its tables hold."""
    Tables(path.parent, "20260102030405", "", "default")


def _second_rank(folder: Path) -> None:
    name = _RANK_TABLE_NAME.replace("rank0", "rank1")
    (folder / f"{name}.csv").write_bytes(_RANK_TABLE)


def _merge_ranks(path: Path) -> None:
    output = path.parent / "merged"
    try:
        merge_results(path.parent, output, MergeSettings(("Distributed.all_reduce.0",)), "1")
    finally:
        for table in output.glob("*.xlsx"):
            table.unlink()


def _compare_precision(path: Path) -> None:
    output = path.parent / "precision"
    for table in output.glob("*.csv"):
        table.unlink()
    compare_precision(path, path, output)


def _workbook() -> list[bytes]:
    def write(path: Path) -> None:
        book = openpyxl.Workbook()
        sheet = book.active
        assert sheet is not None
        for line in _RANK_TABLE.decode().splitlines():
            sheet.append(re.split(r",(?![ ])", line))
        book.save(path)

    return [seeds.written(write)]


def _details(path: Path) -> None:
    row = ["Functional.linear.0.forward.output.0", "torch.float32", "torch.float16", "[2]"]
    cells = [*row, *["0.5"] * (len(DETAIL_COLUMNS) - 6), "pass", "message"]
    lines = [",".join(DETAIL_COLUMNS), ",".join(f'"{cell}"' for cell in cells)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")


def report_lines() -> list[bytes]:
    """Reports of a healthy comparison and of one that failed."""
    full = decoder_report(layers=1)
    half = SimpleNamespace(report=decoder_report(layers=1, fault=(0, 1)), problems=problems())
    return [
        seeds.written(lambda path: write_jsonl(full, path)),
        seeds.written(lambda path: write_jsonl(half.report, path)),
    ]


def _result_table() -> list[bytes]:
    rows = ["Functional.linear.0.forward,pass,pass,", "Tensor.add.1.forward,error,SKIP,why"]
    return ["\n".join([",".join(RESULT_COLUMNS), *rows, ""]).encode()]


_COMMA = table_mutation(",")
TARGETS = (
    Target(
        "io_table",
        "operation_tensors_0.csv",
        lambda: seeds.recorded("topology/demo/operation_io_tensors/4242/*.csv"),
        lambda path: list(read_io_table(path)) and [row.params for row in read_io_table(path)],
        table_mutation("|"),
    ),
    Target(
        "ge_statistics", "Add.Add.1.2.3.csv", lambda: [_GE_TABLE], ge_tables.read_statistics, _COMMA
    ),
    Target(
        "ge_mapping",
        "mapping.csv",
        lambda: [b"12345,Add.a/b.1.2.3\n7,x\n"],
        ge_names.read_mapping,
        _COMMA,
    ),
    Target("torch_statistics", "statistics.csv", lambda: [_TORCH_TABLE], _read_statistics, _COMMA),
    Target(
        "ledger",
        "0_4242.jsonl",
        lambda: [seeds.json_bytes(_LEDGER)],
        _read_ledger,
        mutate_json_lines,
    ),
    Target(
        "ledger_of_launcher",
        "0_4242.jsonl",
        lambda: [seeds.json_bytes(_LEDGER)],
        _read_launcher_ledger,
        mutate_json_lines,
    ),
    Target(
        "torch_ledger",
        "cpu_7.jsonl",
        lambda: [seeds.json_bytes(_TORCH_LEDGER)],
        _read_torch_ledger,
        mutate_json_lines,
    ),
    Target("ptdbg_lines", "npu_dump.pkl", lambda: [_PTDBG], _read_ptdbg, mutate_json_lines),
    Target("report", "report.jsonl", report_lines, _read_report, mutate_json_lines),
    Target(
        "opcheck_journal",
        "journal.jsonl",
        lambda: [seeds.json_bytes(JOURNAL)],
        lambda path: read_journal(path, {"rerun": False}),
        mutate_json_lines,
    ),
    Target(
        "profiling",
        "operation_statistic_1.txt",
        lambda: [_STATISTICS],
        lambda path: merge_profiling(path.parent),
        mutate_text,
    ),
    Target(
        "overflow_reports",
        "ait_overflow_res_7.txt",
        lambda: [_OVERFLOWS],
        _merge_reports,
        mutate_text,
    ),
    Target(
        "api_check_results",
        "accuracy_checking_result_20260102030405.csv",
        _result_table,
        _read_checked,
        _COMMA,
    ),
    Target(
        "api_check_details",
        "accuracy_checking_details_1.csv",
        lambda: [seeds.written(_details)],
        _compare_precision,
        _COMMA,
    ),
    Target(
        "rank_table",
        f"{_RANK_TABLE_NAME}.csv",
        lambda: [_RANK_TABLE],
        _merge_ranks,
        _COMMA,
        _second_rank,
        names_folder=True,
    ),
    Target(
        "rank_workbook",
        f"{_RANK_TABLE_NAME}.xlsx",
        _workbook,
        _merge_ranks,
        archive,
        _second_rank,
        names_folder=True,
    ),
)
