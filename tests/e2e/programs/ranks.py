"""Two processes, one for each rank, that run collective operators of hostatb."""

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
    """One operator of each kind, in the same order on both ranks."""
    import torch

    import ait_llm.hostatb as atb

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    group = {"rank": rank, "rank_size": RANKS}
    x = torch.randn(4, 16).half()
    total = atb.Operation(atb.AllReduceParam(**group, all_reduce_type="sum")).forward([x])[0]
    atb.Operation(atb.AllGatherParam(**group)).forward([total])
    atb.Operation(atb.BroadcastParam(**group, rank_root=1)).forward([x.clone()])
    atb.Operation(atb.ReduceScatterParam(**group, reduce_type="sum")).forward([x])
    atb.Operation(atb.AllToAllParam(**group)).forward([x])
    weight = torch.randn(8, 16).half()
    kind = atb.LinearParallelParam.ParallelType.LINEAR_ALL_REDUCE
    atb.Operation(atb.LinearParallelParam(**group, type=kind)).forward([x, weight])
    if rank == 0:
        atb.Operation(atb.SendParam(**group, dest_rank=1)).forward([total])
    else:
        received = atb.Operation(atb.RecvParam(**group, src_rank=0)).forward([torch.zeros_like(x)])
        assert torch.equal(received[0], total)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]))
    else:
        sys.exit(start())
