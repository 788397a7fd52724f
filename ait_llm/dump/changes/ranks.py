"""A model of transformers on two ranks in place of one, by its own plan of tensor parallelism."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ait_llm.dump.changes.catalogue import NotPossibleError

RANKS = 2


def on_ranks(words: Sequence[str]) -> tuple[str, ...]:
    """The command that runs a Python program on two ranks of this machine.

    Raises:
        NotPossibleError: it is no Python script, or runs on several ranks already.
    """
    if not Path(words[0]).name.startswith("python") or len(words) < 2 or words[1].startswith("-"):
        raise NotPossibleError(f"{shlex.join(words[:2])} is not python and a script")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise NotPossibleError("it runs on several ranks already")
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
    return (words[0], *launcher, *words[1:])


def distribute(model: Any) -> None:
    """Give each rank its part of the weights.

    Raises:
        NotPossibleError: the model has no plan, or this transformers applies it in another way.
    """
    import torch
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from transformers.distributed.configuration_utils import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    except ImportError as error:
        raise NotPossibleError(
            "this version of transformers shards models only while it loads them"
        ) from error
    if not getattr(model, "tp_plan", None):
        raise NotPossibleError("the model has no plan of tensor parallelism")
    device = next(model.parameters()).device.type
    if not distributed.is_initialized():
        distributed.init_process_group("gloo" if device == "cpu" else None)
    mesh = init_device_mesh(device, (RANKS,))
    plan = model._resolve_parallel_plans(DistributedConfig(tp_size=RANKS))[0]
    with torch.no_grad():
        apply_tensor_parallelism(model, mesh, plan)
