"""Operators that take functions, and want to be compiled as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, open_dump, register_hook

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
flex = pytest.importorskip("torch.nn.attention.flex_attention")


class Attention(nn.Module):
    """Two heads of 16, later keys made less likely by their distance."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))

        def nearer(score: Tensor, batch: Tensor, head: Tensor, at: Tensor, key: Tensor) -> Tensor:
            return score - 0.1 * (at - key).abs()

        found: Tensor = flex.flex_attention(q, k, v, score_mod=nearer)
        return found


def test_flex_attention_computes_the_same_while_operators_are_captured(tmp_path: Path) -> None:
    model, x = Attention().eval(), torch.randn(1, 16, 32)
    with torch.no_grad():
        wanted = model(x)
        with register_hook(model, DumpConfig(str(tmp_path), operators=True)):
            found = model(x)
    assert torch.equal(found, wanted)
    [attention] = [
        each for each in open_dump(tmp_path).operations() if "flex_attention" in each.type
    ]
    assert attention.type == "higher_order.flex_attention.default"
    assert [tuple(each.shape) for each in attention.inputs[:3]] == [(1, 2, 16, 16)] * 3
    assert torch.equal(attention.outputs[0].torch(), wanted)


def test_what_is_compiled_elsewhere_is_compiled_again_behind_a_capture(tmp_path: Path) -> None:
    model, x = Attention().eval(), torch.randn(1, 16, 32)
    config = DumpConfig(str(tmp_path), operators=True)
    with torch.no_grad(), register_hook(model, config):
        model(x)
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    torch.compile(lambda given: given * 2 + 1, backend=backend)(x)
    assert len(graphs) == 1
