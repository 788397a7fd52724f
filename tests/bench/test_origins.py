"""The campaign of bugs: what it draws, how it judges, and the page that it writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from bugs import KINDS, Nature, Outcome, Trial, draw_bug, hunt
from bugs.programs import Pair, Program
from bugs.visible import visible
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


def _hunted(kind: str, folder: Path, *, operators: bool, near: bool = False) -> Trial:
    """The first bug of a kind and size that is drawn in a small program."""
    program = Program("transformers", "llama", "eager", "float16", generates=False)
    for number in range(20):
        pair = Pair(program, program, operators)
        bug = draw_bug(5, number, [kind], folder, lambda _, pair=pair: pair)
        if bug.near is near:
            return hunt(bug, folder)
    raise AssertionError(f"no {kind} was drawn")


def test_a_wrong_kernel_is_found_with_golden_and_without(folder: Path) -> None:
    found = _hunted("kernel: tail of the sum dropped", folder, operators=True)
    assert found.outcome is Outcome.FIRST
    assert not found.accused
    assert (found.alone, found.innocent) == (True, 0)
    assert found.excess is not None
    assert found.excess > 1
    assert found.named is None


def test_a_fault_just_below_the_tolerance_is_found_without_golden(folder: Path) -> None:
    found = _hunted("kernel: result scaled", folder, operators=True, near=True)
    assert 0.5 < found.bug.distance < 1
    assert found.alone
    assert not found.accused


def test_what_hides_a_bug_in_a_module_is_the_bound_of_that_module(folder: Path) -> None:
    """A rounding of squares: a norm in 16 bits may be off by that much."""
    program = Program("transformers", "llama", "eager", "bfloat16", generates=False)
    pair = Pair(program, program, operators=False)
    bug = draw_bug(5, 2, ["code: upcast forgotten"], folder, lambda _: pair)
    found = hunt(bug, folder)
    assert found.outcome is Outcome.SILENT
    assert found.excess is not None
    assert 0 < found.excess < 1


def test_what_only_a_careful_kernel_does_right_is_found_deeply(folder: Path) -> None:
    """A cast that truncates: less than kernels that round on the way may be off."""
    program = Program("transformers", "gpt-neox", "eager", "float16", generates=False)
    pair = Pair(program, program, operators=False)
    found = hunt(draw_bug(5, 1, ["kernel: cast truncates"], folder, lambda _: pair), folder)
    assert found.outcome is Outcome.SILENT
    assert found.excess is not None
    assert 1 < found.excess < 2
    assert found.deep is Outcome.FIRST


def test_what_float32_itself_leaves_is_measured_against_float64(folder: Path) -> None:
    """One product of a scan, 6e-5 too large, is drowned by what is added to it."""
    program = Program("transformers", "mamba", "eager", "float32", generates=False)
    pair = Pair(program, program, operators=False)
    bug = draw_bug(127, 58, ["kernel: result scaled"], folder, lambda _: pair)
    found = hunt(bug, folder)
    assert found.outcome is Outcome.SILENT
    assert found.visible is not None
    assert 0 < found.visible < 1


class _Doubled(nn.Module):
    """What is computed in float32, and cast where the program is not."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() * self.factor).to(x.dtype)


def test_what_is_cast_to_16_bits_has_no_counterpart_in_float32_and_tells_nothing(
    tmp_path: Path,
) -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(2))

    def captured(name: str, dtype: torch.dtype, factor: float) -> Path:
        config = DumpConfig(dump_path=tmp_path / name, operators=True)
        model = _Doubled(factor)
        with torch.no_grad(), register_hook(model, config):
            model(x.to(dtype))
        return tmp_path / name

    healthy = captured("healthy", torch.bfloat16, 1.7)
    exact = captured("exact", torch.float32, 1.7)
    assert visible(captured("near", torch.bfloat16, 1.7005), healthy, exact) < 1
    assert 1 < visible(captured("far", torch.bfloat16, 1.8), healthy, exact) < math.inf


def test_another_weight_is_found_in_its_module(folder: Path) -> None:
    found = _hunted("wrong shard", folder, operators=False)
    assert found.outcome is Outcome.FIRST
    assert found.alone is None
    assert found.named is not None


def test_a_bug_is_drawn_again_by_its_seed_and_number(folder: Path) -> None:
    one, other = (draw_bug(3, 4, list(KINDS), folder) for _ in range(2))
    assert (one.kind, one.pair, one.seed, one.strength) == (
        other.kind,
        other.pair,
        other.seed,
        other.strength,
    )
    assert one.truth.operators == other.truth.operators


def test_there_are_kinds_enough() -> None:
    assert len(KINDS) >= 25
    assert {kind.nature for kind in KINDS.values()} == set(Nature)


def _row(**changes: Any) -> dict[str, Any]:
    row = {
        "number": 1,
        "kind": "wrong eps",
        "nature": "definition",
        "program": "llama eager",
        "dtype": "float32",
        "level": "modules",
        "near": False,
        "truth": ["root.model.norm"],
        "outcome": Outcome.FIRST.value,
        "accused": False,
        "named": True,
        "alone": None,
        "innocent": 0,
        "excess": None,
        "distance": 3.0,
        "roundings": 9.0,
        "visible": None,
        "said": "root.model.norm (certain)",
        "exit": 1,
    }
    return row | changes


def test_the_page_is_made_of_the_results_on_record() -> None:
    from origins_page import PAGE, as_page, recorded  # type: ignore[import-not-found]

    assert PAGE.read_text(encoding="utf-8") == as_page(recorded())


def test_the_page_lists_every_miss() -> None:
    from origins_page import as_page

    rows = [
        _row(),
        _row(number=2, named=False),
        _row(number=3, outcome=Outcome.ACCUSED.value, accused=True),
        _row(number=4, outcome=Outcome.SILENT.value, roundings=0.5, named=None),
        _row(number=5, outcome=Outcome.SILENT.value, roundings=3.0, visible=0.7, named=None),
        _row(number=6, outcome=Outcome.SILENT.value, roundings=3.0, visible=1.4, named=None),
    ]
    page = as_page({"seed": 1, "commit": "1a2b3c4", "rows": rows})
    assert "origin right first time: 2 of 6 (33.3 %)" in page
    assert "an innocent named as certain: 1 of 6 (16.7 %)" in page
    assert "named: 2 of 3 (66.7 %)" in page
    assert "nothing said: 3 of 6 (50.0 %), 2 of these within what rounding permits" in page
    misses = page.partition("## All that is not as wanted")[2]
    assert "**1, wrong eps**" not in misses
    assert all(f"**{number}, wrong eps**" in misses for number in (2, 3, 4, 5, 6))
    hidden = {line[4]: line for line in misses.splitlines() if "Hidden by: " in line}
    assert hidden.keys() == {"4", "5", "6"}
    assert "Hidden by: 0.5 of one rounding of the first wrong values, at most 1." in hidden["4"]
    assert "Hidden by: 0.7 of the error that" in hidden["5"]
    assert "Hidden by: nothing, it is beyond what rounding permits." in hidden["6"]


@pytest.mark.parametrize(
    "change",
    [
        {"accused": True},
        {"outcome": Outcome.AMONG.value},
        {"outcome": Outcome.SILENT.value},
        {"named": False},
        {"alone": False},
    ],
)
def test_a_target_that_is_missed_is_no_success(change: dict[str, Any]) -> None:
    from origins_page import is_met

    assert is_met([_row()])
    assert not is_met([_row(**change)])
