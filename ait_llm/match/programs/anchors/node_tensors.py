"""The tensors of one execution of an FX graph, by node and by content."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.match.operators import Key, Placed, key_of, placed
from ait_llm.program.describe import integers
from ait_llm.program.digests import digest
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles_fx import is_view

_MOST_AXES = 16  # of an array, in a list of axes
_SMALL = 1 << 14  # elements of a tensor that is read to see whether they are all alike

Located = tuple[Placed, Tensor]


def elements(tensor: Tensor) -> int | None:
    """Number of elements; None if the file cannot be read."""
    shape = shape_of(tensor)
    return None if shape is None else prod(shape)


def shape_of(tensor: Tensor) -> tuple[int, ...] | None:
    """Dims; None if the file cannot be read."""
    try:
        return tuple(tensor.shape)
    except FormatError:
        return None


def same_kind(first: Tensor, second: Tensor) -> bool:
    """True for two tensors of floats or two of integers."""
    try:
        return first.dtype.is_floating == second.dtype.is_floating
    except FormatError:
        return False


def is_number(tensor: Tensor) -> bool:
    """True for an argument that the program wrote as a number or a list of whole numbers."""
    shape = shape_of(tensor)
    if shape is None or len(shape) > 1:
        return False
    return not shape or not tensor.dtype.is_floating


def content(tensor: Tensor) -> Hashable | None:
    """What tensors of equal numbers share, also where all their numbers are alike.

    Returns:
        None where the values cannot be read or are mostly not finite.
    """
    mark = digest(tensor)
    if mark is not None:
        return mark
    try:
        if not tensor.has_data or not 0 < prod(tensor.shape) <= _SMALL:
            return None
        flat = tensor.nd().reshape(-1)
        if flat.dtype.kind not in "iub":
            flat = flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
    except (AitError, OSError, ValueError):
        return None
    first = flat[0].item()
    if first != first or not bool((flat == flat[0]).all()):
        return None
    return flat.dtype.kind in "iub", flat.size, first


class NodeTensors:
    """Tensors of one execution.

    Args:
        run: of kind ``fx``.
    """

    def __init__(self, run: Pass) -> None:
        self.placed: Sequence[Placed] = placed(run)

    @cached_property
    def by_node(self) -> Mapping[str, Placed]:
        """The first call of each node."""
        found: dict[str, Placed] = {}
        for each in self.placed:
            found.setdefault(each.operation.name, each)
        return found

    def result(self, node: str, path: Sequence[int]) -> Located | None:
        """A result of a node; None if it was not dumped."""
        owner = self.by_node.get(node)
        if owner is None or not path:
            return None
        inner = path[1] if len(path) > 1 else None
        results = [each for each in owner.operation.outputs if each.position == path[0]]
        exact = [each for each in results if each.element == inner]
        chosen = exact or results
        return (owner, chosen[0]) if chosen else None

    def argument(self, node: str, number: int = 0, element: int | None = None) -> Located | None:
        """An argument of a node; None if it was not dumped or is no tensor.

        Args:
            node: its name.
            number: position among the arguments.
            element: position in the list that the argument is; None for any.
        """
        owner = self.by_node.get(node)
        for tensor in owner.operation.inputs if owner is not None else ():
            if (
                owner is not None
                and tensor.position == number
                and element in (None, tensor.element)
            ):
                return owner, tensor
        return None

    @cached_property
    def contents(self) -> Mapping[Key, Hashable]:
        """Content of each tensor, where it tells anything."""
        found: dict[Key, Hashable] = {}
        for each in self.placed:
            for tensor in each.tensors:
                mark = content(tensor)
                if mark is not None:
                    found[key_of(each, tensor)] = mark
        return found

    @cached_property
    def by_content(self) -> Mapping[Hashable, Sequence[Located]]:
        """Tensors of equal content, in execution order."""
        found: dict[Hashable, list[Located]] = {}
        for each in self.placed:
            for tensor in each.tensors:
                mark = self.contents.get(key_of(each, tensor))
                if mark is not None:
                    found.setdefault(mark, []).append((each, tensor))
        return found

    def equals(self, located: Located) -> Iterator[Located]:
        """Other tensors of the same content: what other nodes read or handed on of a result.

        Equal numbers among the arguments of nodes have nothing to do with each other.
        """
        mark = None if is_number(located[1]) else self.contents.get(key_of(*located))
        for each in self.by_content.get(mark, ()) if mark is not None else ():
            if each != located:
                yield each

    def views_of(self, located: Located) -> Iterator[Located]:
        """What a node makes of its first argument without a change of its elements."""
        owner, tensor = located
        if tensor.role == "in" and tensor.index == 0 and is_view(owner.operation.type):
            count = elements(tensor)
            for output in owner.operation.outputs:
                if count is not None and elements(output) == count:
                    yield owner, output

    @staticmethod
    def turned(owner: Placed) -> tuple[Tensor, tuple[int, ...]] | None:
        """The argument of a node that only reorders axes, and their order; None for others."""
        arguments = {each.position: each for each in owner.operation.inputs}
        shape = shape_of(arguments[0]) if 0 in arguments else None
        if shape is None:
            return None
        axes = list(range(len(shape)))
        name = owner.operation.type.split(".")[1:2]
        numbers = [_axes(arguments[k]) for k in (1, 2) if k in arguments]
        if name == ["t"] and len(axes) == 2:
            axes = [1, 0]
        elif name == ["transpose"] and len(numbers) == 2 and numbers[0] and numbers[1]:
            first, second = (each[0] for each in numbers)
            if not (-len(axes) <= first < len(axes) and -len(axes) <= second < len(axes)):
                return None
            axes[first], axes[second] = axes[second], axes[first]
        elif name == ["permute"] and numbers and numbers[0]:
            axes = [each % max(1, len(axes)) for each in numbers[0]]
        else:
            return None
        return (arguments[0], tuple(axes)) if sorted(axes) == list(range(len(shape))) else None

    def numbers_beside(self, located: Located) -> Iterator[Located]:
        """Plain numbers and lists of numbers among the arguments of the node of a result."""
        owner, tensor = located
        for argument in owner.operation.inputs if tensor.role == "out" else ():
            if is_number(argument):
                yield owner, argument


def _axes(tensor: Tensor) -> list[int]:
    """Values of a number or of a short list of whole numbers; none of anything else."""
    found = integers(tensor, _MOST_AXES)
    return [] if found is None else [int(axis) for axis in found.reshape(-1)]
