"""A small decoder that the compiler takes in three pieces, called twice.

    decoder_in_pieces.py [compiled] [whole] [wrong]

``compiled`` compiles it, ``whole`` leaves the graph breaks away, and ``wrong`` makes ``silu``, an
operator of the second piece alone, wrong by some percent.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, VOCABULARY = 16, 48


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, keys, values = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (query @ keys.transpose(-1, -2) / HIDDEN**0.5).softmax(-1)
        return x + self.out(scores @ values)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.gate = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, *, in_pieces: bool) -> None:
        super().__init__()
        self.in_pieces = in_pieces
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.mixer, self.gated = Mixer(), Gated()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.mixer(self.embed(ids))
        self._break()
        x = self.gated(x)
        self._break()
        return self.head(x)

    def _break(self) -> None:
        if self.in_pieces:
            torch._dynamo.graph_break()


def plant() -> torch.library.Library:
    """Make ``silu`` wrong; the library keeps it so while it lives."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", lambda x: x * torch.sigmoid(x) * 1.1, "CPU")
    return library


if __name__ == "__main__":
    words = sys.argv[1:]
    fault = plant() if "wrong" in words else None
    torch.manual_seed(0)
    model = Decoder(in_pieces="whole" not in words).eval()
    call = model
    if "compiled" in words:
        options = {"cpp_cache_precompile_headers": False}
        call = torch.compile(model, dynamic=False, options=options)
    with torch.no_grad():
        for first in (3, 8):
            print(round(call(torch.arange(first, first + 5)).sum().item(), 2))
