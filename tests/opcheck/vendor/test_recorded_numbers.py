"""Golden operators against numbers that the vendor's own generator made."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.selftest.recorded import Recorded, load, save, wrong_definitions

DATA = Path(__file__).parents[3] / "opcheck" / "selftest" / "vendor" / "numbers.xz"
CASES = load(DATA)


@pytest.mark.parametrize("one", CASES, ids=[f"{one.op}-{one.case}" for one in CASES])
def test_a_golden_operator_computes_what_the_vendors_generator_does(one: Recorded) -> None:
    assert one.differs() == ""


def test_most_operators_have_recorded_numbers() -> None:
    operators = {golden_ops.get(one.op).name for one in CASES}
    assert len(operators) >= 77
    assert DATA.stat().st_size < 1_000_000


@pytest.mark.parametrize("one", CASES, ids=[f"{one.op}-{one.case}" for one in CASES])
def test_every_recorded_output_is_looked_at(one: Recorded) -> None:
    """Another number in any output would be a difference, so no comparison is empty."""
    changed = list(one.golden)
    changed[0] = _turned(changed[0])
    assert replace(one, golden=changed).differs() != ""


def _turned(golden: torch.Tensor) -> torch.Tensor:
    if golden.dtype == torch.bool:
        return ~golden
    if golden.is_floating_point() or golden.is_complex():
        return golden * 3 + 7
    return golden + 5


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "numbers.xz"
    some = [*CASES[:5], *[one for one in CASES if one.ranks][:5]]
    save(some, path)
    for saved, found in zip(some, load(path), strict=True):
        assert (found.op, found.case, found.params) == (saved.op, saved.case, saved.params)
        given, got = ([each.inputs, each.golden, *each.ranks] for each in (saved, found))
        assert len(given) == len(got)
        for one, other in zip(chain(*given), chain(*got), strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_a_wrong_definition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    golden = golden_ops.get("CumsumOperation")
    assert wrong_definitions(["CumsumOperation"]) == []
    wrong = replace(golden, compute=golden_ops.get("SoftmaxOperation").compute)
    monkeypatch.setitem(golden_ops._entries, "CumsumOperation", wrong)
    found = wrong_definitions(["CumsumOperation"])
    assert found
    assert all(line.startswith("CumsumOperation, cumsum ") for line in found)
