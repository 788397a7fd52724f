"""An engine that packs requests, against a plain program that answers one after the other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_program import PROMPTS, capture_golden, capture_server, golden_model

from ait_llm import compare
from ait_llm.core.comparison import Report, Verdict
from ait_llm.dumps import open_dump
from ait_llm.match.scheduled import Scheduled, by_schedule
from ait_llm.program.passes import passes_of
from ait_llm.program.readings import readings

TOKENS = 3


@pytest.fixture(scope="module")
def model() -> Any:
    return golden_model()


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    with torch.no_grad():
        capture_server(place / "mine", model, weights=True)
    capture_golden(place / "golden", model, PROMPTS, TOKENS)
    return place


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return compare(folder / "golden", folder / "mine")


def shared(golden: Path, mine: Path) -> Scheduled:
    sides = []
    for path in (golden, mine):
        dump = open_dump(path)
        [process] = dump.processes
        sides.append(readings(passes_of(dump, process)))
    found = by_schedule(sides[0], sides[1])
    assert found is not None
    return found


def test_a_healthy_engine_passes(report: Report) -> None:
    assert report.verdict is Verdict.PASS
    assert [problem.text for problem in report.problems if problem.decides] == []
    assert report.origins == ()


def test_all_of_each_layer_is_compared_for_each_request(report: Report) -> None:
    passed = [item for item in report.comparisons if item.verdict is Verdict.PASS and item.mine]
    found = [
        item for item in passed
        if item.mine.op == "root.model.layers.1.mlp.down_proj" and item.mine.role == "out"
    ]  # fmt: skip
    assert len(found) == 13  # a request in a pass, each


def test_logits_of_every_request_are_compared(report: Report) -> None:
    passed = [
        item.mine.step
        for item in report.comparisons
        if item.verdict is Verdict.PASS
        and item.mine
        and (item.mine.op, item.mine.role) == ("root.logits_processor", "out")
        and item.golden
        and item.golden.op == "root.lm_head"
    ]
    assert {step: passed.count(step) for step in set(passed)} == {0: 1, 1: 4, 2: 4, 3: 3}


def test_rows_are_paired_by_request_and_position(folder: Path) -> None:
    found = shared(folder / "golden", folder / "mine")
    assert [(each.golden.step, each.mine.step) for each in found.pairs][:3] == [
        (0, 0), (3, 0), (1, 1)
    ]  # fmt: skip
    assert found.pairs[0].mine.same_rows == tuple((row, row - 1) for row in range(1, 8))
    assert found.alone == ()


def test_the_order_of_golden_makes_no_difference(folder: Path, model: Any, tmp_path: Path) -> None:
    turned = dict(reversed(PROMPTS.items()))
    capture_golden(tmp_path, model, turned, TOKENS)
    found = shared(tmp_path, folder / "mine")
    assert found.alone == ()
    assert len(found.pairs) == 13


def test_a_request_that_golden_lacks_is_told_and_decides_nothing(
    folder: Path, model: Any, tmp_path: Path
) -> None:
    capture_golden(tmp_path, model, {"a": PROMPTS["a-1"]}, TOKENS)
    found = compare(tmp_path, folder / "mine")
    assert found.verdict is Verdict.PASS
    told = [each for each in found.problems if "golden does not have requests" in each.text]
    assert [each.decides for each in told] == [False]
    assert "b-2, d-4, c-3" in told[0].text


def test_an_engine_on_both_sides_is_compared_request_by_request(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "mine", tmp_path / "golden")
    found = compare(tmp_path / "golden", folder / "mine")
    assert found.verdict is Verdict.PASS
    assert {item.verdict for item in found.comparisons if item.golden and item.mine} == {
        Verdict.PASS
    }


def test_a_fault_in_the_engine_is_found_where_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine_model

    right = engine_model.SiluAndMul.forward

    def wrong(self: Any, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.gelu(gate) * up

    monkeypatch.setattr(engine_model.SiluAndMul, "forward", wrong)
    with torch.no_grad():
        capture_server(tmp_path, golden_model())
    monkeypatch.setattr(engine_model.SiluAndMul, "forward", right)
    found = compare(folder / "golden", tmp_path)
    assert found.verdict is Verdict.FAIL
    assert {origin.op for origin in found.origins} == {"root.model.layers.0.mlp.act_fn"}


def test_requests_that_chose_otherwise_part_there(folder: Path, tmp_path: Path, model: Any) -> None:
    """Golden goes on with another token than mine: what follows is another text."""
    prompt = PROMPTS["c-3"]
    other = {"c": [*prompt, 1]}  # in place of the token that mine chose
    capture_golden(tmp_path, model, {"a": PROMPTS["a-1"], **other}, TOKENS - 1)
    told = [each.text for each in compare(tmp_path, folder / "mine").problems]
    assert any("golden chose token 1" in text and "mine 90" in text for text in told), told
