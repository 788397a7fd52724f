"""One program captured by its modules, its operators or both, against another capture of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from healthy_runs import PAIRS
from left_out_steps import captured

from ait_llm import compare
from ait_llm.core.comparison import Report

# modules, operators
_LEVELS = {"modules": (True, False), "both": (True, True), "operators": (False, True)}
_OTHERS = [
    ("modules", "both"),
    ("modules", "operators"),
    ("both", "modules"),
    ("both", "operators"),
    ("operators", "modules"),
    ("operators", "both"),
]


def _compared(folder: Path, golden: str, mine: str, left_out: str = "", **how: bool) -> Report:
    sides = []
    for name, level, lacks in (("golden", golden, ""), ("mine", mine, left_out)):
        modules, operators = _LEVELS[level]
        made = captured(folder / name, lacks, modules=modules, operators=operators, **how)
        sides.append(made)
    return compare(*sides, jobs=1)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(("golden", "mine"), _OTHERS)
def test_another_level_of_one_program_passes(
    tmp_path: Path, golden: str, mine: str, weights: bool
) -> None:
    found = _compared(tmp_path, golden, mine, weights=weights)
    assert (found.exit_code(), found.missing, found.problems) == (0, 0, ())


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-v3/module-alone",  # shared experts beside others, summed up in code
        "gemma2/generated-alone",  # logits are capped behind the last module
        "llava/alone-sdpa",  # patches are no tokens
        "qwen3/generated-alone",  # halves of heads of one token
        "t5/module-alone",  # a block whose class is called dense
        "whisper/alone-op",  # two tables looked up for the same tokens
        "whisper/module-alone",  # convolutions, frames
    ],
)
def test_healthy_models_pass_at_other_levels(captures: Path, name: str) -> None:
    pair = PAIRS[f"o/{name}"]
    found = compare(pair.golden(captures), pair.mine(captures), jobs=1)
    assert (found.exit_code(), found.missing, found.problems) == (0, 0, ())


@pytest.mark.parametrize(
    ("left_out", "module"),
    [
        ("bias", "root.layers.1"),
        ("residual", "root.layers.1"),
        ("last residual", "root.layers.1"),
        ("activation", "root.layers.1"),
        ("embedding scale", "root"),
    ],
)
@pytest.mark.parametrize(("golden", "mine"), _OTHERS)
def test_a_step_that_code_leaves_out_is_not_blamed_on_an_operator(
    tmp_path: Path, golden: str, mine: str, left_out: str, module: str
) -> None:
    (origin,) = _compared(tmp_path, golden, mine, left_out).origins
    assert origin.kind == "code between modules"
    assert origin.evidence.startswith(f"the code of `{module}`")


@pytest.mark.parametrize(("golden", "mine"), [each for each in _OTHERS if each[0] != "operators"])
def test_a_last_step_that_code_leaves_out_is_told_as_code(
    tmp_path: Path, golden: str, mine: str
) -> None:
    found = _compared(tmp_path, golden, mine, "cap")
    (origin,) = found.origins
    assert (found.exit_code(), origin.kind) == (1, "code between modules")
    assert origin.evidence.startswith("the code of `root`")


@pytest.mark.parametrize("mine", ["modules", "both"])
def test_a_last_operator_that_only_golden_has_counts_as_not_compared(
    tmp_path: Path, mine: str
) -> None:
    found = _compared(tmp_path, "operators", mine, "cap")
    assert (found.exit_code(), found.origins) == (3, ())
    assert [each.text for each in found.problems] == [
        "nothing was compared of root.aten.mul.Tensor"
    ]
