"""A small program that compiles its model."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)).eval()
with torch.no_grad():
    print(torch.compile(model)(torch.randn(4, 16)).sum().item())
