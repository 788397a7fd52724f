"""The order and the nesting of the operations of a pass, and how each treats odd values."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.program.one_pass import Pass

# What writes -Inf or the lowest value on purpose, to hide places.
_FILLS = re.compile(
    r"(^|\.|_)(masked_fill|full|fill|new_full|full_like|where|index_put|index_fill|scatter|triu"
    r"|tril|masked_scatter|constant_pad_nd|pad|generate_?attn_?mask)(_|\.|$|\d)",
    re.IGNORECASE,
)
# What hands out memory as it finds it.
_UNWRITTEN = re.compile(r"(^|\.)(new_)?empty(_like|_strided|_permuted)?(_|\.|$)")
_COLLECTIVE = re.compile(
    r"^(AllReduce|AllGatherV?|AllToAllV?V?2?|ReduceScatterV?|Broadcast|LinearParallel)Operation$"
    r"|(^|\.|_)(all_?reduce|all_?gather|reduce_scatter|broadcast|all_to_all|allgather|alltoall"
    r"|allreduce)(_|\.|$)"
)
_MESSAGE = re.compile(r"^RecvOperation$|(^|\.)(i?recv|batch_isend_irecv)(_|\.|$)")
_WEIGHS = re.compile(r"softmax|attention|attn", re.IGNORECASE)
_CACHES = {
    "KvCacheOperation": frozenset({2}),
    "ReshapeAndCacheOperation": frozenset({2, 3}),
    "ReshapeAndCacheOmniOperation": frozenset({2, 3}),
    "ReshapeAndCacheWithStrideOperation": frozenset({2, 3}),
}


@dataclass(frozen=True, slots=True)
class Tree:
    """The operations of one pass.

    Attributes:
        run: the pass, its operations in the order in which they began.
        parents: index of the module or graph around each operation, None at the top.
        members: indices of all captured operations within each module or graph.
    """

    run: Pass
    parents: tuple[int | None, ...]
    members: dict[int, tuple[int, ...]]

    def is_leaf(self, op: int) -> bool:
        """True for an operation of which no part was captured by itself."""
        return op not in self.members


def tree_of(run: Pass) -> Tree:
    """Order the operations of a pass and find out what lies within what."""
    if run.traits.finished:
        # modules are written when they end; ids count in the order in which calls began
        run = replace(run, operations=sorted(run.operations, key=lambda each: each.op_id.parts))
    parents: list[int | None] = []
    around: list[int] = []
    members: dict[int, list[int]] = {}
    for op, operation in enumerate(run.operations):
        while around and not _is_member(run, run.operations[around[-1]], operation):
            around.pop()
        parents.append(around[-1] if around else None)
        for outer in around:
            members.setdefault(outer, []).append(op)
        around.append(op)
    return Tree(run, tuple(parents), {op: tuple(found) for op, found in members.items()})


def _is_member(run: Pass, outer: Operation, inner: Operation) -> bool:
    if run.traits.dotted:
        return inner.name.startswith(f"{outer.name}.")
    return outer.is_graph and outer.op_id != inner.op_id and inner.op_id.is_within(outer.op_id)


def function_name(operation: Operation) -> str:
    """What an operation computes: its type, of an API call its name."""
    return operation.api_name or operation.type


def fills(operation: Operation) -> bool:
    """True for what writes the lowest value on purpose."""
    return _FILLS.search(function_name(operation)) is not None


def weighs(operation: Operation) -> bool:
    """True for a softmax and what contains one; hidden places go into it as -Inf."""
    return _WEIGHS.search(function_name(operation)) is not None


def leaves_unwritten(operation: Operation) -> bool:
    """True for what returns memory that nobody has written yet."""
    return _UNWRITTEN.search(function_name(operation)) is not None


def is_collective(operation: Operation) -> bool:
    """True for what computes from the tensors of several ranks."""
    return _COLLECTIVE.search(function_name(operation)) is not None


def is_message(operation: Operation) -> bool:
    """True for what receives a tensor of another rank."""
    return _MESSAGE.search(function_name(operation)) is not None


def is_state(operation: Operation, tensor: Tensor) -> bool:
    """True for a cache that an operation writes its other inputs into."""
    if operation.type not in _CACHES:
        return False
    return tensor.role == "out" or tensor.index in _CACHES[operation.type]


def overwrites(operation: Operation, tensor: Tensor) -> bool:
    """True if an input was saved only after its operation had written into it."""
    return is_state(operation, tensor) and tensor.role == "in" and "before" not in operation.phases
