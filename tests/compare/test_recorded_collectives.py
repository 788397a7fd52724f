"""A model on two ranks, recorded with torch's collectives: what makes a wrong sum is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from matching_truth.recordings import DATA, unpack

from ait_llm import open_dump
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

SUM = "root.layers.1.c10d.allreduce_.default"
PRODUCT = "root.layers.1.down.aten.mm.default"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "collectives.tar.xz", tmp_path_factory.mktemp("collectives"))


def second(dump: Path) -> int:
    """Process of the second rank."""
    (place,) = {
        each.pid
        for each in open_dump(dump).operations()
        if each.group is not None and each.group.place == 1
    }
    return place


def collectives(report: OpcheckReport) -> dict[str, set[Verdict]]:
    found: dict[str, set[Verdict]] = {}
    for item in report.items:
        if item.op_type.startswith("c10d."):
            found.setdefault(item.op_type.split(".")[1], set()).add(item.verdict)
    return found


def compared(dumps: Path, name: str, output: Path) -> tuple[int, list[dict[str, Any]]]:
    words = ["llm", "compare", "-gp", dumps / "healthy", "-mp", dumps / name, "-o", output]
    result = CliRunner().invoke(ait, [*map(str, words), "--json"])
    return result.exit_code, json.loads(result.stdout).get("origins", [])


def test_healthy_collectives_are_right(dumps: Path) -> None:
    found = collectives(opcheck(dumps / "healthy", jobs=1))
    kinds = ("allreduce_", "_allgather_base_", "allgather_", "broadcast_")
    assert found == {key: {Verdict.PASS} for key in kinds}


def test_a_wrong_sum_is_found_without_golden(dumps: Path) -> None:
    failed = [
        (item.op_id, item.pid)
        for item in opcheck(dumps / "sum", jobs=1).items
        if item.verdict is Verdict.FAIL
    ]
    assert failed == [(f"{SUM}@0", second(dumps / "sum"))]


def test_collectives_of_one_rank_alone_are_not_judged(dumps: Path) -> None:
    pid = second(dumps / "sum")
    (folder,) = (dumps / "sum").rglob(f"torch_tensors/cpu_{pid}")
    report = opcheck(folder, jobs=1)
    assert not collectives(report)
    assert any("speak to other ranks" in reason for reason in report.unchecked)


def test_two_healthy_runs_agree(dumps: Path, tmp_path: Path) -> None:
    assert compared(dumps, "again", tmp_path) == (0, [])


def test_a_wrong_sum_is_named_before_what_follows_on_other_ranks(
    dumps: Path, tmp_path: Path
) -> None:
    code, origins = compared(dumps, "sum", tmp_path)
    assert (code, origins[0]["op"], origins[0]["pid"]) == (1, SUM, second(dumps / "sum"))
    assert origins[0].get("certain", True)
    assert not any(each.get("certain", True) for each in origins[1:])


def test_a_sum_of_a_wrong_product_is_not_blamed(dumps: Path, tmp_path: Path) -> None:
    code, origins = compared(dumps, "product", tmp_path)
    assert (code, origins[0]["op"], origins[0]["pid"]) == (1, PRODUCT, second(dumps / "product"))
    assert not any(each.get("certain", True) for each in origins[1:])
