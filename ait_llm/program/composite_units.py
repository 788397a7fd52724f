"""Projections, embeddings and activations as one operator, or written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.composite_norms import is_power
from ait_llm.program.composites import Composite, Definition
from ait_llm.program.roles import Role

# Matrix products: place of the activation, of the weight, of the bias, and whether the weight is
# [out, in] as it is read.
_PRODUCTS = {
    "linear": (0, 1, 2, True),
    "addmm": (1, 2, 0, False),
    "mm": (0, 1, 2, False),
    "bmm": (0, 1, 2, False),
    "matmul": (0, 1, 2, False),
    "onednn_mm": (0, 1, 2, True),
    "ms_FusedMatMul": (0, 1, 2, False),
    "convolution": (0, 1, 2, True),
}
# Their weight is packed, so that what is read is a handle of it, or has a kernel's dims as well.
_NO_MATRIX = frozenset({"onednn_mm", "convolution"})
_ACTIVATIONS = frozenset(
    {"silu", "gelu", "relu", "leaky_relu", "elu", "mish", "hardswish", "softplus", "quick_gelu"}
)
_GATED = frozenset({"swiglu", "geglu", "silu_and_mul", "gelu_and_mul"})


def linears(graph: CallGraph) -> Iterator[Composite]:
    """Products with a matrix from outside."""
    for place, call in enumerate(graph.calls):
        places = _PRODUCTS.get(call.kind)
        if places is None or max(places[:2]) >= len(call.inputs):
            continue
        x, weight = call.inputs[places[0]], call.inputs[places[1]]
        root = graph.before(weight, order=True)
        if graph.writer(root) is not None:
            continue
        if call.kind not in _NO_MATRIX and not _is_matrix(graph, root):
            continue
        operands = {"weight": root}
        members, result = [place], call.outputs[0]
        if places[2] < len(call.inputs):
            operands["bias"] = graph.before(call.inputs[places[2]])
        else:
            result = with_bias(graph, result, operands, members)
        turned = sum(
            graph.is_passing(graph.kind(each), order=True)
            and not graph.is_passing(graph.kind(each))
            for each in graph.path(weight, root)
        )
        definition = {"out_in": places[3] != bool(turned % 2)}
        bare = None if len(members) == 1 else call.outputs[0]
        yield Composite(Role.LINEAR, tuple(members), x, result, operands, definition, bare)


def _is_matrix(graph: CallGraph, value: int) -> bool:
    """True unless dims say that a value is no matrix: a vector, or a row of numbers."""
    shape = graph.shapes.get(value)
    return shape is None or (len(shape) == 2 and min(shape) > 1)


def with_bias(graph: CallGraph, result: int, operands: dict[str, int], members: list[int]) -> int:
    """The sum with a vector from outside, if one is made of a product, whoever else reads that."""
    sums = [each for each in map(partial(_biased, graph), graph.after(result)) if each is not None]
    if len(sums) != 1:
        return result
    place, operands["bias"] = sums[0]
    members.append(place)
    return graph.calls[place].outputs[0]


def _biased(graph: CallGraph, reader: tuple[int, int]) -> tuple[int, int] | None:
    """The call that reads a product, and the vector from outside that it adds, if it does."""
    place, read = reader
    call = graph.calls[place]
    others = [each for each in call.inputs if each != read]
    if graph.kind(place) != "add" or len(call.inputs) != 2 or len(others) != 1:
        return None
    bias = graph.before(others[0])
    if not graph.is_outside(others[0], order=False) or len(graph.shapes.get(bias, ())) != 1:
        return None
    return place, bias


def embeddings(graph: CallGraph) -> Iterator[Composite]:
    """Rows of a table from outside."""
    for place, call in enumerate(graph.calls):
        if call.kind == "embedding" and len(call.inputs) > 1:
            table = graph.before(call.inputs[0])
            if graph.writer(table) is None:
                yield _scaled(graph, place, table)


def _scaled(graph: CallGraph, place: int, table: int) -> Composite:
    """An embedding, with the number that all of it is multiplied by, if that is all its use."""
    call = graph.calls[place]
    result, members = call.outputs[0], [place]
    definition: dict[str, float | str | bool] = {}
    readers = list(graph.after(result))
    if len(readers) == 1 and graph.kind(readers[0][0]) == "mul":
        product = graph.calls[readers[0][0]]
        factors = [each for each in product.inputs if each != readers[0][1]]
        if all(is_number(graph, each) for each in factors):
            members.append(readers[0][0])
            result = product.outputs[0]
            definition = {"scaled": product.numbers[0] if product.numbers else True}
    return Composite(
        Role.EMBEDDING,
        tuple(members),
        call.inputs[1],
        result,
        {"weight": table},
        definition,
        None if len(members) == 1 else call.outputs[0],
    )


def is_number(graph: CallGraph, value: int) -> bool:
    """True for one number from outside."""
    outside = graph.before(value)
    return graph.writer(outside) is None and graph.shapes.get(outside) in ((), (1,))


def activations(graph: CallGraph) -> Iterator[Composite]:
    """Activations by their operator, or written out: ``relu(x) ** 2``, ``x * sigmoid(x)``, GELU."""
    for place, call in enumerate(graph.calls):
        if call.kind == "relu" and (square := _squared(graph, call)) is not None:
            result = graph.calls[square].outputs[0]
            function: Definition = {"function": "relu2"}
            members = (place, square)
            yield Composite(Role.ACTIVATION, members, call.inputs[0], result, definition=function)
        elif call.kind in _ACTIVATIONS and call.inputs:
            yield Composite(
                Role.ACTIVATION,
                (place,),
                call.inputs[0],
                call.outputs[0],
                definition={"function": call.kind},
            )
        elif call.kind in _GATED and call.inputs:
            yield Composite(Role.GATED, (place,), call.inputs[0], call.outputs[0])
        elif call.kind == "sigmoid" and call.inputs:
            yield from _silu(graph, place, call)
        elif call.kind in ("tanh", "erf") and call.inputs:
            yield from _gelu(graph, place, call)


def _squared(graph: CallGraph, call: Call) -> int | None:
    """The one reader of what a call makes, if it squares that."""
    readers = graph.readers(call.outputs[0]) if call.inputs else ()
    if len(readers) != 1:
        return None
    reader = graph.calls[readers[0]]
    is_square = reader.kind == "square" or is_power(reader, 2.0)
    is_product = reader.kind == "mul" and len(reader.inputs) == 2 and len({*reader.inputs}) == 1
    return readers[0] if is_square or is_product else None


def _silu(graph: CallGraph, place: int, call: Call) -> Iterator[Composite]:
    source = graph.before(call.inputs[0])
    for reader, read in graph.after(call.outputs[0]):
        product = graph.calls[reader]
        others = [each for each in product.inputs if each != read]
        if product.kind == "mul" and len(others) == 1 and graph.before(others[0]) == source:
            yield Composite(
                Role.ACTIVATION,
                (place, reader),
                graph.before_casts(call.inputs[0]),
                product.outputs[0],
                definition={"function": "silu"},
            )
            return


def _gelu(graph: CallGraph, place: int, call: Call) -> Iterator[Composite]:
    """``0.5 * x * (1 + tanh(f(x)))``."""
    reader = next(iter(graph.after(call.outputs[0])), None)
    if reader is None or graph.kind(reader[0]) != "add":
        return
    total = graph.calls[reader[0]]
    if 1.0 not in total.numbers:
        return
    for product, read in graph.after(total.outputs[0]):
        others = [each for each in graph.calls[product].inputs if each != read]
        if graph.kind(product) != "mul" or len(others) != 1:
            continue
        half = graph.writer(graph.before(others[0]))
        if graph.kind(half) != "mul" or half is None or 0.5 not in graph.calls[half].numbers:
            continue
        if not graph.calls[half].inputs:
            continue
        source = graph.calls[half].inputs[0]
        inner = _between(graph, call.inputs[0], source)
        if inner is None:
            continue
        members = tuple(sorted({half, *inner, place, reader[0], product}))
        function = "gelu" if call.kind == "erf" else "gelu tanh"
        yield Composite(
            Role.ACTIVATION,
            members,
            source,
            graph.calls[product].outputs[0],
            definition={"function": function},
        )
        return


def _between(graph: CallGraph, value: int, source: int, most: int = 12) -> list[int] | None:
    """Calls that make a value of one other alone; None if it is made of anything else."""
    start = graph.before(source)
    waiting = [value]
    found: list[int] = []
    while waiting:
        current = waiting.pop()
        if graph.before(current) == start:
            continue
        place = graph.writer(current)
        if place is None or len(found) == most:
            return None
        found.append(place)
        waiting += graph.calls[place].inputs
    return found


def gated(graph: CallGraph, found: Sequence[Composite]) -> list[Composite]:
    """Products of an activation with another value that was computed: ``silu(gate) * up``."""
    results = []
    for each in found:
        if each.role is not Role.ACTIVATION:
            continue
        readers = list(graph.after(each.result))
        if len(readers) != 1 or graph.kind(readers[0][0]) != "mul":
            continue
        place, read = readers[0]
        others = [other for other in graph.calls[place].inputs if other != read]
        if len(others) == 1 and graph.writer(graph.before(others[0])) is not None:
            result = graph.calls[place].outputs[0]
            members = (*each.members, place)
            results.append(
                Composite(
                    Role.GATED, members, each.source, result, {"up": others[0]}, each.definition
                )
            )
    return results
