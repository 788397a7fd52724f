"""A vision tower that runs before its model, a wrapper, a loss with members, and a second model."""

import torch
from tiny_net import Net, inputs
from torch import nn


class VisionModel(nn.Module):
    """A language model with a tower whose features are made outside of ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = Net(11)
        self.language = Net(12)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.language(features)


class WeightedLoss(nn.Module):
    """A loss that is made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.square = nn.MSELoss()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return 0.5 * self.square(a, b)


if __name__ == "__main__":
    model, loss = VisionModel(), WeightedLoss()
    with torch.no_grad():
        for _ in range(2):
            features = model.tower(inputs())
            output = model(features)
            loss(output, features)
        nn.DataParallel(Net(13))(inputs())
    print(output.sum().item())
