"""Attention and rotary positions as one operator, or written out."""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.composites import Composite
from ait_llm.program.roles import Role

# Of ONNX Runtime, with a factor, and perhaps a key that it turns.
_WITH_FACTOR = frozenset({"ms_FusedMatMul", "ms_FusedMatMul_turned"})
_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm"}) | _WITH_FACTOR
_SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax"})
# What stands between scores and softmax: scale, cap, mask, sinks.
_SCORES = frozenset(
    {"add", "sub", "mul", "div", "tanh", "where", "masked_fill", "cat", "maximum", "amax"}
)
_DEEP = 16
_FUSED = (
    *("scaled_dot_product", "flash_attention", "flash_attn", "efficient_attention"),
    "unified_attention",
)


def attention(graph: CallGraph) -> Iterator[Composite]:
    """All attention cores: query, key and value in, the context out."""
    for place, call in enumerate(graph.calls):
        if any(word in call.kind for word in _FUSED) and len(call.inputs) >= 3:
            names = ("key", "value", "mask")
            operands = dict(zip(names, call.inputs[1:4], strict=False))
            yield Composite(Role.CORE, (place,), call.inputs[0], call.outputs[0], operands)
        elif call.kind in _SOFTMAX and call.inputs:
            found = _written_out(graph, place, call)
            if found is not None:
                yield found


def _written_out(graph: CallGraph, softmax: int, call: Call) -> Composite | None:
    scores = _scores(graph, call.inputs[0])
    if scores is None:
        return None
    product, between, scale = scores
    for place, read in _behind(graph, call.outputs[0]):
        context = graph.calls[place]
        if context.kind not in _PRODUCTS or len(context.inputs) < 2 or context.inputs[0] != read:
            continue
        value = context.inputs[1]
        if graph.is_outside(value):
            continue
        query, key = graph.calls[product].inputs[:2]
        members = tuple(sorted({product, *between, softmax, place}))
        operands = {"key": key, "value": value}
        definition = {"scale": scale} if scale is not None else {}
        return Composite(Role.CORE, members, query, context.outputs[0], operands, definition)
    return None


def _behind(graph: CallGraph, value: int) -> Iterator[tuple[int, int]]:
    """Readers of probabilities, also of those without the column of the sinks."""
    for place, read in graph.after(value):
        if graph.kind(place) in ("slice", "mul", "where", "nan_to_num"):
            yield from graph.after(graph.calls[place].outputs[0])
        else:
            yield place, read


def _scores(graph: CallGraph, value: int) -> tuple[int, list[int], float | None] | None:
    """The product of query and key that a softmax goes back to, and what lies between."""
    waiting: list[tuple[int, list[int], float | None]] = [(value, [], None)]
    steps = 0
    while waiting and steps < _DEEP * 2:
        steps += 1
        current, members, scale = waiting.pop(0)
        place = graph.writer(graph.before(current))
        if place is None or len(members) > _DEEP:
            continue
        call = graph.calls[place]
        if call.kind in _PRODUCTS:
            if not any(graph.is_outside(each) for each in call.inputs[:2]):
                factor = call.numbers[0] if call.kind in _WITH_FACTOR and call.numbers else None
                return place, members, factor if scale is None else scale
        elif call.kind in _SCORES:
            if call.kind in ("mul", "div") and call.numbers and scale is None:
                scale = call.numbers[0] if call.kind == "mul" else 1 / call.numbers[0]
            waiting += [(each, [*members, place], scale) for each in call.inputs]
    return None


def rotary(graph: CallGraph) -> Iterator[Composite]:
    """``x * cos + rotated(x) * sin``, and operators that do so."""
    for place, call in enumerate(graph.calls):
        if "rotary" in call.kind and len(call.inputs) >= 3:
            names = ("key", "cos", "sin") if len(call.outputs) > 1 else ("cos", "sin")
            operands = dict(zip(names, call.inputs[1:], strict=False))
            yield Composite(Role.ROTARY, (place,), call.inputs[0], call.outputs[0], operands)
        elif call.kind == "add" and len(call.inputs) == 2:
            found = _turned(graph, place, call)
            if found is not None:
                yield found


def _turned(graph: CallGraph, place: int, call: Call) -> Composite | None:
    products = [graph.writer(graph.before_casts(each)) for each in call.inputs]
    for first, second in (products, products[::-1]):
        if first is None or second is None:
            return None
        if {graph.kind(first), graph.kind(second)} != {"mul"}:
            return None
        found = _halves(graph, second)
        if found is None:
            continue
        turned, sine, inner, whole = found
        for index, x in enumerate(graph.calls[first].inputs):
            if graph.before(x, pieces=True, order=True) != whole:
                continue
            cosine = graph.calls[first].inputs[1 - index]
            members = [*inner, turned, first, second, place]
            result = _joined(graph, call.outputs[0], whole, members)
            operands = {"cos": cosine, "sin": sine}
            return Composite(
                Role.ROTARY, tuple(sorted(set(members))), graph.before_casts(x), result, operands
            )
    return None


def _halves(graph: CallGraph, product: int) -> tuple[int, int, list[int], int] | None:
    """The call that exchanged halves, the sine, what negated one half, and the whole."""
    for index, value in enumerate(graph.calls[product].inputs[:2]):
        place = graph.writer(graph.before(value))
        if place is None or graph.kind(place) not in ("cat", "stack"):
            continue
        pieces = graph.calls[place].inputs
        if len(pieces) != 2 or len(graph.calls[product].inputs) != 2:
            continue
        negated = graph.writer(graph.before(pieces[0]))
        if negated is None or graph.kind(negated) != "neg" or not graph.calls[negated].inputs:
            continue
        wholes = {
            graph.before(each, pieces=True, order=True)
            for each in (graph.calls[negated].inputs[0], pieces[1])
        }
        if len(wholes) == 1:
            return place, graph.calls[product].inputs[1 - index], [negated], wholes.pop()
    return None


def _joined(graph: CallGraph, result: int, whole: int, members: list[int]) -> int:
    """The result with the columns that were not turned, where only a part is."""
    readers = list(graph.after(result))
    if len(readers) != 1 or graph.kind(readers[0][0]) != "cat":
        return result
    place, read = readers[0]
    others = [each for each in graph.calls[place].inputs if each != read]
    if len(others) == 1 and graph.before(others[0], pieces=True, order=True) == whole:
        members.append(place)
        return graph.calls[place].outputs[0]
    return result
