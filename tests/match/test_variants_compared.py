"""The command on captures that differ in batch size, element type and quantisation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.compare import compare
from ait_llm.core import DType, Verdict

pytestmark = pytest.mark.native


def _command(golden: Path, mine: Path, output: Path, *more: str) -> Result:
    words = ["llm", "compare", "-gp", str(golden), "-mp", str(mine), "-o", str(output), *more]
    return CliRunner().invoke(ait, words)


@pytest.mark.parametrize(("golden", "mine"), [("one", "four"), ("four", "one"), ("one", "bf16")])
def test_another_batch_size_or_type_passes_and_nothing_is_left_out(
    captures: dict[str, Path], golden: str, mine: str, tmp_path: Path
) -> None:
    result = _command(captures[golden], captures[mine], tmp_path, "--json")
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout.splitlines()[-1])
    assert numbers["verdict"] == "PASS"


def test_what_follows_an_int8_product_is_judged_as_quantised(captures: dict[str, Path]) -> None:
    report = compare(captures["float"], captures["w8a8"])
    assert not list(report.with_verdict(Verdict.FAIL))
    assert not report.origins
    limits = {
        (item.record.op, item.record.name): item.tolerance["relative_euclidean_distance"]
        for item in report.comparisons
        if item.values and item.record.dtype is DType.FLOAT16
    }
    assert limits["RmsNormOperation_0_0", "outtensor0"] == 4e-3
    assert limits["LinearOperation_0_2", "outtensor0"] == 0.1
    assert limits["RmsNormOperation_1_0", "outtensor0"] == 0.1
    assert "behind quantised products" in next(
        item.why for item in report.comparisons if item.record.op == "LinearOperation_0_2"
    )


def test_limits_of_the_user_hold_for_quantised_runs_too(captures: dict[str, Path]) -> None:
    report = compare(captures["float"], captures["w8a8"], tolerance="fp16=1e-3")
    assert list(report.with_verdict(Verdict.FAIL))


def test_two_quantised_runs_are_judged_by_their_type(captures: dict[str, Path]) -> None:
    report = compare(captures["w8a8"], captures["w8a8"])
    limits = {item.tolerance.get("relative_euclidean_distance") for item in report.comparisons}
    assert 0.1 not in limits


def test_pairs_that_a_mapping_names_are_judged_as_quantised(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    saved = tmp_path / "pairs.map"
    sides = captures["float"], captures["w8a8"]
    _command(*sides, tmp_path / "first", "--save-mapping", str(saved))
    result = _command(*sides, tmp_path / "again", "-mf", str(saved), "--json")
    numbers = json.loads(result.stdout.splitlines()[-1])
    assert numbers["counts"]["PASS"] > 0
    assert numbers["counts"]["FAIL"] == 0
