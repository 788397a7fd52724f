"""Which graphs ran in one call of the model, by what the dump says of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fx_dumps import TIME, write_node
from numpy.typing import NDArray

from ait_llm.dumps import open_dump
from ait_llm.program.compiled import Execution, executions_of
from ait_llm.program.compiled_calls import by_call

Values = NDArray[np.float32]


class Program:
    """Writes the nodes of graphs as they run, without a ledger, as torchair does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._random = np.random.default_rng(0)
        self._steps: dict[int, int] = {}
        self._time = TIME
        self.table, self.other = self.new(9, 4), self.new(7, 4)

    def new(self, *shape: int) -> Values:
        return self._random.standard_normal(shape, dtype=np.float32)

    def graph(self, number: int) -> None:
        """Another execution of a graph begins."""
        self._number = number
        self._steps[number] = self._steps.get(number, -1) + 1

    def node(self, target: str, *inputs: object) -> Values:
        """A node and what it returns: other numbers than those of any other node."""
        result = self.new(3, 4)
        self._time += 1
        folder = self._folder / f"graph_{self._number}" / str(self._steps[self._number])
        place = {str(index): value for index, value in enumerate(inputs)}
        write_node(folder, f"n{self._time - TIME}", target, place, {"0": result}, self._time)
        return result

    def lookup(self, table: Values) -> Values:
        return self.node("aten.embedding.default", table, np.arange(3))

    @property
    def executions(self) -> list[Execution]:
        dump = open_dump(self._folder)
        return executions_of(dump, dump.processes[0])

    @property
    def calls(self) -> list[list[str]]:
        return titles(by_call(self.executions))


def titles(calls: Sequence[Sequence[Execution]]) -> list[list[str]]:
    return [[each.title for each in call] for call in calls]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_what_reads_a_value_of_another_graph_runs_in_its_call(program: Program) -> None:
    for _ in range(2):
        program.graph(1)
        hidden = program.node("aten.tanh.default", program.new(3, 4))
        program.graph(2)
        program.node("aten.tanh.default", hidden)
    assert program.calls == [
        ["graph_1 step 0", "graph_2 step 0"],
        ["graph_1 step 1", "graph_2 step 1"],
    ]


def test_what_runs_between_two_graphs_of_a_call_is_of_it(program: Program) -> None:
    program.graph(1)
    first = program.node("aten.tanh.default", program.new(3, 4))
    program.graph(2)
    second = program.node("aten.tanh.default", program.new(3, 4))
    program.graph(3)
    program.node("aten.add.Tensor", first, second)
    assert program.calls == [["graph_1 step 0", "graph_2 step 0", "graph_3 step 0"]]


def test_what_looks_up_the_same_table_again_is_another_call(program: Program) -> None:
    program.graph(1)
    state = program.node("aten.tanh.default", program.lookup(program.table))
    program.graph(2)
    program.node("aten.add.Tensor", program.lookup(program.table), state)
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_another_table_may_be_looked_up_in_the_same_call(program: Program) -> None:
    program.graph(1)
    first = program.node("aten.tanh.default", program.lookup(program.table))
    program.graph(2)
    program.node("aten.add.Tensor", program.lookup(program.other), first)
    assert program.calls == [["graph_1 step 0", "graph_2 step 0"]]


def test_a_model_that_reads_nothing_of_the_one_before_is_another_call(program: Program) -> None:
    program.graph(1)
    program.node("aten.tanh.default", program.lookup(program.table))
    program.graph(2)
    program.node("aten.tanh.default", program.lookup(program.other))
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_what_looks_up_nothing_goes_on_behind_code_that_was_not_compiled(program: Program) -> None:
    for _ in range(2):
        program.graph(1)
        program.node("aten.tanh.default", program.lookup(program.table))
        program.graph(2)
        program.node("aten.tanh.default", program.new(3, 4))
    assert program.calls == [
        ["graph_1 step 0", "graph_2 step 0"],
        ["graph_1 step 1", "graph_2 step 1"],
    ]


def test_graphs_of_which_nothing_tells_are_calls_of_their_own(program: Program) -> None:
    for number in (1, 2):
        program.graph(number)
        program.node("aten.tanh.default", program.new(3, 4))
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_a_value_that_its_own_graph_has_read_is_a_cache(program: Program) -> None:
    keys = program.new(3, 4)
    for number in (1, 2):
        program.graph(number)
        keys = program.node("aten.add.Tensor", keys, program.new(3, 4))
        program.node("aten.mm.default", program.new(3, 3), keys)
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_what_is_added_to_a_value_of_another_graph_is_a_cache(program: Program) -> None:
    keys = program.new(3, 4)
    for number in (1, 2):
        program.graph(number)
        keys = program.node("aten.cat.default", keys, program.new(3, 4))
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_a_view_of_a_weight_joins_nothing(program: Program) -> None:
    weight = program.new(3, 4)
    program.graph(1)
    turned = program.node("aten.t.default", weight)
    program.node("aten.mm.default", program.new(3, 3), turned)
    program.graph(2)
    program.node("aten.mm.default", program.new(3, 3), turned)
    assert program.calls == [["graph_1 step 0"], ["graph_2 step 0"]]


def test_a_view_of_a_value_does_not_read_it(program: Program) -> None:
    program.graph(1)
    hidden = program.node("aten.tanh.default", program.new(3, 4))
    turned = program.node("aten.t.default", hidden)
    program.graph(2)
    program.node("aten.mm.default", program.new(3, 3), turned)
    assert program.calls == [["graph_1 step 0", "graph_2 step 0"]]


def test_calls_that_the_capture_wrote_down_are_believed(program: Program) -> None:
    for number in (1, 2, 3, 1, 2, 3):
        program.graph(number)
        program.node("aten.tanh.default", program.new(3, 4))
    told = [
        replace(each, model_call=call)
        for each, call in zip(program.executions, (4, 4, 4, 7, 7, 7), strict=True)
    ]
    assert [len(call) for call in by_call(told)] == [3, 3]


def test_models_that_take_turns_in_two_threads_are_told_apart(program: Program) -> None:
    for number in (1, 2, 1, 2):
        program.graph(number)
        program.node("aten.tanh.default", program.new(3, 4))
    told = [
        replace(each, model_call=call)
        for each, call in zip(program.executions, (0, 1, 0, 1), strict=True)
    ]
    assert titles(by_call(told)) == [
        ["graph_1 step 0", "graph_1 step 1"],
        ["graph_2 step 0", "graph_2 step 1"],
    ]


def test_a_backward_pass_goes_with_the_call_whose_values_it_reads(program: Program) -> None:
    for _ in range(2):
        program.graph(1)
        saved = program.node("aten.tanh.default", program.new(3, 4))
        program.graph(2)
        program.node("aten.tanh_backward.default", program.new(3, 4), saved)
    told = [
        replace(each, model_call=call)
        for each, call in zip(program.executions, (0, None, 1, None), strict=True)
    ]
    assert titles(by_call(told)) == [
        ["graph_1 step 0", "graph_2 step 0"],
        ["graph_1 step 1", "graph_2 step 1"],
    ]
