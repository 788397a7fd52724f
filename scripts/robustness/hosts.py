"""Programs that chaos captures: each prints one line, ``result`` and a digest of what it computed.

    python hosts.py KIND HABIT

What a program computes follows from its kind and habit alone. Habits are what real programs do to
those that watch them: they close descriptors, fork, start threads, become another program.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

ROUNDS = 12
TINY = 400  # rounds of a program of tiny tensors
LARGE = {"large": 96 << 20, "huge": 1250 << 20}  # elements, of four bytes
STORM = 12  # children that are there at once
Round = Callable[[int], Tensor]


class Net(nn.Module):
    """Two blocks, so that modules, operators and graphs have something in common."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 24)
        self.blocks = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.norm = nn.LayerNorm(24)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = hidden + torch.relu(block(self.norm(hidden)))
        found: Tensor = hidden.sum(-1)
        return found


def torch_round(*, compiled: bool) -> Round:
    model = Net().eval()
    run = torch.compile(model) if compiled else model
    return lambda number: run(torch.arange(6)[None] + number % 8)


def atb_round() -> Round:
    import ait_llm.hostatb as torch_atb

    linear = torch_atb.Operation(torch_atb.LinearParam(has_bias=False))
    weight = torch.randn(24, 24).half()
    return lambda number: linear.forward([torch.full((4, 24), number / 8.0).half(), weight])[0]


ROUND = {
    "torch": lambda: torch_round(compiled=False),
    "torch-op": lambda: torch_round(compiled=False),
    "torch-stats": lambda: torch_round(compiled=False),
    "fx": lambda: torch_round(compiled=True),
    "inductor": lambda: torch_round(compiled=True),
    "api": lambda: torch_round(compiled=False),
    "tensor": atb_round,
}


def closing(one: Round) -> Round:
    """Closes all that it inherited, as daemons do, and takes the numbers for files of its own."""

    def closed(number: int) -> Tensor:
        if number == 2:
            os.closerange(3, 1024)
            for _ in range(6):
                os.open(os.devnull, os.O_RDWR)
        return one(number)

    return closed


def forking(one: Round) -> Round:
    """Starts children that end at once, or compute first."""

    def forked(number: int) -> Tensor:
        if number % 3 == 1:
            child = os.fork()
            if not child:
                os._exit(number % 2 and int(one(number).numel() == 0))
            os.waitpid(child, 0)
        return one(number)

    return forked


def storming(one: Round) -> Round:
    """Starts many children at once, of which some compute and some have children of their own."""

    def stormed(number: int) -> Tensor:
        if number % 5 == 1:
            children = []
            for place in range(STORM):
                child = os.fork()
                if not child:
                    if place % 4 == 1 or (place % 4 == 2 and not os.fork()):
                        one(number)
                    os._exit(0)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)
        return one(number)

    return stormed


def becoming(one: Round) -> Round:
    """Becomes the same program again in the middle, which computes all from the start."""

    def replaced(number: int) -> Tensor:
        if number == ROUNDS // 2 and "CHAOS_AGAIN" not in os.environ:
            os.environ["CHAOS_AGAIN"] = "1"
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *sys.argv])
        return one(number)

    return replaced


HABITS: dict[str, Callable[[Round], Round]] = {
    "plain": lambda one: one,
    "closes": closing,
    "forks": forking,
    "storms": storming,
    "execs": becoming,
    "threads": lambda one: one,
    "tiny": lambda one: one,
    "large": lambda one: one,
    "huge": lambda one: one,
}


def digests(one: Round, habit: str) -> list[str]:
    numbers = range(TINY if habit == "tiny" else ROUNDS)
    found = [""] * len(numbers)

    def some(first: int, step: int) -> None:
        with torch.no_grad():
            for number in numbers[first::step]:
                values = one(number).float().numpy()
                found[number] = hashlib.sha256(values.tobytes()).hexdigest()

    if habit != "threads":
        some(0, 1)
        return found
    threads = [threading.Thread(target=some, args=(first, 3)) for first in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def main() -> None:
    kind, habit = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.no_grad():
        one = HABITS[habit](ROUND[kind]())
        found = digests(one, habit)
        if habit in LARGE:
            values = nn.Identity()(torch.arange(LARGE[habit], dtype=torch.int32))
            found.append(str(int(values[-1])))
    print("result", hashlib.sha256("".join(found).encode()).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
