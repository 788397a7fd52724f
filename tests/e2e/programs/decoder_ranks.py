"""A small decoder in one process, on two ranks and on four: ``decoder_ranks.py FOLDER LEVEL RUN…``.

Captured are modules (``module``), or modules and operators (``op``), of each run that is named:
``one``, ``two``, ``four``. The ranks are forks of this process. In ``two-bad`` and ``four-bad``
rank 1 alone makes too much of its share of a projection.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

import torch
import torch.distributed as dist
from matching_truth.parallel import shard
from relation_programs import Attention, ask, plain, scaled

from ait_llm import DumpConfig, register_hook

FAULT = "layers.1.mlp.up_proj"
WORLDS = {"one": 1, "two": 2, "four": 4}


def run(folder: Path, level: str, name: str, rank: int, world: int) -> None:
    """One process of a run."""
    torch.set_num_threads(1)
    model = plain("separate")
    if world > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
        store = f"file://{folder}/{name}-store"
        dist.init_process_group("gloo", store, rank=rank, world_size=world)
        shard(model)
        for module in model.modules():
            if isinstance(module, Attention):
                module.heads //= world
    if name.endswith("bad") and rank == 1:
        scaled(model, FAULT)
    config = DumpConfig(dump_path=folder / name, operators=level == "op", weights=True)
    with torch.no_grad(), register_hook(model, config):
        ask(model)
    if world > 1:
        dist.destroy_process_group()


def main() -> None:
    folder, level = Path(sys.argv[1]), sys.argv[2]
    fork = multiprocessing.get_context("fork")
    for name in sys.argv[3:]:
        world = WORLDS[name.removesuffix("-bad")]
        ranks = [
            fork.Process(target=run, args=(folder, level, name, rank, world))
            for rank in range(world)
        ]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join(timeout=120)
        if any(each.exitcode for each in ranks):
            raise SystemExit(f"{name}: {[each.exitcode for each in ranks]}")


if __name__ == "__main__":
    main()
