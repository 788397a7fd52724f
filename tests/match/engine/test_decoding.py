"""Dump files stand for operators of the graph; recorded and composed ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compiled_dumps import CompiledRun, request
from ge_dump_files import FLOAT, of, write_file

from ait_llm.dumps import GeDump, open_dump
from ait_llm.program.compiled import executions_of
from ait_llm.program.ge.decoding import Decoded, decode, share_known
from ait_llm.program.ge.graph import UnfusedGraph, chains_of, graphs_of


def _graphs(dump: GeDump) -> dict[int | None, UnfusedGraph]:
    graphs, problems = graphs_of(dump.graph_files)
    assert not problems
    return {graph.number: graph for graph in graphs}


@pytest.mark.parametrize("name", ["fused", "unfused"])
def test_every_recorded_file_is_exactly_its_operators_and_their_inputs(
    recorded_decoder: dict[str, Path], name: str
) -> None:
    dump = open_dump(recorded_decoder[name])
    assert isinstance(dump, GeDump)
    truth = {
        (each["graph"], each["step"], each["file"]): (each["ops"], each["inputs"])
        for each in json.loads((recorded_decoder[name] / "truth.json").read_text())["files"]
    }
    graphs, found = _graphs(dump), {}
    for execution in executions_of(dump, dump.processes[0]):
        decoded = decode(execution.operations, graphs[execution.number])
        for operation, each in zip(execution.operations, decoded, strict=True):
            assert not each.note
            inputs = [f"{slot.tensor[0]}:{slot.tensor[1]}" for slot in each.inputs if slot]
            key = (f"graph_{execution.number}", execution.step, operation.path.name)
            found[key] = (list(each.parts), inputs)
    assert found == truth


def _decode(run: CompiledRun, folder: Path) -> list[Decoded]:
    dump = open_dump(folder)
    operations = list(dump.operations())
    whole = open_dump(run.root)
    assert isinstance(whole, GeDump)
    [graph] = _graphs(whole).values()
    chains, problems = chains_of(whole.build_graph_files)
    assert not problems
    return decode(operations, graph, chains)


def _with_file(run: CompiledRun, name: str, inputs: int, outputs: int, **origin: object) -> Decoded:
    """What a file of so many tensors is, among those of the model."""
    folder = run.ge(request())
    for file in folder.iterdir():
        file.unlink()
    run.graph()
    one = np.float32([1.0, 2.0])
    write_file(
        folder / f"{name}.1.2.1732533825000000",
        [of(one, FLOAT)] * inputs,
        [of(one, FLOAT, **origin)] * outputs,
    )
    [decoded] = _decode(run, folder)
    return decoded


def test_a_control_edge_is_no_input_and_a_fused_one_repeats_what_it_reads_twice(
    mine: CompiledRun,
) -> None:
    folder = mine.ge(request())
    mine.graph()
    found = _decode(mine, folder)
    assert [each.parts for each in found] == [
        ("Cast",), ("Mul", "Cast_1"), ("TopKV2",), ("Cast_2",)
    ]  # fmt: skip
    reads = [[slot.tensor for slot in each.inputs if slot] for each in found]
    assert reads[1] == [("Cast", 0), ("Cast", 0)]
    assert reads[2] == [("Cast_1", 0), ("Const", 0)]
    assert found[2].outputs == (("TopKV2", 0), ("TopKV2", 1))


def test_a_tensor_that_is_fed_once_for_several_parts(mine: CompiledRun) -> None:
    found = _with_file(mine, "AutomaticBufferFusionOp.MulCast_1", 1, 1)
    assert [slot.tensor for slot in found.inputs if slot] == [("Cast", 0)]
    assert not found.note


def test_a_constant_that_the_engine_took_into_the_operator(mine: CompiledRun) -> None:
    found = _with_file(mine, "TopKV2.TopKV2", 1, 2)
    assert [slot.tensor for slot in found.inputs if slot] == [("Cast_1", 0)]


def test_inputs_that_no_rule_explains_are_told_and_not_guessed(mine: CompiledRun) -> None:
    found = _with_file(mine, "AutomaticBufferFusionOp.MulCast_1", 5, 1)
    assert found.inputs == (None,) * 5
    assert found.outputs == (("Cast_1", 0),)
    assert found.note == "2 inputs expected, the file has 5"


def test_an_operator_that_is_not_in_the_graph(mine: CompiledRun) -> None:
    found = _with_file(mine, "Foo.Bar", 1, 1)
    assert not found.is_known
    assert found.note == "operator Bar is not in the graph"
    assert share_known([found]) == 0


def test_an_operator_that_the_engine_inserted(mine: CompiledRun) -> None:
    found = _with_file(mine, "TransData.trans_TransData_14", 1, 1)
    assert found.inserted
    assert not found.is_known


def test_a_shortened_name_is_known_by_what_the_file_says_of_its_outputs(mine: CompiledRun) -> None:
    found = _with_file(mine, "Fused.Mul_ub_fusion", 2, 1, origin=("Cast_1", 0))
    assert found.parts == ("Mul", "Cast_1")
    assert found.inputs == (None, None)
    assert found.outputs == (("Cast_1", 0),)
    assert "shortened" in found.note


def test_the_file_knows_better_than_its_name_where_an_output_comes_from(mine: CompiledRun) -> None:
    found = _with_file(mine, "Mul.Mul", 2, 1, origin=("Cast_1", 0))
    assert found.outputs == (("Cast_1", 0),)


def _built(run: CompiledRun, *chains: tuple[str, str], number: int = 1) -> None:
    """The engine's own graph: names of operators and of what each was made from."""
    ops = ""
    for name, originals in chains:
        values = " ".join(f's: "{each}"' for each in originals.split())
        key = 'key: "_datadump_original_op_names"'
        ops += f'op {{ name: "{name}" type: "X" attr {{ {key} value {{ list {{ {values} }} }} }} }}'
    run.root.mkdir(exist_ok=True)
    path = run.root / f"ge_proto_0000000{number}_graph_{number}_PreRunAfterBuild.txt"
    path.write_text(f'name: "m" graph {{ name: "graph_1" {ops} }}')


def test_what_the_engine_recorded_counts_more_than_a_name(mine: CompiledRun) -> None:
    _built(mine, ("Mul_ub_fusion", "Mul Cast_1"))
    found = _with_file(mine, "Fused.Mul_ub_fusion", 2, 1)
    assert found.parts == ("Mul", "Cast_1")
    assert [slot.tensor for slot in found.inputs if slot] == [("Cast", 0), ("Cast", 0)]
    assert not found.note


def test_an_operator_that_the_engine_says_it_inserted(mine: CompiledRun) -> None:
    _built(mine, ("Pad", ""))
    assert _with_file(mine, "Pad.Pad", 1, 1).inserted


def test_a_name_of_two_meanings_is_not_taken_for_either(mine: CompiledRun) -> None:
    _built(mine, ("Mul_ub_fusion", "Mul Cast_1"))
    _built(mine, ("Mul_ub_fusion", "Mul TopKV2"), number=2)
    assert "shortened" in _with_file(mine, "Fused.Mul_ub_fusion", 2, 1).note
