"""A small decoder whose blocks compute much in code of their own.

``python attention_net.py [scaling]``: with another scale in one block.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

HEADS, WIDTH = 4, 128


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scaling = (WIDTH // HEADS) ** -0.5
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, -1)
        q, k, v = (
            each(x).view(shape).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.transpose(-1, -2) * self.scaling
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = functional.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 256), nn.Linear(256, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down_proj(functional.silu(self.up_proj(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 64, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(1)
torch.set_num_threads(1)
net = Net()
if sys.argv[1:] == ["scaling"]:
    net.layers[1].attention.scaling = 1.0
with torch.no_grad():
    net(torch.arange(48).reshape(2, 24) % 64)
