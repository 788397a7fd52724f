"""Collective operators over processes: each gets the tensors of all ranks and computes its result.

The processes are those of one ``torch.distributed`` job, one for each rank of the group. A job that
the program has not joined is joined here, by the environment variables that ``torchrun`` sets
(``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``), or, in processes that one program has
started with ``torch.multiprocessing``, by the rank in the parameters.
"""

from __future__ import annotations

import atexit
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from ait_llm.errors import OperationError
from ait_llm.hostatb.acceptance.ranks import require_domain
from ait_llm.hostatb.meeting import meet
from ait_llm.opcheck.golden.base import Arithmetic, GoldenOp, Result, UnverifiableError

_SEND, _RECV = "SendOperation", "RecvOperation"
_GLOO = "gloo"
# The group of all ranks for CPU tensors of a job that exchanges tensors of another device. Neither
# group is kept alive: its threads end with its last reference, and one that still drops tensors
# while the interpreter ends aborts the process.
_groups: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

Inputs = Sequence[Tensor | None]
Params = Mapping[str, Any]


def in_group(golden: GoldenOp) -> GoldenOp:
    """The same operator, which exchanges tensors where its group has more than one rank."""
    if golden.name == _SEND:
        return replace(golden, compute=partial(_send, golden))
    if golden.compute_ranks is None:
        return golden
    return replace(golden, compute=partial(_compute, golden))


def _compute(golden: GoldenOp, inputs: Inputs, params: Params, arithmetic: Arithmetic) -> Result:
    require_domain(params)
    try:
        return golden.compute(inputs, params, arithmetic)
    except UnverifiableError as error:
        group = _group(golden.name, params, error)
    assert golden.compute_ranks is not None
    rank, size = int(params.get("rank", 0)), dist.get_world_size(group)
    given: list[tuple[Inputs, Params]] = [((), {})] * size
    if golden.name == _RECV:
        source = int(params.get("srcRank", 1))
        given[rank] = (inputs, params)
        given[source] = (_received(source, group), {})
    else:
        for own_inputs, own_params in _gathered(inputs, params, group):
            given[int(own_params.get("rank", 0))] = (own_inputs, own_params)
    if not all(own_params or golden.name == _RECV for _, own_params in given):
        raise OperationError(f"{golden.name}: two processes of the job say that they are one rank")
    return golden.compute_ranks([own for own, _ in given], [own for _, own in given], arithmetic)[
        rank
    ]


def _send(golden: GoldenOp, inputs: Inputs, params: Params, arithmetic: Arithmetic) -> Result:
    result = golden.compute(inputs, params, arithmetic)
    if int(params.get("rankSize", 0)) > 1:
        group = _group(golden.name, params, None)
        content = _packed(inputs, {})
        for part in (torch.tensor([len(content)]), content):
            dist.send(part, int(params.get("destRank", 1)), group=group)
    return result


def _received(source: int, group: Any) -> Inputs:
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, source, group=group)
    content = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(content, source, group=group)
    return _unpacked(content)[0]


def _gathered(inputs: Inputs, params: Params, group: Any) -> list[tuple[Inputs, Params]]:
    content = _packed(inputs, params)
    own = torch.tensor([len(content)])
    lengths = [torch.zeros_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(lengths, own, group=group)
    padded = torch.zeros(int(torch.cat(lengths).max()), dtype=torch.uint8)
    padded[: len(content)] = content
    contents = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(contents, padded, group=group)
    return [_unpacked(part[: int(n)]) for part, n in zip(contents, lengths, strict=True)]


def _packed(inputs: Inputs, params: Params) -> Tensor:
    file = io.BytesIO()
    torch.save([json.dumps(dict(params)), *inputs], file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _unpacked(content: Tensor) -> tuple[Inputs, Params]:
    params, *inputs = torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)
    return inputs, json.loads(params)


def _group(op: str, params: Params, error: UnverifiableError | None) -> Any:  # torch has no type
    """The group of all ranks.

    Raises:
        UnverifiableError: this process belongs to no job, or to one of another size.
    """
    size = int(params.get("rankSize", 0))
    joined = dist.is_available() and dist.is_initialized()
    if not joined and not (dist.is_available() and _join(int(params.get("rank", 0)), size)):
        reason = error or f"{op}: it needs the processes of all {size} ranks"
        raise UnverifiableError(
            f"{reason}, or run one process for each rank (torchrun --nproc-per-node {size})"
        ) from None
    if dist.get_world_size() != size:
        raise UnverifiableError(
            f"{op}: its group has {size} ranks, the job has {dist.get_world_size()} processes; "
            "hostatb exchanges tensors among all processes of a job only"
        )
    world = dist.group.WORLD
    if dist.get_backend() == _GLOO:
        return world
    if world not in _groups:
        _groups[world] = dist.new_group(backend=_GLOO)
    return _groups[world]


def _join(rank: int, size: int) -> bool:
    """Join a job; False if there is none."""
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(_GLOO)
    else:
        store = meet(rank, size)
        if store is None:
            return False
        dist.init_process_group(_GLOO, store=store, rank=rank, world_size=size)
    atexit.register(_leave)
    return True


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
