"""Tokens of recorded runs of vLLM, which packs its requests, and of transformers, which pads."""

from __future__ import annotations

from pathlib import Path

import pytest
from matching_truth.recordings import DATA, LENGTHS, unpack

from ait_llm.dump.golden_run import read_golden_tokens


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_packed_and_padded_requests_have_the_same_tokens(family: str, tmp_path: Path) -> None:
    place = unpack(DATA / f"{family}.tar.xz", tmp_path)
    [[packed], [padded]] = [
        read_golden_tokens(place / library).requests.values()
        for library in ("vllm", "transformers")
    ]
    assert tuple(len(each.prompt) for each in packed) == LENGTHS
    assert all(each.chosen for each in packed)
    for one, other in zip(packed, padded, strict=True):
        assert one.prompt == other.prompt
        known = min(len(one.chosen), len(other.chosen))
        assert one.chosen[:known] == other.chosen[:known]
