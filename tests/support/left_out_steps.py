"""A small decoder of which one step of the code may be left out, captured at any level."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook

_IDS = [[3, 4, 9, 12, 30, 7]]


class Block(nn.Module):
    """Attention of one head and an MLP, written out; one step of it may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16, bias=False)
        self.bias = nn.Parameter(torch.randn(16))
        self._left_out = ""  # no definition of it

    def forward(self, x: Tensor) -> Tensor:
        left_out = self._left_out
        normed = self.norm(x)
        scores = self.q(normed) @ self.k(normed).transpose(-1, -2)
        if left_out != "scale":
            scores = scores * 0.25
        attended = self.o(torch.softmax(scores, -1) @ self.v(normed))
        if left_out != "bias":
            attended = attended + self.bias
        x = attended if left_out == "residual" else x + attended
        gate = self.up(self.norm2(x))
        made = self.down(gate if left_out == "activation" else torch.nn.functional.gelu(gate))
        return made if left_out == "last residual" else x + made


class Net(nn.Module):
    """Three blocks between an embedding and a capped head."""

    def __init__(self, left_out: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.Sequential(Block(), Block(), Block())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)
        self._left_out = left_out
        self.layers[1].__dict__["_left_out"] = left_out

    def forward(self, ids: Tensor) -> Tensor:
        left_out = self._left_out
        x = self.embed(ids)
        logits = self.head(self.norm(self.layers(x if left_out == "embedding scale" else x * 4.0)))
        return logits if left_out == "cap" else torch.tanh(logits / 3) * 3


def captured(
    folder: Path,
    left_out: str = "",
    *,
    modules: bool = True,
    operators: bool = True,
    weights: bool = True,
) -> Path:
    """The dump of one pass, with this step left out of the second block or of the model."""
    net = Net(left_out).eval()
    config = DumpConfig(dump_path=folder, operators=operators, modules=modules, weights=weights)
    with torch.no_grad(), register_hook(net, config):
        net(torch.tensor(_IDS))
    return folder
