"""Families of models that the matching was not made for, as other people capture them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from healthy_runs import PAIRS
from healthy_runs.any_family import capture

from ait_llm import compare
from ait_llm.core.comparison import Verdict


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.mark.parametrize(
    "name",
    [
        "bart/modules-operators",  # its answer is not the first result, and gets a bias at the end
        "bart/operators-sdpa",  # positions that the table counts itself
        "convbert/modules-operators",  # a convolution of two, which is no linear
        "dinov2/modules-both",  # a number in the name of the model
        "jetmoe/modules-both",  # halves of the rows of experts
        "llama4_text/operators-sdpa",  # a router that gives its scores before its product
        "longformer/float16-both",  # attention in blocks, the largest number of a type
        "minimax/sdpa-both",  # layers of two kinds
        "mpt/modules-both",  # a stretch of a bias of distances
        "nemotron/operators-sdpa",  # the square of an activation
        "opt/operators-sdpa",  # positions that begin behind two rows
        "xglm/modules-both",  # weights of attention, looked at in another shape
    ],
)
def test_a_healthy_program_of_another_family_passes(captures: Path, name: str) -> None:
    pair = PAIRS[f"p/{name}"]
    found = compare(pair.golden(captures), pair.mine(captures), jobs=1)
    assert (found.exit_code(), found.missing, found.origins) == (0, 0, ())


def test_a_model_that_normalises_by_no_norm_is_not_accused(captures: Path) -> None:
    """Its class is called one, and its operators multiply and add."""
    golden, mine = (
        capture("MASKED_LM", "mobilebert", "eager", torch.float32, level, captures)
        for level in ("modules", "operators")
    )
    found = compare(golden, mine, jobs=1)
    assert (found.counts[Verdict.FAIL], found.origins) == (0, ())
