"""What every operator refuses, at which stage and with which status, as the vendor's cases say."""

from __future__ import annotations

import pytest
from refusals import recorded, refusal


@pytest.mark.parametrize("operator", sorted(recorded()))
def test_an_operator_refuses_what_the_library_refuses(operator: str) -> None:
    found = []
    for params, inputs, outputs, stage, status in recorded()[operator]:
        got = refusal(operator, params, inputs, outputs)
        if got != (stage, status):
            found.append((params, inputs, outputs, stage, status, got))
    assert found == []


def test_the_record_has_refusals_of_all_stages() -> None:
    stages = [stage for cases in recorded().values() for *_, stage, _ in cases]
    assert len(recorded()) > 50
    assert {stage: stages.count(stage) > 50 for stage in "CIS"} == dict.fromkeys("CIS", True)
