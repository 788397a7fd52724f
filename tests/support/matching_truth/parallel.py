"""A decoder whose layers are cut over two ranks: ``parallel.py FOLDER FAMILY SIZES``.

Run once for each rank, with ``RANK`` and ``WORLD_SIZE`` in the environment. It is captured at each
level, for starting the processes takes longer than what they do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORLD = 2
LEVELS = ("module", "op")
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def _rank() -> int:
    return int(os.environ["RANK"])


def _world() -> int:
    return int(os.environ["WORLD_SIZE"])


def _part(whole: torch.Tensor, axis: int) -> nn.Parameter:
    return nn.Parameter(whole.chunk(_world(), axis)[_rank()].clone())


def _summed(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


class VocabParallelEmbedding(nn.Module):
    """Each rank knows its share of the words."""

    def __init__(self, whole: nn.Embedding) -> None:
        super().__init__()
        self.weight = _part(whole.weight.data, 0)
        self.first = self.weight.shape[0] * _rank()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        outside = (ids < self.first) | (ids >= self.first + self.weight.shape[0])
        found = F.embedding((ids - self.first).masked_fill(outside, 0), self.weight)
        return _summed(found.masked_fill(outside.unsqueeze(-1), 0.0))


class ColumnParallelLinear(nn.Module):
    """Each rank makes its share of the columns, all of them known to all if asked for."""

    def __init__(self, whole: nn.Linear, *, gather: bool = False) -> None:
        super().__init__()
        self.weight = _part(whole.weight.data, 0)
        self.bias = _part(whole.bias.data, 0) if whole.bias is not None else None
        self.gather = gather

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = F.linear(x, self.weight, self.bias)
        if not self.gather:
            return found
        parts = [torch.empty_like(found) for _ in range(_world())]
        dist.all_gather(parts, found)
        return torch.cat(parts, -1)


class RowParallelLinear(nn.Module):
    """Each rank has its share of the inputs; the products are summed over ranks."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        self.weight = _part(whole.weight.data, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _summed(F.linear(x, self.weight))


def shard(model: nn.Module) -> nn.Module:
    """Replace the layers of a Llama or one of its relatives by shares of them."""
    for name, module in list(model.named_modules()):
        new: nn.Module | None = None
        if isinstance(module, nn.Embedding):
            new = VocabParallelEmbedding(module)
        elif name.endswith(COLUMNS) and isinstance(module, nn.Linear):
            new = ColumnParallelLinear(module)
        elif name.endswith(ROWS) and isinstance(module, nn.Linear):
            new = RowParallelLinear(module)
        elif name == "lm_head" and isinstance(module, nn.Linear):
            new = ColumnParallelLinear(module, gather=True)
        if new is not None:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new)
    return model


def run_ranks(folder: Path, family: str, sizes: str) -> None:
    """Start one process for each rank and wait for both; captures are in a folder for each level.

    Raises:
        RuntimeError: one of them failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store").unlink(missing_ok=True)
    shared = {**os.environ, "WORLD_SIZE": str(WORLD), "OMP_NUM_THREADS": "1"}
    shared["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    words = [sys.executable, "-m", "matching_truth.parallel", str(folder), family, sizes]
    ranks = [
        subprocess.Popen(
            words, env={**shared, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(WORLD)
    ]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("\n".join(errors))


def main() -> None:
    from functools import partial

    from matching_truth import families
    from matching_truth.drives import once
    from matching_truth.program import Captured, Program, run

    folder, family, sizes = Path(sys.argv[1]), *sys.argv[2:4]
    dist.init_process_group("gloo", f"file://{folder}/store", rank=_rank(), world_size=WORLD)
    make = partial(families.make, family, sizes)
    for level in LEVELS:
        program = Program("rank", lambda: shard(make()), once, operators=level == "op")
        run(program, Captured(folder / level / "dump", folder / level / "exact"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
