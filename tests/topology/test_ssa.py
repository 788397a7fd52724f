from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.topology.graph import Graph, Node
from ait_llm.topology.ssa import Body, Program, to_program


def op(name: str, reads: str, writes: str, *children: Node, param: object = None) -> Node:
    """A node from space-separated tensor names."""
    return Node(
        name,
        name.split("_")[0],
        None,
        param,
        tuple(reads.split()),
        tuple(writes.split()),
        (),
        children,
    )


def layer(root: Node) -> Graph:
    return Graph("layer", root)


def calls(body: Body) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(call.name, call.inputs, call.outputs) for call in body.calls]


def assert_single_assignment(program: Program) -> None:
    """Every value has one writer, every read has a value, every output exists."""
    for body in (program.main, *program.functions):
        known = set(body.inputs) | (set(program.weights) if body is program.main else set())
        assert len(set(body.inputs)) == len(body.inputs)
        for call in body.calls:
            assert set(call.inputs) <= known, call.name
            assert len(set(call.outputs)) == len(call.outputs)
            assert not known & set(call.outputs), call.name
            known |= set(call.outputs)
        assert set(body.outputs) <= known


def inlined(program: Program) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """The closed operations with values numbered in the order they appear, functions expanded."""
    bodies = {body.name: body for body in program.functions}
    numbers: dict[object, int] = {}
    result = []

    def number(value: object) -> str:
        return str(numbers.setdefault(value, len(numbers)))

    def run(body: Body, names: dict[str, object]) -> dict[str, object]:
        for call in body.calls:
            actual = [names.setdefault(n, ("main", n)) for n in call.inputs]
            if call.function is None:
                for n in call.outputs:
                    names[n] = object()
                result.append(
                    (
                        call.node.name,
                        tuple(number(value) for value in actual),
                        tuple(number(names[n]) for n in call.outputs),
                    )
                )
            else:
                inner = bodies[call.function]
                after = run(inner, dict(zip(inner.inputs, actual, strict=True)))
                for mine, theirs in zip(call.outputs, inner.outputs, strict=True):
                    names[mine] = after[theirs]
        return names

    run(program.main, {})
    return result


def test_second_write_of_a_tensor_makes_a_version_that_later_readers_see() -> None:
    root = op(
        "L_0",
        "x cache",
        "y",
        op("Write_0_0", "x cache", "cache"),
        op("Read_0_1", "cache", "t"),
        op("Write_0_2", "t cache", "cache"),
        op("Read_0_3", "cache", "y"),
    )
    program = to_program(layer(root))
    assert calls(program.main) == [
        ("Write_0_0", ("x", "cache"), ("cache__v1",)),
        ("Read_0_1", ("cache__v1",), ("t",)),
        ("Write_0_2", ("t", "cache__v1"), ("cache__v2",)),
        ("Read_0_3", ("cache__v2",), ("y",)),
    ]
    assert program.main.tensors["cache__v2"] == "cache"


def test_graph_output_that_is_also_an_input_is_its_last_version() -> None:
    program = to_program(layer(op("L_0", "x", "x", op("Inplace_0_0", "x", "x"))))
    assert program.main.inputs == ("x",)
    assert program.main.outputs == ("x__v1",)


def test_version_names_avoid_names_that_exist() -> None:
    root = op("L_0", "x x__v1", "x", op("A_0_0", "x x__v1", "x"))
    assert to_program(layer(root)).main.outputs == ("x__v2",)


def test_two_outputs_of_one_name_get_two_values() -> None:
    program = to_program(layer(op("L_0", "x", "y", op("A_0_0", "x", "y y"))))
    assert program.main.calls[0].outputs == ("y", "y__v1")
    assert program.main.outputs == ("y__v1",)


def test_repeated_inputs_of_a_graph_become_one_formal_but_stay_on_operations() -> None:
    inner = op("A_0_0_0", "x x", "y")
    root = op("L_0", "x", "y", op("G_0_0", "x x x", "y", inner))
    program = to_program(layer(root))
    assert program.main.calls[0].inputs == ("x",)
    assert program.functions[0].inputs == ("x",)
    assert program.functions[0].calls[0].inputs == ("x", "x")


def test_tensors_read_inside_but_not_passed_become_formals() -> None:
    root = op("L_0", "x", "y", op("G_0_0", "x", "y", op("A_0_0_0", "x w", "y")))
    program = to_program(layer(root))
    assert program.functions[0].inputs == ("x", "w")
    assert program.main.inputs == ("x", "w")


def test_undeclared_cache_write_leaves_the_function_when_a_later_operation_reads_it() -> None:
    graph = op("G_0_0", "x cache", "t", op("W_0_0_0", "x cache", "cache"), op("A_0_0_1", "x", "t"))
    root = op("L_0", "x cache", "y", graph, op("R_0_1", "t cache", "y"))
    program = to_program(layer(root))
    call = program.main.calls[0]
    assert call.side_effects == ("cache",)
    assert call.outputs == ("t", "cache__v1")
    assert program.main.calls[1].inputs == ("t", "cache__v1")


def test_undeclared_cache_write_stays_inside_when_nobody_reads_it_later() -> None:
    graph = op("G_0_0", "x cache", "t", op("W_0_0_0", "x cache", "cache"), op("A_0_0_1", "x", "t"))
    root = op("L_0", "x cache", "y", graph, op("R_0_1", "t", "y"))
    program = to_program(layer(root))
    assert program.main.calls[0].outputs == ("t",)
    assert program.main.calls[0].side_effects == ()


def test_declared_output_that_nothing_writes_is_left_out_and_listed() -> None:
    root = op("L_0", "x", "y z", op("G_0_0", "x", "y q", op("A_0_0_0", "x", "y")))
    program = to_program(layer(root))
    assert program.main.outputs == ("y",)
    assert program.main.unassigned == ("z",)
    assert program.main.calls[0].outputs == ("y",)
    assert program.main.calls[0].unassigned == ("q",)


def test_names_used_twice_become_unique_and_keep_their_paths() -> None:
    root = op("L_0", "x", "y", op("A_0", "x", "t"), op("A_0", "t", "y"))
    program = to_program(layer(root))
    assert [(c.name, c.path) for c in program.main.calls] == [
        ("A_0", "L_0/A_0"),
        ("A_0__2", "L_0/A_0"),
    ]


def test_absent_optional_inputs_keep_their_place() -> None:
    root = Node(
        "L_0",
        "L",
        None,
        None,
        ("x",),
        ("y",),
        (),
        (Node("A_0_0", "A", None, None, ("x", "", "w"), ("y",)),),
    )
    assert to_program(layer(root)).main.calls[0].inputs == ("x", "", "w")


def test_outputs_of_a_model_that_declares_none_are_what_nobody_reads() -> None:
    root = op("M", "", "", op("A_0", "w", "t"), op("B_1", "t", "y"))
    program = to_program(Graph("model", root, weights=("w", "unused")))
    assert program.main.outputs == ("y",)
    assert program.main.inputs == ()
    assert program.weights == ("w",)


names = st.sampled_from(["a", "b", "c", "x", "y"])
lists = st.lists(names, max_size=3).map(tuple)


@st.composite
def nodes(draw: st.DrawFn, depth: int = 0) -> Node:
    children: tuple[Node, ...] = ()
    if depth == 0 or (depth < 3 and draw(st.booleans())):
        children = tuple(draw(st.lists(nodes(depth=depth + 1), min_size=1, max_size=3)))
    return Node(
        draw(st.sampled_from(["N_0", "N_1", "P"])),
        "N",
        None,
        None,
        draw(lists),
        draw(lists),
        (),
        children,
    )


@given(nodes(), st.sampled_from([None, 0, 1, 2]), st.booleans())
def test_any_topology_becomes_single_assignment(
    root: Node, level: int | None, nested: bool
) -> None:
    assert_single_assignment(to_program(layer(root), level, nested=nested))


@st.composite
def consistent(draw: st.DrawFn, depth: int = 0) -> Node:
    """A node whose graphs declare exactly what their children read and write."""
    if depth > 0 and (depth == 3 or draw(st.booleans())):
        return Node("N_0", "N", None, None, draw(lists), draw(lists))
    children = tuple(draw(st.lists(consistent(depth=depth + 1), min_size=1, max_size=3)))
    reads = tuple(dict.fromkeys(n for c in children for n in c.inputs))
    writes = tuple(dict.fromkeys(n for c in children for n in c.outputs))
    return Node("G_0", "G", None, None, reads, writes, (), children)


@given(consistent())
def test_functions_compute_what_the_flat_form_computes(root: Node) -> None:
    nested = inlined(to_program(layer(root)))
    assert nested == inlined(to_program(layer(root), nested=False))
