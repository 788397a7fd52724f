"""Two ranks on hostatb; the product of rank 1 overflows, and a sum over the ranks spreads it."""

import os
import socket
import subprocess
import sys

RANKS = 2


def start() -> int:
    """Start the processes; the exit code of the first that fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    running = []
    for rank in range(RANKS):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        running.append(subprocess.Popen([sys.executable, __file__], env=os.environ | job | own))
    return max(process.wait() for process in running)


def work(rank: int) -> None:
    """A row-parallel product: each rank multiplies its part, and the parts are added up."""
    import torch

    import ait_llm.hostatb as atb

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    x, weight = torch.randn(4, 16).half(), torch.randn(8, 16).half()
    if rank == 1:
        x[2, 3] = 60000.0
        weight[5, 3] = 60000.0
    part = atb.Operation(atb.LinearParam(has_bias=False)).forward([x, weight])[0]
    reduce = atb.AllReduceParam(rank=rank, rank_size=RANKS, all_reduce_type="sum")
    total = atb.Operation(reduce).forward([part])[0]
    atb.Operation(atb.ElewiseParam(elewise_type=atb.ElewiseParam.ElewiseType.ELEWISE_ADD)).forward(
        [total, total]
    )


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]))
    else:
        sys.exit(start())
