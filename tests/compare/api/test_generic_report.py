"""The generic engine on API-level dumps: where the error started, and what was inherited."""

from __future__ import annotations

import pytest
from msprobe_samples import sample

from ait_llm.compare import compare


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("L1_tensor", "Functional.linear.2.forward"),
        ("mix_tensor", "Functional.linear.3.forward"),
        ("zoo_tensor", "Tensor.__mul__.0.forward"),
        ("L0_stat", "Module.layers.0.up.Linear.forward.0"),
        ("debug_stat", "emb_out_grad.0.debug"),
    ],
)
def test_the_error_starts_where_it_was_planted(name: str, origin: str) -> None:
    report = compare(sample(name) / "golden", sample(name) / "target", jobs=1)
    assert report.origins[0].op == origin


def test_a_collective_is_not_blamed_for_what_another_rank_brings() -> None:
    report = compare(sample("dist_stat") / "golden", sample("dist_stat") / "target", jobs=1)
    first, second = report.origins
    assert (first.op, first.device) == ("Functional.linear.3.forward", 1)
    assert (second.op, second.certain) == ("Distributed.all_reduce.0.forward", False)
    assert "what Functional.linear.3.forward of process 1_0 brought" in second.evidence


def test_error_that_an_api_inherits_is_told_from_what_it_adds() -> None:
    name = "mix_tensor"
    report = compare(sample(name) / "golden", sample(name) / "target", jobs=1)
    found = {
        (item.mine.op, item.mine.name): item for item in report.comparisons if item.mine is not None
    }
    passed_on = found["Tensor.__add__.3.forward", "outtensor0"]
    assert passed_on.inherited == pytest.approx(0.702, abs=1e-3)
    assert passed_on.introduced == 0
