"""Recorded dumps of a two-layer decoder from the command line: clean ones, and the guilty operator.

A fault is injected into one operator of the graph before fusion, and everything that follows from
it is computed again, through fused operators and into the caches of later steps.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from ge_faults import Fault, FaultyDump, one_element, scaled, swapped_rows

from ait_llm.cli.main import ait


@pytest.fixture(scope="module")
def short(
    recorded_decoder: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The same without the later decode steps: prefill is token 0, the first step token 1."""
    found = {}
    for name, folder in recorded_decoder.items():
        found[name] = tmp_path_factory.mktemp("short") / name
        shutil.copytree(folder, found[name], ignore=shutil.ignore_patterns("graph_3", "graph_3_*"))
    return found


def compared(golden: Path, mine: Path, output: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of ``ait llm compare``."""
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, [*map(str, words), *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)


def untold(summary: Mapping[str, Any]) -> list[str]:
    """Problems, but for the note that the last graph, taken away from both sides, has no data."""
    note = "graph_3 was compiled, and neither side has data of it"
    return [problem for problem in summary["problems"] if problem != note]


def test_a_whole_clean_dump_gives_no_false_alarm(
    recorded_decoder: Mapping[str, Path], tmp_path: Path
) -> None:
    fx, fused = recorded_decoder["fx"], recorded_decoder["fused"]
    code, summary = compared(fx, fused, tmp_path)
    assert code == 0
    assert summary["counts"] == {"PASS": 1745, "FAIL": 0, "SKIPPED": 170, "ERROR": 0}
    assert summary["problems"] == summary["origins"] == []


@pytest.mark.parametrize(
    ("golden", "mine"), [("fx", "unfused"), ("unfused", "fused"), ("fused", "fx")]
)
def test_clean_dumps_give_no_false_alarm(
    short: Mapping[str, Path], tmp_path: Path, golden: str, mine: str
) -> None:
    code, summary = compared(short[golden], short[mine], tmp_path)
    assert code == 0
    assert summary["counts"]["FAIL"] == summary["counts"]["ERROR"] == 0
    assert summary["counts"]["PASS"] > 700
    assert untold(summary) == summary["origins"] == []


@pytest.mark.parametrize(("golden", "mine"), [("fx", "fused"), ("unfused", "fused")])
def test_a_file_that_the_graph_engine_should_have_left_is_missing(
    short: Mapping[str, Path], tmp_path: Path, golden: str, mine: str
) -> None:
    less = tmp_path / "mine"
    shutil.copytree(short[mine], less)
    for file in less.rglob("MatMulV2.MatMulV2.*"):
        file.unlink()
    code, summary = compared(short[golden], less, tmp_path)
    assert code == 3
    assert summary["counts"]["FAIL"] == 0


@pytest.mark.parametrize(
    ("golden", "token", "operator", "fault", "op", "parts", "counterpart"),
    [
        ("fx", 0, "Mul_8", scaled, "SwishMul_8Cast_17", "Swish Mul_8 Cast_17", "mul_341"),
        ("fx", 1, "Add_4", one_element, "Add_4", "", "add_106"),
        ("fx", 1, "Cast_7", swapped_rows, "Mul_4Cast_7", "Mul_4 Cast_7", "mul_4"),
        ("fx", 0, "Transpose_3", swapped_rows, "Transpose_3", "", "split_with_sizes"),
        ("unfused", 1, "Muls_1", scaled, "Muls_1Cast_28", "Muls_1 Cast_28", "Cast_28"),
        ("unfused", 0, "MatMulV2", swapped_rows, "MatMulV2", "", "MatMulV2"),
    ],
)
def test_the_faulty_operator_is_named_with_its_chain(
    short: Mapping[str, Path],
    tmp_path: Path,
    golden: str,
    token: int,
    operator: str,
    fault: Fault,
    op: str,
    parts: str,
    counterpart: str,
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(short["fused"], mine)
    FaultyDump(mine).inject(token, operator, fault)
    code, summary = compared(short[golden], mine, tmp_path)
    assert code == 1
    [origin] = summary["origins"]
    assert (origin["op"], origin["step"]) == (op, token)
    assert " ".join(origin.get("parts", ())) == parts
    assert origin["golden_op"] == counterpart
    assert origin.get("certain", True)
    [table] = tmp_path.glob("*.csv")
    with table.open(newline="") as file:
        suspects = [row for row in csv.DictReader(file) if row["suspect"] == "1"]
    [row] = suspects
    assert (row["ge_op_name"], row["side"], int(row["token_id"])) == (op, "output", token)
    assert row["fused_from"] == parts.replace(" ", " + ")


def test_a_faulty_fx_node_is_named_when_the_graph_engine_is_golden(
    short: Mapping[str, Path], tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(short["fx"], mine)
    folder = mine / "worldsize1_global_rank0/graph_2/0"
    [result] = folder.glob("mm_1-*.OUTPUT.0.*")
    right = np.load(result)
    for file in folder.glob("*.npy"):  # the result, and what other nodes read of it
        if file.stat().st_size != result.stat().st_size:
            continue
        array = np.load(file)
        if array.tobytes() == right.tobytes():
            np.save(file, scaled(array))
    code, summary = compared(short["fused"], mine, tmp_path)
    assert code == 1
    [origin] = summary["origins"]
    assert (origin["op"], origin["step"], origin["golden_op"]) == ("mm_1", 1, "MatMul_1")


def test_another_prompt_is_called_so_once(short: Mapping[str, Path], tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    shutil.copytree(short["fx"], golden)
    [ids] = golden.glob("worldsize1_global_rank0/graph_1/0/embedding-*.INPUT.1.*")
    np.save(ids, np.load(ids)[:, ::-1])
    _, summary = compared(golden, short["fused"], tmp_path)
    [problem] = untold(summary)
    assert "inputs differ: not the same request" in problem
    assert "GatherV2 intensor1 of token 0" in problem
