"""A small network that other programs import, and a program by itself (``python -m tiny_net``)."""

import torch
from torch import nn


class Net(nn.Module):
    """Two layers of 4, so that members have paths of their own."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.down(torch.relu(self.up(x))) * scale


def inputs() -> torch.Tensor:
    """[3, 4] float32."""
    return torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7


def run(seed: int) -> None:
    """Call a network once."""
    with torch.no_grad():
        print(seed, Net(seed)(inputs(), scale=2.0).sum().item(), flush=True)


if __name__ == "__main__":
    run(0)
