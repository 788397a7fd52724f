"""The command that looks closer at an origin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_builder import comparison, record, report

from ait_llm.compare.origin_finding import OWN_CODE
from ait_llm.core.comparison import Origin, Side
from ait_llm.report.next_command import next_command

MODULE = "root.model.layers.1.self_attn"


def _next(
    kind: str = "torch",
    op: str = MODULE,
    deep: bool = False,
    path: str = "/runs/my run",
    **changes: Any,
) -> str:
    origin = Origin(op, "3_0_2", "Module", 2, **changes)
    value = report(comparison(1, mine=record(op)), origins=(origin,))
    mine = Side(path, kind)
    return next_command(
        replace(value, golden=Side("/golden", kind), mine=mine, options={"deep": deep})
    )


def test_an_operator_that_was_recomputed_is_packed() -> None:
    assert _next(introduced=0.1) == (
        f"ait llm repro --dump '/runs/my run' --op {MODULE} --step 2 -o case.zip"
    )
    assert " --op 3_0_2 " in _next("atb", introduced=0.1)


def test_a_dump_in_an_object_store_is_not_packed() -> None:
    assert _next(path="s3://captures/mine", introduced=0.1) == ""


def test_code_of_a_module_is_looked_into_by_a_capture_of_operators() -> None:
    origin = Origin(MODULE, "3", "Module", 0, kind=OWN_CODE)
    value = report(comparison(1, mine=record(MODULE)), origins=(origin,))
    value = replace(value, mine=Side("/mine", "torch"))
    assert "ait llm dump --type torch-op " in next_command(value)
    item = comparison(1, mine=record(f"{MODULE}.aten.mul.Tensor"))
    assert next_command(replace(value, comparisons=(item,))) == ""


@pytest.mark.parametrize(("deep", "words"), [(False, "ait llm compare -gp "), (True, "")])
def test_candidates_are_told_apart_by_computing_all(deep: bool, words: str) -> None:
    found = _next(deep=deep, candidates=("a", "b"), certain=False)
    assert found.startswith(words)
    assert found.endswith(" --deep") is not deep


def test_without_an_origin_there_is_none() -> None:
    assert next_command(report(comparison())) == ""
