"""A small training program, captured by msprobe or by us: ``api_program.py TOOL CONFIG``.

It imports nothing but torch and the tool, so that it runs in the environment of either.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import nn

if sys.argv[1] == "msprobe":
    from msprobe.pytorch import PrecisionDebugger, seed_all  # type: ignore[import-not-found]
else:
    from ait_llm.dump.api import PrecisionDebugger, seed_all


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48, bias=False)
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.reshape(batch, length, 2, 8).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / 8**0.5
        scores = scores.masked_fill(mask, float("-inf"))
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, 16))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = Attention()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x), mask=mask)
        return x + self.drop(self.down(F.gelu(self.up(self.after(x)))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(-x * 0.5 + 2)


def main() -> None:
    seed_all(11)
    model = Net()
    ids = torch.randint(0, 32, (2, 6))
    debugger = PrecisionDebugger(config_path=sys.argv[2])
    debugger.start(model=model)
    logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
    loss.backward()
    if len(sys.argv) > 3:
        debugger.save({"logits": logits, "loss": [loss, 3]}, "result")
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main()
