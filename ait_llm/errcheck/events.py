"""Each operation of a pass by itself: what came in, what went out, and what that makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errcheck.reading import Reading, read
from ait_llm.errcheck.tokens import Tokens, Where, locate, tokens_of
from ait_llm.errcheck.tree import (
    Tree,
    fills,
    is_message,
    is_state,
    leaves_unwritten,
    overwrites,
    tree_of,
    weighs,
)
from ait_llm.program.one_pass import Pass
from ait_llm.storage import is_staging, prefetch

_AHEAD = 8  # operations whose files are fetched while earlier ones are looked at
Kind = Literal["born", "leak", "passed", "padding", "stopped", "held"]
"""``born``: clean inputs and an output that is not. ``leak``: only padding was odd in the inputs,
and tokens are in the output. ``passed``: odd in, odd out. ``padding``: odd in padding alone.
``stopped``: odd in, clean out. ``held``: a cache held it, and what was written into it is clean."""
Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor with NaN, infinite or saturated elements.

    Attributes:
        tensor: the tensor.
        reading: what it holds.
        where: whether that concerns tokens.
        parameter: its name, for parameters of a module.
    """

    tensor: Tensor
    reading: Reading
    where: Where
    parameter: str = ""


@dataclass(slots=True)
class Event:
    """An operation that met something odd.

    Attributes:
        process: number of the process in the check.
        order: place in its process, over all passes.
        run: the pass.
        op: index of the operation in the pass.
        kind: what it is.
        odd_in, odd_out: its tensors that are not clean.
        inputs_known: False if an input could not be read, so that "clean" is not certain.
        masks: an input hides places with -Inf or the lowest value, as masks do.
        is_leaf: False for a module that has captured parts.
    """

    process: int
    order: int
    run: Pass
    op: int
    kind: Kind
    odd_in: tuple[Seen, ...]
    odd_out: tuple[Seen, ...]
    inputs_known: bool = True
    masks: bool = False
    is_leaf: bool = True

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self.run.operations[self.op]


@dataclass(slots=True)
class Tally:
    """How much was looked at.

    Attributes:
        operations, tensors, elements: what was read; tensors of whole numbers count as read.
        by_statistics: tensors of which only statistics were there.
        narrow: int8 elements at an end of their range.
        unread: tensors that could not be read, with the first reason.
        passes: forward passes.
    """

    operations: int = 0
    tensors: int = 0
    elements: int = 0
    by_statistics: int = 0
    narrow: int = 0
    unread: int = 0
    reason: str = ""
    passes: int = 0

    def add(self, reading: Reading, operation: Operation, tensor: Tensor) -> None:
        """Count one tensor."""
        if reading.state == "unread":
            self.unread += 1
            self.reason = self.reason or f"{operation.name} {tensor.name}: {reading.reason}"
            return
        self.tensors += 1
        self.elements += reading.elements
        self.narrow += reading.narrow
        self.by_statistics += reading.state == "statistics"


@dataclass(slots=True)
class SeenPass:
    """A forward pass with what was found in it.

    Attributes:
        tree: its operations.
        tokens: which rows are tokens; None if that is not known.
        events: in the order in which the operations began.
    """

    tree: Tree
    tokens: Tokens | None
    events: list[Event] = field(default_factory=list)


def look_at(
    run: Pass,
    process: int,
    first_order: int,
    tally: Tally,
    read: Callable[[Tensor], Reading] = read,
) -> SeenPass:
    """Read all tensors of a pass and classify its operations.

    Args:
        run: the pass.
        process: number of its process.
        first_order: operations of the process before it.
        tally: counts what is read.
        read: looks at a tensor; asked for each in an order that only its answers decide.
    """
    tree = tree_of(run)
    found = SeenPass(tree, tokens_of(run))
    designed: set[Mark] = set()
    tally.passes += 1
    ahead = _AHEAD if is_staging() else 0
    for op in range(len(tree.run.operations)):
        for following in tree.run.operations[op : op + ahead]:
            prefetch(tensor.path for tensor in following.tensors)
        if not tree.is_leaf(op) and not run.traits.own_code:
            continue  # what a graph takes and gives is what its members take and give
        tally.operations += 1
        event = _look(tree, op, found.tokens, designed, tally, read)
        if event is not None:
            event.process, event.order = process, first_order + op
            event.is_leaf = tree.is_leaf(op)
            found.events.append(event)
    return found


def _look(
    tree: Tree,
    op: int,
    tokens: Tokens | None,
    designed: set[Mark],
    tally: Tally,
    read: Callable[[Tensor], Reading],
) -> Event | None:
    operation = tree.run.operations[op]
    inputs, outputs = _sides(operation)
    odd_in, known, masks = [], True, False
    for tensor in inputs:
        reading = read(tensor)
        tally.add(reading, operation, tensor)
        known &= reading.state != "unread"
        if not reading.bad:
            continue
        if reading.may_hide and _is_mask(tensor, reading, designed):
            masks = True
            continue
        odd_in.append(Seen(tensor, reading, locate(operation, tensor, reading, tokens)))
    odd_out = []
    on_purpose = masks or fills(operation)
    for tensor in outputs:
        reading = read(tensor)
        tally.add(reading, operation, tensor)
        if not reading.bad or leaves_unwritten(operation):
            continue
        if reading.mask or (reading.may_hide and on_purpose):
            designed.add(reading.mark)
            continue
        odd_out.append(Seen(tensor, reading, locate(operation, tensor, reading, tokens)))
    if not odd_in and not odd_out:
        return None
    if not odd_in and tree.is_leaf(op):
        odd_in = _parameters(tree.run, operation, read)
    known &= bool(inputs) or not odd_out
    kind = _kind(operation, odd_in, odd_out)
    return Event(0, 0, tree.run, op, kind, tuple(odd_in), tuple(odd_out), known, masks)


def _parameters(run: Pass, operation: Operation, read: Callable[[Tensor], Reading]) -> list[Seen]:
    """Odd parameters and buffers of a module, or of that of an operator, if they were saved."""
    owner = operation.name.partition(".aten.")[0]
    found = []
    for name, tensor in run.weights.items():
        if name.rpartition(".")[0] == owner:
            reading = read(tensor)
            if reading.bad and not reading.mask:
                found.append(Seen(tensor, reading, "tokens", name))
    return found


def _sides(operation: Operation) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """What an operation reads and what it leaves."""
    inputs = [tensor for tensor in operation.inputs if not overwrites(operation, tensor)]
    outputs: Sequence[Tensor] = operation.outputs
    if operation.type == "BroadcastOperation":  # leaves its result where its input was
        outputs = [each for each in operation.tensors if each.phase == "after"]
        inputs = [each for each in operation.tensors if each.phase == "before"]
    elif is_message(operation):
        inputs = []  # room for what is received
    return inputs, outputs


def _hides_everything(
    operation: Operation, odd_in: Sequence[Seen], odd_out: Sequence[Seen]
) -> bool:
    """True where scores that a mask hides throughout became NaN: the softmax made it."""
    return (
        weighs(operation)
        and all(seen.reading.lowest_only for seen in odd_in)
        and any(seen.reading.nan for seen in odd_out)
    )


def _is_mask(tensor: Tensor, reading: Reading, designed: Iterable[Mark]) -> bool:
    return reading.mask or "mask" in (tensor.ir_name or "").lower() or reading.mark in designed


def _kind(operation: Operation, odd_in: Sequence[Seen], odd_out: Sequence[Seen]) -> Kind:
    written = [seen for seen in odd_in if not is_state(operation, seen.tensor)]
    if odd_out and not written and all(is_state(operation, seen.tensor) for seen in odd_out):
        return "held"
    if not odd_out:
        return "padding" if all(seen.where == "padding" for seen in odd_in) else "stopped"
    if all(seen.where == "padding" for seen in odd_out):
        return "padding"
    if not odd_in or _hides_everything(operation, odd_in, odd_out):
        return "born"
    if all(seen.where == "padding" for seen in odd_in) and any(
        seen.where == "tokens" for seen in odd_out
    ):
        return "leak"
    return "passed"
