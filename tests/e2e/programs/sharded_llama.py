"""A Llama in one process, or cut over two: ``sharded_llama.py FOLDER [FAULT]``.

With ``RANK`` and ``WORLD_SIZE`` in the environment it is that rank. Captured are modules and
operators of one pass. A fault is in rank 1 alone:

- ``scale``: attention of layer 1 does not scale its scores;
- ``sum``: a weight of what rank 1 brings to the sum of layer 0's down projection is wrong.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from matching_truth import families
from matching_truth.drives import once
from matching_truth.parallel import shard

from ait_llm import DumpConfig, register_hook

RANK = int(os.environ.get("RANK", "0"))
IS_SHARDED = "RANK" in os.environ


def break_(model: nn.Module, fault: str) -> None:
    """Put a fault into this rank."""
    layers = model.get_submodule("model.layers")
    if fault == "scale":
        layers.get_submodule("1.self_attn").scaling = 1.0
    if fault == "sum":
        layers.get_submodule("0.mlp.down_proj").weight.data[3, 5] += 1.0


def main() -> None:
    folder, fault = Path(sys.argv[1]), (*sys.argv[2:], "")[0]
    model = families.make("llama", "distinct").eval()
    if IS_SHARDED:
        dist.init_process_group("gloo", f"file://{folder}/store", rank=RANK, world_size=2)
        model = shard(model)
    if RANK == 1:
        break_(model, fault)
    config = DumpConfig(dump_path=folder / "dump", operators=True, weights=True)
    with torch.no_grad(), register_hook(model, config):
        once(model)
    if IS_SHARDED:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
