"""Code generation watched: the generated program gets a call before and after each launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ait_llm.dump.inductor.kernels import KernelTable, Stored
from ait_llm.dump.inductor.recorder import GraphRecorder, register
from ait_llm.dump.inductor.wrapper import Wrapper, insert_lines, read_wrapper, shifted_line

_NAME = "_ait_recorder"
Recorders = Callable[[Any, Wrapper], "tuple[GraphRecorder, KernelTable]"]


@contextmanager
def watched_codegen(
    recorder_for: Recorders, not_watched: Callable[[Exception], None]
) -> Iterator[None]:
    """While this lasts, programs that Inductor generates call a recorder.

    Args:
        recorder_for: makes it, from the lowered graph and the launches in the program.
        not_watched: is told why a program stays as it is.
    """
    from torch._inductor.graph import GraphLowering

    generate: Any = GraphLowering.codegen

    def codegen(graph: Any) -> Any:
        result = generate(graph)
        try:
            _instrument(result[0], graph, recorder_for)
        except Exception as error:  # noqa: BLE001  the program must compile as without us
            not_watched(error)
        return result

    GraphLowering.codegen = codegen  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        GraphLowering.codegen = generate  # type: ignore[method-assign]


def _instrument(program: Any, graph: Any, recorder_for: Recorders) -> None:
    """Put the calls into a program and its map of lines; or raise, and change nothing."""
    wrapper = read_wrapper(program.value)
    recorder, table = recorder_for(graph, wrapper)
    lines = instrumentation(wrapper, table)
    line_map = [(shifted_line(line, lines), each) for line, each in program.line_map]
    program.value = insert_lines(program.value, lines) + _tail(register(recorder))
    program.line_map = line_map


def instrumentation(wrapper: Wrapper, table: KernelTable) -> list[tuple[int, str]]:
    """Lines to add to a program, each with the line before which it goes."""
    lines = [(line, f"{indent}{_NAME}.begin()") for line, indent in wrapper.begins]
    for each in table.writings:
        launch = table.launches[each.launch]
        statement = each.statement
        names: tuple[str, ...] = ()
        if statement is None:  # what the program returns
            first = last = wrapper.ends[0].line
            indent = wrapper.ends[0].indent
        else:
            first, last = statement.first, statement.last + 1
            indent, names = statement.indent, statement.reads
        if each.starts:
            outside = _outside(launch.inputs, names)
            lines.append((first, f"{indent}{_NAME}.read({each.launch}, {outside})"))
        stored = ", ".join(f"{place}: {launch.outputs[place].variable}" for place in each.outputs)
        lines.append((last, f"{indent}{_NAME}.wrote({each.launch}, {{{stored}}})"))
    return lines + [(each.line, f"{each.indent}{_NAME}.end()") for each in wrapper.ends]


def _outside(inputs: Sequence[Stored], names: Sequence[str]) -> str:
    """Inputs of the program that a launch reads, as far as the statement names them."""
    found = dict.fromkeys(
        each.variable for each in inputs if each.outside and each.variable in names
    )
    return "{" + ", ".join(f"{name!r}: {name}" for name in found) + "}"


def _tail(number: int) -> str:
    return (
        "\n\nfrom ait_llm.dump.inductor.recorder import recorder_of as _ait_recorder_of\n"
        f"{_NAME} = _ait_recorder_of({number}, {os.getpid()})\n"
    )
