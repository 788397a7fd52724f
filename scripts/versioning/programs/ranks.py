"""Two processes that add up what each of them computes."""

import tempfile

import torch
from torch import Tensor, distributed, multiprocessing, nn


class Part(nn.Module):
    """Its share of a product, and the sum of all shares."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        nn.init.constant_(self.linear.weight, 0.5 + rank)

    def forward(self, x: Tensor) -> Tensor:
        share: Tensor = self.linear(x)
        distributed.all_reduce(share)
        return share


def run(rank: int, meeting: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    with torch.no_grad():
        Part(rank)(torch.ones(2, 8))
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (f"{folder}/meeting",), nprocs=2)
