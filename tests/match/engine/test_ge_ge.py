"""Two runs of the graph engine: fused differently, with and without graph files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from compiled_dumps import CompiledRun, request

from ait_llm.compare import compare
from ait_llm.core.comparison import Report, Verdict


def _links(report: Report) -> dict[str, tuple[str, str]]:
    return {
        item.mine.title: (item.golden.title, item.relation)
        for item in report.comparisons
        if item.mine is not None and item.golden is not None
    }


@pytest.mark.parametrize(
    ("golden", "mine", "alone", "passed", "left"),
    [("unfused", "fused", "golden", 1883, 240), ("fused", "unfused", "mine", 2103, 20)],
)
def test_recorded_runs_agree_whichever_is_fused(
    recorded_decoder: dict[str, Path], golden: str, mine: str, alone: str, passed: int, left: int
) -> None:
    report = compare(
        recorded_decoder[golden], recorded_decoder[mine], metrics=["max_absolute_error"]
    )
    assert report.counts == {
        Verdict.PASS: passed,
        Verdict.FAIL: 0,
        Verdict.SKIPPED: left,
        Verdict.ERROR: 0,
    }
    assert not report.problems
    skipped = Counter(
        ("golden" if item.mine is None else "mine", item.reason.partition(",")[0])
        for item in report.with_verdict(Verdict.SKIPPED)
    )
    [(side, reason)] = skipped
    assert side == alone
    assert reason.endswith("computes it inside a fused operator")


def test_a_fused_operator_against_its_parts(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request(), fused=False)
    mine.graph()
    mine.ge(request())
    links = _links(compare(golden.root, mine.root))
    assert links["MulCast_1 intensor0"] == ("Mul intensor0", "exact")
    assert links["MulCast_1 intensor1"] == ("Mul intensor1", "exact")
    assert links["MulCast_1 outtensor0"] == ("Cast_1 outtensor0", "fused")
    assert links["TopKV2 intensor1"] == ("TopKV2 intensor1", "exact")


def test_parts_of_a_fused_golden_operator(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request())
    mine.graph()
    product = mine.values(request())["product"] * np.float32(1.08)
    mine.ge(request(), fused=False, changed={"product": product})
    report = compare(golden.root, mine.root)
    links = _links(report)
    assert links["Mul intensor0"] == ("MulCast_1 intensor0", "exact")
    assert links["Mul outtensor0"] == ("MulCast_1 outtensor0", "via cast")
    assert links["Cast_1 outtensor0"] == ("MulCast_1 outtensor0", "exact")
    assert [origin.op for origin in report.origins] == ["Mul"]


def test_the_graph_file_of_the_other_side_is_used(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request(), fused=False)
    mine.ge(request())
    report = compare(golden.root, mine.root)
    assert _links(report)["MulCast_1 outtensor0"] == ("Cast_1 outtensor0", "fused")
    assert "that of the other side is used" in report.problems[0].text
    assert not report.problems[0].decides


def test_without_any_graph_file_equal_names_remain(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.ge(request(), fused=False)
    mine.ge(request())
    report = compare(golden.root, mine.root)
    assert _links(report)["TopKV2 outtensor0"] == ("TopKV2 outtensor0", "exact")
    [left] = [item for item in report.comparisons if item.record.title == "MulCast_1 outtensor0"]
    assert left.reason == "golden has no operator of that name, and no graph file tells more"
    assert report.exit_code() == 3


def test_a_fault_is_named_with_the_chain_it_is_in(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request(), fused=False)
    mine.graph()
    cast = mine.values(request())["cast"] * np.float32(1.08)
    mine.ge(request(), changed={"cast": cast})
    [origin] = compare(golden.root, mine.root).origins
    assert (origin.op, origin.parts, origin.golden_op) == ("MulCast_1", ("Mul", "Cast_1"), "Cast_1")


def test_runs_of_two_models_are_told(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request())
    other = mine.graph()
    text = other.read_text()
    for name in ("Cast_1", "Cast_2", "Mul", "TopKV2", "Const"):
        text = text.replace(f'"{name}"', f'"{name}9"').replace(f'"{name}:', f'"{name}9:')
    other.write_text(text)
    mine.ge(request())
    texts = [problem.text for problem in compare(golden.root, mine.root).problems]
    assert any("are they of the same model?" in text for text in texts)
