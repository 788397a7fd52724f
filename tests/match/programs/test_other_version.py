"""Two versions of an engine on ATB: projections apart in one, joined in the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply
from tests.match.programs.atb_program import AtbProgram
from tests.match.programs.decoder import Decoder, Layer, Shape

_HEADS, _KV_HEADS, _DIM, _HIDDEN, _MIDDLE, _WORDS = 4, 2, 16, 64, 96, 50


def _dump(folder: Path, *, joined: bool, topology: bool) -> Path:
    """A prefill of two requests by two layers, always of the same weights."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) / 8).half()

    def gamma() -> tuple[Tensor]:
        return (1 + drawn(_HIDDEN),)

    query, key_value = _HEADS * _DIM, _KV_HEADS * _DIM
    layers = []
    for _ in range(2):
        attention = [drawn(rows, _HIDDEN) for rows in (query, key_value, key_value)]
        into = [drawn(_MIDDLE, _HIDDEN) for _ in range(2)]
        if joined:
            attention, into = [torch.cat(attention)], [torch.cat(into)]
        layers.append(
            Layer(
                gamma(),
                gamma(),
                [(weight, None) for weight in attention],
                (drawn(_HIDDEN, query), None),
                [(weight, None) for weight in into],
                (drawn(_HIDDEN, _MIDDLE), None),
            )
        )
    embedding, norm, head = drawn(_WORDS, _HIDDEN), gamma(), drawn(_WORDS, _HIDDEN)
    tables = drawn(64, _DIM), drawn(64, _DIM)
    ids = torch.randint(0, _WORDS, (7,), generator=generator)
    decoder = Decoder(AtbProgram(folder, topology=topology), Shape(_HEADS, _KV_HEADS, _DIM), tables)
    decoder.prefill([ids[:4], ids[4:]], embedding, layers, norm, head)
    return folder


@pytest.mark.parametrize("topology", [True, False])
@pytest.mark.parametrize("joined", ["golden", "mine"])
def test_projections_apart_answer_the_columns_of_joined_ones(
    joined: str, topology: bool, tmp_path: Path
) -> None:
    golden, mine = (
        _dump(tmp_path / side, joined=side == joined, topology=topology)
        for side in ("golden", "mine")
    )
    (pair,) = pair_runs(find_scenario(golden, mine)).pairs
    found = match_runs(pair.golden, pair.mine, MatchOptions())
    matches = [each for each in found if isinstance(each, Match)]
    for match in matches:
        sides = [apply(s.tensor.nd(), s.views) for s in (match.golden, match.mine)]
        first, second = (np.asarray(side, np.float64).reshape(-1) for side in sides)
        assert np.abs(first - second).max() <= 0.02 * np.abs(first).max(), match
        assert match.confidence >= 0.85
    # who passes a weight on has it, too, and every tensor without a partner has a reason of its own
    assert not [
        each
        for each in found
        if isinstance(each, Unmatched) and each.reason.endswith("was found that answers it")
    ]
    alone = {
        (each.record.op_type, each.record.role) for each in found if isinstance(each, Unmatched)
    }
    # what a product of two tensors makes of a gate, and what the other version makes in one step
    assert alone == {
        ("Prefill_layer", "in"),
        ("Attention", "in"),
        ("Mlp", "in"),
        ("ActivationOperation", "out"),
        ("ElewiseOperation", "in"),
        ("ElewiseOperation", "out"),
    }
