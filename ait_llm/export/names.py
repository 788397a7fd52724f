"""One name for each tensor of a dump, the same each time, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ait_llm.dumps import Dump, Operation, Tensor


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor with its name among all of its dump.

    Attributes:
        name: ``step0/LinearOperation_0_1/outtensor0``, with ``rank1/`` or ``device0_4242/`` before
            it where the dump has several processes; ``weights/lm_head.weight``.
        tensor: the tensor.
        facts: operation, type, step, rank, role and so on; what is unknown is left out.
    """

    name: str
    tensor: Tensor
    facts: dict[str, str | int]


def named_tensors(dump: Dump) -> Iterator[Named]:
    """All tensors in execution order, kernels after their operation, then weights.

    Raises:
        FormatError: a ledger or folder cannot be read.
    """
    several = len(dump.processes) > 1
    taken: dict[str, int] = {}
    ranks: dict[int, int] = {}
    for operation in dump.operations():
        ranks[operation.pid] = operation.rank
        folder = _folder(dump, operation, several)
        facts = _facts(operation)
        for tensor in operation.tensors:
            yield _named(f"{folder}/{_leaf(tensor)}", tensor, facts, taken)
        for kernel in operation.kernels:
            place = f"{folder}/{kernel.index}_{kernel.name}"
            for tensor in kernel.tensors:
                one = {**facts, "kernel": kernel.name}
                yield _named(f"{place}/{_leaf(tensor)}", tensor, one, taken)
    for process in dump.processes:
        before = (
            f"{_process(ranks.get(process.pid, -1), process.device, process.pid)}/"
            if several
            else ""
        )
        for tensor in dump.weights(device=process.device, pid=process.pid):
            facts = {"role": "weight"}
            yield _named(f"{before}weights/{tensor.stem or tensor.name}", tensor, facts, taken)


def _folder(dump: Dump, operation: Operation, several: bool) -> str:
    parts = []
    if several:
        parts.append(_process(operation.rank, operation.device, operation.pid))
    if dump.traits.holds == "operations":
        parts.append(f"step{operation.step}")
    if operation.graph_name:
        parts.append(operation.graph_name)
    name = operation.full_name.strip("/") or operation.type or str(operation.op_id)
    return "/".join([*parts, f"{name}#{operation.call}" if operation.call else name])


def _process(rank: int, device: int, pid: int) -> str:
    return f"rank{rank}" if rank >= 0 else f"device{device}_{pid}"


def _leaf(tensor: Tensor) -> str:
    return tensor.name if tensor.phase == "after" else f"before/{tensor.name}"


def _facts(operation: Operation) -> dict[str, str | int]:
    known: dict[str, str | int] = {"operation": operation.full_name, "type": operation.type}
    known |= {"id": str(operation.op_id), "step": operation.step, "call": operation.call}
    numbers = {"rank": operation.rank, "device": operation.device, "pid": operation.pid}
    known |= {name: number for name, number in numbers.items() if number >= 0}
    return {name: value for name, value in known.items() if value != ""}


def _named(name: str, tensor: Tensor, facts: dict[str, str | int], taken: dict[str, int]) -> Named:
    count = taken[name] = taken.get(name, 0) + 1
    own: dict[str, str | int] = {"role": tensor.role, "index": tensor.index, "phase": tensor.phase}
    if tensor.ir_name:
        own["label"] = tensor.ir_name
    return Named(f"{name}~{count}" if count > 1 else name, tensor, {**own, **facts})
