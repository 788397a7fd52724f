"""What becomes of the rows that a router sends to experts, operator by operator.

Operators gather rows by indices that the capture shows, compute with each row alone, and put what
they made where it belongs. So every row gets a sign that says what was computed, of which token and
by which expert, and rows of equal signs answer each other, wherever either side has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.formats.elements import Array
from ait_llm.match.programs.signs import Signed, Signs, mixed, shaped
from ait_llm.match.programs.weight_parts import part_of
from ait_llm.program.describe import dtype_of, integers, is_float, params_of, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import kind_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_ACTIVATIONS = frozenset({"silu", "gelu", "relu"})
_SAME = frozenset({"alias", "clone", "contiguous", "detach", "_to_copy", "to"})
_SHAPED = frozenset({"view", "unsqueeze", "squeeze"})
_PRODUCTS = frozenset({"mm", "addmm", "linear", "matmul", "_grouped_mm"})
_ALONE = _ACTIVATIONS | {"sigmoid", "tanh", "exp", "neg", "clamp", "clamp_max", "clamp_min", "pow"}
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_SPLITS = frozenset({"split", "split_with_sizes", "chunk"})
_STACKED = 3  # axes of the weights of all experts: experts, and those of each weight
_PLACE = re.compile(r"input((?:_\d+)+)$")


class RowSigns:
    """The signs of the values within the experts of one layer of a side.

    Args:
        side: the program.
        ops: operations within the block, in order.
        known: values that come from outside of it, by number.
        number_of: expert of each operation that belongs to one alone.

    Attributes:
        signs: of values, by number.
        seeds: of each product, the signs of what it reads and those with the expert.
    """

    def __init__(
        self,
        side: Program,
        ops: Sequence[int],
        known: Mapping[int, Signed],
        number_of: Mapping[int, int],
    ) -> None:
        self._side = side
        self._number_of = number_of
        self.seeds: list[tuple[Signs, Signs]] = []
        self.signs = dict(known)
        operators = [op for op in ops if side.roles[op] is Role.OPERATOR]
        self._purposes = dict(self._purposes_in(operators))
        for op in operators:
            for tensor, signed in zip(
                side.operations[op].outputs, self._results(op, side.operations[op]), strict=False
            ):
                value = side.value(op, tensor)
                if value is not None and signed is not None and _fits(signed, tensor):
                    self.signs.setdefault(value.number, signed)

    def _purposes_in(self, ops: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Numbers of what an activation reads, and of what its result is multiplied with."""
        side = self._side
        for op in ops:
            operation = side.operations[op]
            if kind_of(operation) not in _ACTIVATIONS or not operation.inputs:
                continue
            gate = side.value(op, operation.inputs[0])
            made = side.value(op, operation.outputs[0]) if operation.outputs else None
            if gate is None or made is None:
                continue
            yield gate.number, "gate"
            for use in made.reads:
                reader = side.operations[use.op]
                if kind_of(reader) == "mul" and side.roles[use.op] is Role.OPERATOR:
                    others = (side.value(use.op, tensor) for tensor in reader.inputs)
                    yield from ((o.number, "up") for o in others if o is not None and o is not made)

    def _results(self, op: int, operation: Operation) -> list[Signed | None]:
        kind = kind_of(operation).rstrip("_")
        places = _places(operation)
        first = self._at(op, places.get((0,)))
        if kind in _ZEROS and operation.outputs:
            shape = shape_of(operation.outputs[0])
            return [Signed(np.zeros((*shape[:-1], 1), np.uint64), shape[-1])] if shape else []
        if kind in _PRODUCTS:
            return [self._product(op, operation, places)]
        if first is None:
            return []
        shapes = [shape_of(tensor) or () for tensor in operation.outputs]
        if not shapes:
            return []
        if kind in _SAME or kind in _SHAPED:
            return [shaped(first, shapes[0])]
        if kind in _SPLITS or kind == "slice":
            return self._parts(op, operation, first, shapes)
        if kind in ("index", "index_put"):
            return [self._indexed(op, operation, kind, first, places)]
        if kind == "index_add":
            return [self._added(op, operation, first, places)]
        if kind == "sum":
            return [_summed(first, operation)]
        if kind in ("add", "mul"):
            return [self._of_two(op, operation, kind, first, places)]
        if kind in _ALONE and len(operation.inputs) == 1:
            words = repr(sorted(params_of(operation).items()))
            return [Signed(mixed((kind, words), first.signs), first.width)]
        return []

    def _at(self, op: int, tensor: Tensor | None) -> Signed | None:
        """The signs of an argument, in the shape in which the operator sees it."""
        value = None if tensor is None else self._side.value(op, tensor)
        known = None if value is None else self.signs.get(value.number)
        shape = None if tensor is None else shape_of(tensor)
        return None if known is None or shape is None else shaped(known, shape)

    def _purpose(self, op: int, tensor: Tensor) -> str:
        value = self._side.value(op, tensor)
        return "" if value is None else self._purposes.get(value.number, "")

    def _product(
        self, op: int, operation: Operation, places: Mapping[tuple[int, ...], Tensor]
    ) -> Signed | None:
        """A product with a weight of one expert, or with those of all experts, row by row."""
        sources = [tensor for tensor in operation.inputs if is_float(tensor)]
        source = self._at(op, sources[0]) if len(sources) == 1 else None
        if source is None or not source.width or len(operation.outputs) != 1:
            return None
        expert = self._expert_of(op, operation, places, source)
        if expert is None:
            return None
        output = operation.outputs[0]
        seeds = mixed("expert", expert, source.signs)
        self.seeds.append((source.signs, seeds))
        purpose = self._purpose(op, output) or "product"
        return Signed(mixed(purpose, seeds), (shape_of(output) or (0,))[-1], seeds)

    def _expert_of(
        self,
        op: int,
        operation: Operation,
        places: Mapping[tuple[int, ...], Tensor],
        source: Signed,
    ) -> Signs | None:
        """The expert whose weight each row meets; None if nothing tells."""
        if kind_of(operation) == "_grouped_mm":
            ends = integers(places[(2,)]) if (2,) in places else None
            if ends is None or source.signs.ndim != 2:
                return None
            found = np.searchsorted(ends, np.arange(source.signs.shape[0]), side="right")
            experts: Signs = found[:, None].astype(np.uint64)
            return experts
        number = self._number_of.get(op)
        number = self._number_by_weight(operation) if number is None else number
        return None if number is None else np.asarray(np.uint64(number))

    def _number_by_weight(self, operation: Operation) -> int | None:
        """The expert whose share of a parameter of all experts an operator reads."""
        for record in operation.weights.values():
            part = part_of(record)
            saved = None if part is None else self._side.run.weights.get(part.name)
            if part is not None and saved is not None and len(shape_of(saved) or ()) == _STACKED:
                return part.number(saved)
        return None

    def _parts(
        self, op: int, operation: Operation, whole: Signed, shapes: Sequence[tuple[int, ...]]
    ) -> list[Signed | None]:
        """Some columns of each row."""
        params = params_of(operation)
        dim = params.get("input_1" if kind_of(operation) == "slice" else "input_2", 0)
        rank = len(whole.signs.shape)
        if not whole.width or type(dim) is not int or dim % rank != rank - 1:
            return []
        start = params.get("input_2", 0) if kind_of(operation) == "slice" else 0
        if type(start) is not int or params.get("input_4", 1) != 1:
            return []
        start += whole.width if start < 0 else 0
        found: list[Signed | None] = []
        for tensor, shape in zip(operation.outputs, shapes, strict=True):
            if shape[-1] == whole.width:
                found.append(whole)
                continue
            purpose = self._purpose(op, tensor)
            named = whole.seeds is not None and purpose
            signs = (
                mixed(purpose, whole.seeds)
                if named and whole.seeds is not None
                else mixed(("columns", start, shape[-1]), whole.signs)
            )
            found.append(Signed(signs, shape[-1]))
            start += shape[-1]
        return found

    def _indexed(
        self,
        op: int,
        operation: Operation,
        kind: str,
        source: Signed,
        places: Mapping[tuple[int, ...], Tensor],
    ) -> Signed | None:
        """Rows that are gathered, or put somewhere."""
        given = sorted(place for place in places if len(place) == 2 and place[0] == 1)
        if [place[1] for place in given] != list(range(len(given))) or not given:
            return None
        arrays = [_index(places[place]) for place in given]
        if any(array is None for array in arrays):
            return None
        index = tuple(array for array in arrays if array is not None)
        if source.width and len(index) >= source.signs.ndim:
            return None  # single columns
        try:
            if kind == "index":
                return Signed(source.signs[index], source.width)
            values = self._at(op, places.get((2,)))
            if values is None or values.width != source.width:
                return None
            made = source.signs.copy()
            if params_of(operation).get("input_3") is True:
                np.add.at(made, index, values.signs)
            else:
                made[index] = values.signs
        except (IndexError, ValueError):
            return None
        return Signed(made, source.width)

    def _added(
        self,
        op: int,
        operation: Operation,
        whole: Signed,
        places: Mapping[tuple[int, ...], Tensor],
    ) -> Signed | None:
        """Rows that are added to some of others."""
        index = _index(places[(2,)]) if (2,) in places else None
        more = self._at(op, places.get((3,)))
        if index is None or more is None or more.width != whole.width or not whole.width:
            return None
        if whole.signs.ndim != 2 or dict(params_of(operation)) != {"input_1": 0}:
            return None
        made = whole.signs.copy()
        try:
            np.add.at(made, index, more.signs)
        except (IndexError, ValueError):
            return None
        return Signed(made, whole.width)

    def _of_two(
        self,
        op: int,
        operation: Operation,
        kind: str,
        first: Signed,
        places: Mapping[tuple[int, ...], Tensor],
    ) -> Signed | None:
        params = params_of(operation)
        if (1,) not in places:
            number = params.get("input_1")
            if kind != "mul" or type(number) not in (int, float) or len(operation.inputs) != 1:
                return None
            return Signed(mixed(("times", number), first.signs), first.width)
        second = self._at(op, places[(1,)])
        if second is None or len(params) or len(operation.inputs) != 2:
            return None
        for one, other in ((first, second), (second, first)):
            if one.width and not other.width and other.signs.shape[-1:] != (1,):
                return None
        if first.width and second.width and first.width != second.width:
            return None
        try:
            with np.errstate(over="ignore"):
                total, product = first.signs + second.signs, first.signs * second.signs
        except ValueError:
            return None
        width = first.width or second.width
        return Signed(total if kind == "add" else mixed("mul", total, product), width)


def _places(operation: Operation) -> dict[tuple[int, ...], Tensor]:
    """Inputs by their position, those of a list by two numbers."""
    found = {}
    for tensor in operation.inputs:
        match = _PLACE.match(tensor.stem)
        if match is not None:
            found[tuple(int(part) for part in match[1].split("_")[1:])] = tensor
    return found


def _index(tensor: Tensor) -> Array | None:
    array = integers(tensor)
    if array is None:
        return None
    return array.astype(np.bool_) if dtype_of(tensor) is DType.BOOL else array


def _fits(signed: Signed, tensor: Tensor) -> bool:
    """True if signs are those of a tensor of this shape."""
    shape = shape_of(tensor)
    if shape is None or not is_float(tensor):
        return False
    wanted = (*shape[:-1], 1) if signed.width else shape
    return signed.signs.shape == wanted and (not signed.width or shape[-1] == signed.width)


def _summed(signed: Signed, operation: Operation) -> Signed | None:
    """Sums of rows."""
    params = params_of(operation)
    dims = [value for name, value in params.items() if name.startswith("input_1")]
    rank = signed.signs.ndim
    if len(dims) != 1 or type(dims[0]) is not int or not set(params) <= {"input_1_0", "input_1"}:
        return None
    if signed.width and dims[0] % rank == rank - 1:
        return None
    with np.errstate(over="ignore"):
        return Signed(signed.signs.sum(axis=dims[0], dtype=np.uint64), signed.width)


def signed_values(
    side: Program, ops: Sequence[int], signs: Mapping[int, Signed]
) -> dict[int, tuple[Value, Signed]]:
    """Values within a block that have signs, by number."""
    found = {}
    for op in ops:
        for tensor in side.operations[op].tensors:
            value = side.value(op, tensor)
            if value is not None and value.number in signs and is_float(tensor):
                found[value.number] = (value, signs[value.number])
    return found
