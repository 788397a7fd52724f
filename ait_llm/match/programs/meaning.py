"""What every value of a program is made of: boxes in atoms that both programs share.

Movement is followed first, so that what is known of one look at a value holds for all of them;
then what operators compute is written down as terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.programs.atoms import Atoms
from ait_llm.match.programs.boxes import Box, Shape, whole
from ait_llm.match.programs.computing import COMPUTE, Call, Item
from ait_llm.match.programs.terms import Terms
from ait_llm.program.describe import is_float, params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_in_place, is_moving, is_uninitialised, kind_of
from ait_llm.program.overwritten import Overwritten
from ait_llm.program.program import Program

# They keep the elements in their row-major order.
_SAME_ORDER = frozenset(
    {"alias", "clone", "contiguous", "detach", "lift_fresh", "squeeze", "unsqueeze", "view"}
)
_CASTS = frozenset({"_to_copy", "to", "type_as"})
_SPLITS = frozenset({"split", "split_with_sizes", "chunk", "tensor_split"})
# They give something else each time they run, or memory that nobody has written.
_RANDOM = frozenset(
    {"bernoulli", "dropout", "multinomial", "native_dropout", "normal", "rand", "rand_like"}
    | {"randint", "randn", "randn_like", "randperm", "uniform", "exponential"}
)
# They say where a result lies or how it is stored, not what it is.
_PLACES = frozenset({"device", "dtype", "layout", "memory_format", "pin_memory", "output"})


_NOTHING = 0  # the atom of all tensors without elements


class Meaning:
    """The boxes of the values of one program.

    Args:
        program: whose operators were captured.
        atoms: those of both programs.
        terms: how computations are written down.
    """

    def __init__(self, program: Program, atoms: Atoms, terms: Terms) -> None:
        self._program = program
        self._atoms = atoms
        self._terms = terms
        self._boxes: dict[int, Box] = {}
        overwritten = Overwritten(program.flow)
        for op, operation in enumerate(program.operations):
            if _is_operator(operation):
                self._move(op, operation)
                if not operation.outputs:
                    self._keep(op, overwritten)

    def box(self, value: Value | None, tensor: Tensor) -> Box | None:
        """The elements of a tensor of the program; None if nothing is known of its shape."""
        shape = shape_of(tensor)
        if value is None or shape is None:
            return None
        if 0 in shape:
            return whole(_NOTHING, shape)
        found = self._boxes.get(value.number)
        if found is None:
            first = shape_of(value.uses[0].tensor)
            if first is None:
                return None
            found = self._boxes[value.number] = whole(self._atoms.new(prod(first)), first)
        return found if found.shape == shape else found.view(shape)

    def compute(self) -> None:
        """Write down what operators compute, in their order."""
        for op, operation in enumerate(self._program.operations):
            if not _is_operator(operation) or operation.weights or self._is_known(op):
                continue
            results = self._results(op, operation)
            for tensor, made in zip(operation.outputs, results, strict=False):
                box = self.box(self._program.value(op, tensor), tensor)
                if box is not None and made is not None and made.shape == box.shape:
                    self._define(box, made)

    def _is_known(self, op: int) -> bool:
        """True if all that an operator reads and gives is what the other program has, too."""
        operation = self._program.operations[op]
        for tensor in (*operation.outputs, *operation.inputs):
            box = self.box(self._program.value(op, tensor), tensor)
            if box is None or not self._atoms.is_shared(self._atoms.resolved(box)):
                return False
        return True

    def _define(self, box: Box, made: Box) -> None:
        have, made = self._atoms.resolved(box), self._atoms.resolved(made)
        if have.atom == box.atom:
            self._atoms.add(box, made)
        elif have.atom != made.atom:
            self._atoms.add(made, have)

    def _move(self, op: int, operation: Operation) -> None:
        if not operation.inputs:
            return
        source = operation.inputs[0]
        box = self.box(self._program.value(op, source), source)
        if box is None:
            return
        for tensor, moved in zip(operation.outputs, moves(operation, box), strict=False):
            value = self._program.value(op, tensor)
            if value is not None and moved is not None and moved.shape == shape_of(tensor):
                self._boxes.setdefault(value.number, moved)

    def _keep(self, op: int, overwritten: Overwritten) -> None:
        """What lies beside the arguments that an operator changes stays what it was."""
        for old, new in overwritten.kept(op):
            tensor = new.uses[0].tensor
            box = self.box(old, old.uses[0].tensor)
            kept = None if box is None else box.view(shape_of(tensor) or ())
            if kept is not None:
                self._boxes.setdefault(new.number, kept)

    def _results(self, op: int, operation: Operation) -> list[Box | None]:
        kind = kind_of(operation)
        if is_uninitialised(operation) or kind in _RANDOM or is_moving(operation):
            return []
        if not operation.outputs or (kind in _CASTS and _keeps_kind(operation)):
            return []
        shapes = [shape_of(tensor) for tensor in operation.outputs]
        arguments = self._arguments(op, operation)
        if arguments is None or not shapes or shapes[0] is None:
            return []
        items, named = arguments
        if kind in COMPUTE:
            kinds = tuple(is_float(t) for t in (*operation.inputs[:1], operation.outputs[0]))
            call = Call(self._atoms, self._terms, kind, items, named, shapes[0], kinds)
            found = COMPUTE[kind](call)
            if found is not None:
                return [found]
        if is_in_place(operation):
            return []
        return self._other(kind, items, named, shapes)

    def _other(
        self,
        kind: str,
        items: list[Item],
        named: dict[str, Item],
        shapes: list[Shape | None],
    ) -> list[Box | None]:
        """Results of an operator of which nothing is known but that equal ones give equal ones."""
        boxes: list[Box] = []
        words = [_worded(item, boxes) for item in items]
        words += [(name, _worded(named[name], boxes)) for name in sorted(named)]
        return [
            None
            if shape is None
            else self._terms.other((kind, index, tuple(words)), boxes, shape, not boxes)
            for index, shape in enumerate(shapes)
        ]

    def _arguments(
        self, op: int, operation: Operation
    ) -> tuple[list[Item], dict[str, Item]] | None:
        """What an operator was given, by position and by name; None if that is not recorded."""
        places: dict[tuple[int, ...], Item] = {}
        named: dict[str, Item] = {}
        for tensor in operation.inputs:
            box = self.box(self._program.value(op, tensor), tensor)
            if box is None or not _put(tensor.stem, box, places, named):
                return None
        for name, item in params_of(operation).items():
            if isinstance(item, int | float | str | bool):
                _put(name, item, places, named)
        items: list[Item] = []
        for place in sorted(places):
            items += [None] * (place[0] + 1 - len(items))
            if len(place) == 1:
                items[place[0]] = places[place]
            else:
                held = items[place[0]]
                items[place[0]] = [*(held if isinstance(held, list) else ()), places[place]]
        return items, named


def _put(
    name: str, item: Item, places: dict[tuple[int, ...], Item], named: dict[str, Item]
) -> bool:
    """Sort an argument in; False if its name says nothing: ``input_0``, ``input_1_2``."""
    head, _, rest = name.partition("_")
    if head != "input":
        return name in _PLACES
    if all(part.isdigit() for part in rest.split("_")):
        places[tuple(map(int, rest.split("_")))] = item
    elif rest not in _PLACES:
        named[rest] = item
    return True


def _worded(item: Item, boxes: list[Box]) -> object:
    """An argument as a part of a key; what is read is put aside."""
    if isinstance(item, Box):
        boxes.append(item)
        return "read", len(boxes)
    if isinstance(item, list):
        return tuple(_worded(each, boxes) for each in item)
    return item


def _is_operator(operation: Operation) -> bool:
    return operation.type.count(".") >= 2


def has_operators(program: Program) -> bool:
    """True if single operators of a program were captured."""
    return any(map(_is_operator, program.operations))


def moves(operation: Operation, box: Box) -> Iterator[Box | None]:
    """The results of an operator that only moves elements, one by one; nothing for others.

    Args:
        operation: the operator.
        box: its first argument.
    """
    kind = kind_of(operation)
    shapes = [shape_of(tensor) or () for tensor in operation.outputs]
    if not shapes or 0 in box.shape:
        return
    keeps = kind in _SAME_ORDER or (kind in _CASTS and _keeps_kind(operation))
    numbers, rank = _numbers(operation), len(box.dims)
    if keeps or (kind == "slice" and shapes[0] == box.shape):
        yield box.view(shapes[0]) if prod(box.shape) == prod(shapes[0]) else None
    elif kind == "expand":
        yield box.expanded(shapes[0])
    elif kind == "t" and rank == 2:
        yield box.permuted((1, 0))
    elif kind == "transpose" and len(numbers) == 2:
        axes = list(range(rank))
        one, other = numbers
        axes[one], axes[other] = axes[other], axes[one]
        yield box.permuted(axes)
    elif kind == "permute" and len(numbers) == rank:
        yield box.permuted([axis % rank for axis in numbers])
    elif rank and len(operation.inputs) == 1:  # else numbers are among the tensors
        yield from _cuts(kind, _places(operation), box, shapes)


def _cuts(
    kind: str, places: Mapping[int, int], box: Box, shapes: list[Shape]
) -> Iterator[Box | None]:
    """The results of an operator that cuts a tensor."""
    rank = len(box.dims)
    if kind == "slice" and places:
        dim, start = places.get(1, 0) % rank, places.get(2, 0)
        start += box.shape[dim] if start < 0 else 0
        yield box.narrowed(dim, min(start, box.shape[dim]), shapes[0][dim], places.get(4, 1))
    elif kind in ("select", "unbind"):
        dim = places.get(1, 0) % rank
        for index, shape in enumerate(shapes):
            place = index if kind == "unbind" else places.get(2, 0) % box.shape[dim]
            part = box.narrowed(dim, place, 1)
            yield None if part is None else part.view(shape)
    elif kind in _SPLITS:
        dim, start = places.get(2, 0) % rank, 0
        for shape in shapes:
            yield box.narrowed(dim, start, shape[dim])
            start += shape[dim]


def _keeps_kind(operation: Operation) -> bool:
    """True if both the first argument and the result are floating-point numbers, or neither is."""
    if not operation.inputs or not operation.outputs:
        return False
    return is_float(operation.inputs[0]) == is_float(operation.outputs[0])


def _places(operation: Operation) -> dict[int, int]:
    """Whole numbers among the arguments by position."""
    found: dict[int, int] = {}
    for name, value in params_of(operation).items():
        head, _, place = name.partition("_")
        if head == "input" and place.isdigit() and type(value) is int:
            found[int(place)] = value
    return found


def _numbers(operation: Operation) -> list[int]:
    """Whole numbers among the arguments, in their order; lists are spread out."""
    found: list[int] = []
    for value in params_of(operation).values():
        values = value if isinstance(value, list | tuple) else [value]
        found += [each for each in values if type(each) is int]
    return found
