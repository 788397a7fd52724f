"""Norms as one operator, or written out."""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.program.calls import CASTS, Call, CallGraph
from ait_llm.program.composites import Composite
from ait_llm.program.roles import Role

_LAYER = frozenset({"layer_norm", "native_layer_norm"})
_RMS = frozenset({"rms_norm", "_fused_rms_norm"})
_ADDED = frozenset({"add_rms_norm", "add_layer_norm"})


def norms(graph: CallGraph) -> Iterator[Composite]:
    """All norms of a graph."""
    for place, call in enumerate(graph.calls):
        if call.kind in _LAYER | _RMS:
            yield _single(graph, place, call)
        elif call.kind in _ADDED and len(call.inputs) > 1:
            operands = dict(zip(("residual", "weight", "bias"), call.inputs[1:], strict=False))
            yield Composite(
                Role.NORM,
                (place,),
                call.inputs[0],
                call.outputs[0],
                operands,
                {"rms": "rms" in call.kind, **_eps(call.numbers[-1:])},
            )
        elif call.inputs and (
            call.kind in ("rsqrt", "sqrt") or is_power(call, -0.5) or is_power(call, 0.5)
        ):
            found = _written_out(graph, place)
            if found is not None:
                yield found


def _single(graph: CallGraph, place: int, call: Call) -> Composite:
    rest = (value for value in call.inputs[1:] if _is_as_wide(graph, value, call.inputs[0]))
    operands = dict(zip(("weight", "bias"), rest, strict=False))
    return Composite(
        Role.NORM,
        (place,),
        call.inputs[0],
        call.outputs[0],
        {name: graph.before(value) for name, value in operands.items()},
        {"rms": call.kind in _RMS, **_eps(call.numbers[-1:])},
    )


def _is_as_wide(graph: CallGraph, value: int, source: int) -> bool:
    """False for the dims to norm over, which some dumps keep among the inputs."""
    one, other = graph.shapes.get(value), graph.shapes.get(source)
    return not one or not other or one[-1] == other[-1]


def _eps(numbers: tuple[float, ...]) -> dict[str, float]:
    return {"eps": numbers[0]} if numbers and 0 < numbers[0] < 1 else {}


def _written_out(graph: CallGraph, root: int) -> Composite | None:
    """The norm around the root of a mean square; None if it is something else."""
    mean = _mean_square(graph, graph.calls[root].inputs[0])
    if mean is None:
        return None
    eps, inner, source = mean
    members = [*inner, root]
    normed = _divided(graph, root, source)
    if normed is None:
        return None
    members += normed
    value = graph.calls[normed[-1]].outputs[0]
    operands: dict[str, int] = {}
    definition: dict[str, float | str | bool] = {"rms": True, "eps": eps}
    centred = _centred(graph, source)
    if centred is not None:
        members += centred[0]
        source, definition["rms"] = centred[1], False
    value, is_cast = _scaled(graph, value, members, operands, definition)
    start = graph.before_casts(source)
    in_front = graph.path(source, start)
    members += in_front
    if not is_cast and any(graph.kind(place) in CASTS for place in in_front):
        value = _cast_behind(graph, value, members)
    kept = tuple(sorted(set(members)))
    return Composite(Role.NORM, kept, start, value, operands, definition)


def _mean_square(graph: CallGraph, value: int) -> tuple[float, list[int], int] | None:
    """Epsilon, members and x of ``mean(x * x) + eps``; of a variance, x is what it is of."""
    place = graph.writer(graph.before_casts(value))
    if graph.kind(place) != "add" or place is None:
        return None
    total = graph.calls[place]
    if not total.inputs or (not total.numbers and len(total.inputs) < 2):
        return None
    eps = total.numbers[0] if total.numbers else 0.0
    members = [place]
    place = graph.writer(graph.before_casts(total.inputs[0]))
    if place is None:
        return None
    members.append(place)
    call = graph.calls[place]
    if not call.inputs:
        return None
    if call.kind in ("var", "var_mean"):
        return eps, members, call.inputs[0]
    if call.kind != "mean":
        return None
    place = graph.writer(graph.before_casts(call.inputs[0]))
    if place is None:
        return None
    square = graph.calls[place]
    if not square.inputs:
        return None
    twice = square.kind == "mul" and len(square.inputs) == 2 == square.inputs.count(
        square.inputs[0]
    )
    if not (twice or square.kind == "square" or is_power(square, 2)):
        return None
    return eps, [*members, place], square.inputs[0]


def _divided(graph: CallGraph, root: int, source: int) -> list[int] | None:
    """The product of x with the inverse root, or the quotient."""
    inverse = graph.kind(root) == "rsqrt" or is_power(graph.calls[root], -0.5)
    value, members = graph.calls[root].outputs[0], []
    x = graph.before(source)
    for place, read in graph.after(value):
        call = graph.calls[place]
        if not inverse and call.kind == "reciprocal":
            inverse, value = True, call.outputs[0]
            members.append(place)
            following = graph.after(value)
            place, read = next(following, (place, read))
            call = graph.calls[place]
        if call.kind != ("mul" if inverse else "div") or len(call.inputs) != 2:
            continue
        other = call.inputs[0] if call.inputs[1] == read else call.inputs[1]
        if graph.before(other) == x or _same_centre(graph, other, source):
            return [*members, place]
    return None


def _same_centre(graph: CallGraph, first: int, second: int) -> bool:
    """True if two values are one value minus its mean, computed twice, or one is the value."""
    found = [graph.before(each) for each in (first, second)]
    centres = [
        centred[1] if (centred := _centred(graph, each)) is not None else each for each in found
    ]
    return graph.before(centres[0]) == graph.before(centres[1])


def _centred(graph: CallGraph, value: int) -> tuple[list[int], int] | None:
    """Members and x of ``x - mean(x)``."""
    place = graph.writer(graph.before_casts(value))
    if place is None or graph.kind(place) != "sub" or len(graph.calls[place].inputs) != 2:
        return None
    x, mean = graph.calls[place].inputs
    writer = graph.writer(graph.before_casts(mean))
    if writer is None or graph.kind(writer) not in ("mean", "var_mean"):
        return None
    return ([writer, place], x) if graph.calls[writer].inputs[0] == x else None


def _scaled(
    graph: CallGraph,
    value: int,
    members: list[int],
    operands: dict[str, int],
    definition: dict[str, float | str | bool],
) -> tuple[int, bool]:
    """The value times the weight, plus the bias, where there are any; true if it was cast first."""
    is_cast = False
    for kind, name in (("mul", "weight"), ("add", "bias")):
        reader = _only_reader(graph, value, kind)
        if reader is None:
            break
        place, read = reader
        call = graph.calls[place]
        others = [each for each in call.inputs if each != read]
        if len(call.inputs) != 2 or len(others) != 1 or not graph.is_constant(others[0]):
            break
        outside = graph.outside_of(others[0])
        if outside is None:
            break
        operands[name] = outside
        made = graph.writer(graph.before(others[0]))
        if made is not None and graph.kind(made) == "add" and 1.0 in graph.calls[made].numbers:
            definition["weight"] = "1 + weight"
        if made is not None:
            members.append(made)
        members.append(place)
        is_cast |= any(graph.kind(each) in CASTS for each in graph.path(read, value))
        value = call.outputs[0]
    return value, is_cast


def _only_reader(graph: CallGraph, value: int, kind: str) -> tuple[int, int] | None:
    """The one call that reads a value, also behind casts, if it is of this kind."""
    found = list(graph.after(value))
    if len(found) != 1 or graph.kind(found[0][0]) != kind:
        return None
    return found[0]


def _cast_behind(graph: CallGraph, value: int, members: list[int]) -> int:
    """The value behind the cast that undoes the one in front, if that is all that reads it.

    Where nothing is left to be undone, the cast is that of the reader.
    """
    readers = graph.readers(value)
    if len(readers) != 1 or graph.kind(readers[0]) not in CASTS:
        return value
    outputs = graph.calls[readers[0]].outputs
    if not outputs or outputs[0] == value:
        return value
    members.append(readers[0])
    return outputs[0]


def is_power(call: Call, exponent: float) -> bool:
    """True if a call raises its input to this power."""
    return call.kind == "pow" and bool(call.numbers) and call.numbers[0] == exponent
