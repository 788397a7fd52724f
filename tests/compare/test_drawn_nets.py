"""Decoders of designs that nobody chose: written otherwise they pass, with a bug they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from healthy_runs import judge
from healthy_runs.drawn import pair
from healthy_runs.drawn.decoder import Decoder
from healthy_runs.drawn.layers import Attention, Ways
from torch import Tensor

from ait_llm import DumpConfig, compare, register_hook

# Numbers of which something was wrong once: scales in other places, embeddings that are scaled,
# norms of norms, weights that are widened, results that only one side's modules give, layers of two
# kinds; and some more.
NUMBERS = [5, 35, 37, 52, 75, 76, 78, 119, 123, 131, 168, 178, 198]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_decoder_written_otherwise_passes(tmp_path: Path, number: int) -> None:
    outcome = judge(pair(number), tmp_path)
    assert (outcome.code, outcome.details) == (0, ())
    assert not outcome.is_alarm
    assert outcome.passed


def _captured(folder: Path, attention: int, wrong: float = 1.0) -> Path:
    ways = Ways(linear=0, attention=attention, rotary=0, activation=0, norm=0)
    net = Decoder(4, ways).eval()
    block: Any = net.blocks[0]
    right = block.attention._mixed

    def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        made: Tensor = right(q * wrong, k, v)
        return made

    if wrong != 1.0:
        block.attention._mixed = mixed
    assert isinstance(block.attention, Attention)
    config = DumpConfig(dump_path=folder, modules=False, operators=True, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(torch.tensor([[3, 9, 1, 7, 7, 20]]))
    return folder


def test_scores_are_compared_behind_a_scale_that_was_moved(tmp_path: Path) -> None:
    golden, mine = _captured(tmp_path / "golden", 1), _captured(tmp_path / "mine", 2)
    report = compare(golden, mine, jobs=1)
    assert (report.exit_code(), report.origins) == (0, ())
    kinds = {
        (each.golden.op_type, each.mine.op_type)
        for each in report.comparisons
        if each.golden is not None and each.mine is not None
    }
    assert ("aten.div.Tensor", "aten.div.Tensor") in kinds  # by the cap, behind both scales


def test_a_wrong_scale_in_another_place_is_found_in_its_attention(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", 1)
    mine = _captured(tmp_path / "mine", 2, wrong=0.5)
    report = compare(golden, mine, jobs=1)
    assert report.exit_code() == 1
    assert report.origins[0].op.startswith("root.blocks.0.attention")
