"""Values live from the operator that computes them to the last one that reads them."""

from __future__ import annotations

from pathlib import Path

import torch
from graph_dumps import GraphDump

from ait_llm.dumps import open_dump
from ait_llm.program.passes import passes_of
from ait_llm.replay.program import Program, program_of
from ait_llm.replay.values import Values


def _program(folder: Path) -> Program:
    dump = open_dump(GraphDump(folder / "ait_dump").write())
    (run,) = passes_of(dump, dump.processes[0])
    return program_of(run)


def test_a_value_is_let_go_after_its_last_reader(tmp_path: Path) -> None:
    program = _program(tmp_path)
    values = Values(program)
    held = []
    for unit in program.operators:
        for key in unit.outputs:
            assert key is not None
            values.keep(key, torch.zeros(1))
        values.read(unit.inputs)
        held.append({name for name, _ in values.computed})
    layer = {"Tiny_internal_0"}
    # The product is read by the sum; the sum of the first layer by both operators of the second.
    assert held == [{"Layer_0_internal_0"}, layer, {"Layer_1_internal_0"} | layer, set()]


def test_a_graph_names_each_value_once_through_all_its_levels(tmp_path: Path) -> None:
    program = _program(tmp_path)
    units = {unit.name: unit for unit in program.units}
    assert units["Layer_0"].outputs == units["ElewiseOperation_0_1"].outputs
    assert units["Layer_1"].inputs[0] == units["Layer_0"].outputs[0]
    kinds = {name: kind for (name, _), kind in program.kinds.items()}
    assert kinds == {
        "Tiny_input_0": "input",
        "Tiny_weight_0": "weight",
        "Tiny_weight_1": "weight",
    }


def test_a_name_that_is_written_again_is_another_value(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    model = graph.root / "model" / "4242" / "Tiny.json"
    # The second layer writes into what it reads, as a cache operator does.
    model.write_text(model.read_text().replace("Tiny_output_0", "Tiny_internal_0"))
    dump = open_dump(graph.root)
    (run,) = passes_of(dump, dump.processes[0])
    units = {unit.name: unit for unit in program_of(run).units}
    assert units["ElewiseOperation_1_1"].inputs[1] == ("Tiny_internal_0", 1)
    assert units["ElewiseOperation_1_1"].outputs == (("Tiny_internal_0", 2),)
    assert units["ElewiseOperation_1_1"].overwritten == {1}
