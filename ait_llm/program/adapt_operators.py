"""Operators of a torch capture that has no modules, as a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ait_llm.core import DType
from ait_llm.dumps.model import Operation
from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.flow import FEW_BITS, Flow, whole_numbers
from ait_llm.program.one_pass import Pass
from ait_llm.program.operator_program import OperatorProgram
from ait_llm.program.overwritten import Overwritten
from ait_llm.program.roles import is_operator
from ait_llm.program.roles_fx import kind_of

_Place = tuple[bool, tuple[int, ...], str]  # by name, by position, the name


def has_operators_alone(run: Pass) -> bool:
    """True for a capture of operators without the modules that ran them."""
    return bool(run.operations) and all(map(is_operator, run.operations))


def program_of_operators(run: Pass) -> OperatorProgram:
    """A pass of kind ``torch`` that holds operators alone."""
    return OperatorProgram(run, graph_of_operators)


def graph_of_operators(run: Pass, found: Flow) -> tuple[CallGraph, Sequence[int]]:
    """The operators of a pass as calls, and the index of the operation of each.

    Args:
        run: the pass.
        found: its values, whose numbers the calls read and make; parameters get later ones.
    """
    calls: list[Call] = []
    places: list[int] = []
    shapes: dict[int, tuple[int, ...]] = {}
    weights: dict[str, int] = {}
    overwritten = Overwritten(found)
    for op, operation in enumerate(run.operations):
        made = [_call(found, op, operation, weights, shapes)]
        if not made[0].outputs:
            made += _written(found, overwritten, op, made[0])
        calls += made
        places += [op] * len(made)
        for tensor in operation.tensors:
            value, shape = found.at(op, tensor.role, tensor.index), shape_of(tensor)
            if value is not None and shape is not None:
                shapes.setdefault(value.number, shape)
    return CallGraph(calls, shapes, whole_numbers(found) | _whole(run, weights)), places


def _whole(run: Pass, weights: Mapping[str, int]) -> set[int]:
    """Parameters of the model that are whole numbers of eight bits or less."""
    stated = (each for operation in run.operations for each in operation.weights.values())
    return {
        weights[_part(weight)]
        for weight in stated
        if isinstance(weight, Mapping) and DType.of_torch(str(weight.get("dtype"))) in FEW_BITS
    }


def _written(found: Flow, overwritten: Overwritten, op: int, call: Call) -> Iterator[Call]:
    """What an operator that returns nothing makes of its arguments: a call for each of them.

    Memory that nobody had written is no argument, and what lies beside is handed on.
    """
    kind = kind_of(found.run.operations[op].type)
    for tensor, result in overwritten.results(op):
        before = found.at(op, "in", tensor.index)
        others = [number for number in call.inputs if before is None or number != before.number]
        own = [] if before is None or overwritten.is_fresh(before) else [before.number]
        yield Call(kind, (*own, *others), (result.number,), call.numbers)
    for old, new in overwritten.kept(op):
        yield Call("alias", (old.number,), (new.number,))


def _call(
    found: Flow,
    op: int,
    operation: Operation,
    weights: dict[str, int],
    shapes: dict[int, tuple[int, ...]],
) -> Call:
    """One operator; parameters of the model, of which no tensor was saved, get ids of their own."""
    inputs: dict[_Place, int] = {}
    outputs: dict[_Place, int] = {}
    for tensor in operation.tensors:
        value = found.at(op, tensor.role, tensor.index)
        if value is not None:
            (inputs if tensor.role == "in" else outputs)[_place(tensor.stem)] = value.number
    for stem, weight in operation.weights.items():
        shape = tuple(weight.get("shape", ())) if isinstance(weight, Mapping) else ()
        name = _part(weight) if isinstance(weight, Mapping) else str(weight)
        number = weights.setdefault(name, len(found.values) + len(weights))
        shapes.setdefault(number, shape)
        (inputs if stem.startswith("input") else outputs)[_place(stem)] = number
    return Call(
        # what writes into an argument and returns nothing has no result to be known by
        kind_of(operation.type) if outputs else "",
        tuple(inputs[place] for place in sorted(inputs)),
        tuple(outputs[place] for place in sorted(outputs)),
        tuple(_numbers(params_of(operation))),
    )


def _part(weight: Mapping[str, Any]) -> str:
    """What an operator is given of a parameter; pieces of one shape differ in where they begin."""
    return repr([weight.get(each) for each in ("name", "shape", "stride", "offset")])


def _place(stem: str) -> _Place:
    """Position of ``input_1``, ``input_0_2`` in a list, or ``output``; what has a name is last."""
    _, *parts = stem.split("_")
    if all(map(str.isdigit, parts)):
        return False, tuple(map(int, parts)), ""
    return True, (), stem


def _numbers(params: Mapping[str, Any]) -> list[float]:
    return [float(value) for value in params.values() if type(value) in (int, float)]
