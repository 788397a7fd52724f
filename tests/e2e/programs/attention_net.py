"""A small decoder whose blocks compute much in code of their own.

``python attention_net.py [scaling|softmax]``: with another scale in one block, or with a softmax
kernel of this process that is 5 % too large the second time that it runs.
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


class WrongSoftmax(torch.utils._python_dispatch.TorchDispatchMode):
    runs = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._softmax.default:
            self.runs += 1
            return found * 1.05 if self.runs == 2 else found
        return found


FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
torch.manual_seed(1)
torch.set_num_threads(1)
net = Net()
if FAULT == "scaling":
    net.layers[1].attention.scaling = 1.0
with torch.no_grad(), WrongSoftmax() if FAULT == "softmax" else torch.no_grad():
    net(torch.arange(48).reshape(2, 24) % 64)
