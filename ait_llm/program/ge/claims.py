"""Which FX values a tensor of the graph before fusion may be, as far as that graph tells.

The converter from FX to the graph engine makes several operators of one node and names only the
last. What has no name is followed back to what has one, through operators that compute nothing; an
input of the graph is followed to the operators that read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.program.describe import dtype_of, integers
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import ALIASES, CONSTANTS, INPUTS, TensorId
from ait_llm.topology.ge_graph import FxOrigin, GeOp

TRANSPOSES = frozenset({"Transpose", "TransposeD"})
"""Operators that reorder axes by a list of numbers, their second input."""

_SAME_VALUES = frozenset({"Cast", "Identity"})
_STEPS = 8  # operators without a name that are followed back to one with a name
_FAR = 64  # tensors followed from an input to the operators that compute with it
_MOST_AXES = 16

Shape = tuple[int, ...]
Turn = tuple[Shape, Shape]
"""Dims of an array, and the order of axes that it is brought to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One FX value that a tensor may be.

    Attributes:
        origin: the name; None where the way leads to an input of the graph.
        tensor: of the graph, at the far end of the way.
        named: which tensor has the name: that one, or a cast of it.
        shape: dims at the far end, None if unknown.
        turns: the way from there to the tensor in question.
        through_cast: a cast lies on it.
        transposes: the tensor with the name is the result of a transpose.
    """

    origin: FxOrigin | None
    tensor: TensorId
    named: TensorId
    shape: Shape | None
    turns: tuple[Turn, ...]
    through_cast: bool
    transposes: bool = False


def claims(fusion: Fusion, tensor: TensorId, shape: Shape | None) -> Iterator[Claim]:
    """What a tensor may be, the nearest name first.

    Args:
        fusion: of the run.
        tensor: of the graph.
        shape: of its file.
    """
    graph = fusion.graph
    turns: tuple[Turn, ...] = ()
    through_cast = False
    for _ in range(_STEPS + 1):
        op = graph.op(tensor[0])
        if op is None or op.type in CONSTANTS:
            return
        if op.type in INPUTS:
            yield Claim(None, tensor, tensor, shape, turns, through_cast)
            return
        named = tensor if graph.origin(tensor) is not None else _cast_of(fusion, tensor)
        if named is not None:
            transposes = op.type in TRANSPOSES
            origin = graph.origin(named)
            yield Claim(origin, tensor, named, shape, turns, through_cast, transposes)
        if not op.inputs:
            return
        order = transposition(fusion, op)
        if order is not None:
            turns, shape = (order, *turns), order[0]
        elif op.type == "Cast" and _keeps_kind(fusion, op, op.inputs[0]):
            through_cast = True
        elif op.type not in ALIASES:
            return
        tensor = op.inputs[0]


def readings(
    fusion: Fusion, tensor: TensorId, sample: Tensor
) -> Iterator[tuple[GeOp, int, tuple[Turn, ...]]]:
    """Operators that read an input of the graph, as it is or behind what computes nothing.

    Args:
        fusion: of the run.
        tensor: the input.
        sample: a file of it.

    Yields:
        The operator, which of its inputs, and the way back from what it reads to the tensor.
    """
    waiting: list[tuple[TensorId, tuple[Turn, ...]]] = [(tensor, ())]
    seen = {tensor}
    while waiting and len(seen) < _FAR:
        current, back = waiting.pop(0)
        for reader in fusion.graph.consumers(current):
            for place, read in enumerate(reader.inputs):
                if read == current:
                    yield reader, place, back
            after = (reader.name, 0)
            way = _way_back(fusion, reader, current, sample)
            if way is not None and after not in seen:
                seen.add(after)
                waiting.append((after, (*way, *back)))


def transposition(fusion: Fusion, op: GeOp) -> Turn | None:
    """The dims that a transpose read and the order of axes that it made, from its own file.

    View optimisation joins reshapes and transposes, so that the FX array may have other dims.
    """
    place = fusion.owners.get(op.name)
    if op.type not in TRANSPOSES or place is None or fusion.decoded[place].is_fused:
        return None
    inputs = {tensor.index: tensor for tensor in fusion.operations[place].inputs}
    given = integers(inputs[1], _MOST_AXES) if 1 in inputs else None
    try:
        dims = tuple(inputs[0].shape) if 0 in inputs else ()
    except FormatError:
        return None
    if not dims or given is None:
        return None
    axes = tuple(int(axis) % len(dims) for axis in given.reshape(-1))
    return (dims, axes) if sorted(axes) == list(range(len(dims))) else None


def _way_back(
    fusion: Fusion, reader: GeOp, read: TensorId, sample: Tensor
) -> tuple[Turn, ...] | None:
    """From a result to what an operator made it from; None if it may change values."""
    if not reader.inputs or reader.inputs[0] != read:
        return None
    if reader.type in ALIASES:
        return ()
    if reader.type == "Cast":
        dtype = fusion.graph.dtype((reader.name, 0))
        kind = _is_floating(sample)
        return () if dtype is not None and dtype.is_floating == kind else None
    order = transposition(fusion, reader)
    if order is None:
        return None
    dims, axes = order
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    return ((tuple(dims[axis] for axis in axes), back),)


def _cast_of(fusion: Fusion, tensor: TensorId) -> TensorId | None:
    """The cast of a tensor to which the converter gave the name of both."""
    for reader in fusion.graph.consumers(tensor):
        cast = (reader.name, 0)
        if (
            reader.type in _SAME_VALUES
            and fusion.graph.origin(cast) is not None
            and _keeps_kind(fusion, reader, tensor)
        ):
            return cast
    return None


def _keeps_kind(fusion: Fusion, cast: GeOp, before: TensorId) -> bool:
    """False for a cast between floats and integers, as far as the dump or graph tells."""
    kinds = [_kind(fusion, each) for each in (before, (cast.name, 0))]
    return None in kinds or kinds[0] == kinds[1]


def _kind(fusion: Fusion, tensor: TensorId) -> bool | None:
    for _, dumped in fusion.files.get(tensor, ()):
        if dumped.role == "out":
            return _is_floating(dumped)
    dtype = fusion.graph.dtype(tensor)
    return dtype.is_floating if dtype is not None else None


def _is_floating(tensor: Tensor) -> bool | None:
    dtype = dtype_of(tensor)
    return None if dtype is None else dtype.is_floating
