"""How a range of steps is shown to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.core import StepRange
from ait_llm.dump.fx_summary import _nothing_selected as no_nodes
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_summary import _nothing_selected as no_calls


@pytest.mark.parametrize("text", ["all", "0,0", "3,5,7,7"])
def test_a_range_is_shown_as_it_is_given(text: str) -> None:
    assert str(StepRange.parse(text)) == text


def test_no_reason_is_a_range_that_leaves_nothing_out(tmp_path: Path) -> None:
    settings = TorchSettings(tmp_path, steps=StepRange.parse("all"))
    for said in (no_calls(settings, []), no_nodes(settings)):
        assert "-er" not in said
        assert "1844" not in said
