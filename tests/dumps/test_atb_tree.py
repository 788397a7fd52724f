"""Members of a graph, or kernels of an operation: what folder names alone do not say."""

from typing import Any

import pytest
from dump_builder import DumpBuilder

from ait_llm import open_dump


def listing(builder: DumpBuilder) -> dict[str, list[str]]:
    """Kernel names by operation."""
    return {
        f"{each.op_id} {each.type}": [kernel.name for kernel in each.kernels]
        for each in open_dump(builder.root).operations()
    }


def test_children_of_an_operation_with_parameters_are_kernels(builder: DumpBuilder) -> None:
    builder.operation("0_MyThing", params={})
    builder.operation("0_MyThing/0_TransdataOperation")
    assert listing(builder) == {"0 MyThing": ["TransdataOperation"]}


def test_children_of_an_operation_with_named_tensors_are_kernels(builder: DumpBuilder) -> None:
    builder.operation("0_MyThing", after=("intensor0_weight",))
    builder.operation("0_MyThing/0_Unusual")
    assert listing(builder) == {"0 MyThing": ["Unusual"]}


@pytest.mark.parametrize("graph", ["Layer", "GraphOperation", "AttentionOperation"])
def test_child_with_parameters_makes_its_parent_a_graph(builder: DumpBuilder, graph: str) -> None:
    builder.operation(f"0_{graph}")
    builder.operation(f"0_{graph}/0_GatherOperation", params={"axis": 0})
    builder.operation(f"0_{graph}/1_ReshapeAndCacheOperation")
    assert listing(builder) == {
        f"0 {graph}": [],
        "0_0 GatherOperation": [],
        "0_1 ReshapeAndCacheOperation": [],
    }


def test_child_with_named_tensors_makes_its_parent_a_graph(builder: DumpBuilder) -> None:
    builder.operation("0_AttentionOperation")
    builder.operation("0_AttentionOperation/0_GatherOperation", after=("intensor0_x",))
    assert list(listing(builder)) == ["0 AttentionOperation", "0_0 GatherOperation"]


@pytest.mark.parametrize("kernel", ["AddF16Kernel", "AddF32Tactic"])
def test_kernel_names(builder: DumpBuilder, kernel: str) -> None:
    builder.operation("0_Anything")
    builder.operation(f"0_Anything/0_{kernel}")
    assert listing(builder) == {"0 Anything": [kernel]}


def test_unselected_kernel_has_the_name_of_a_library_operation(builder: DumpBuilder) -> None:
    builder.operation("0_LinearOperation")
    builder.operation("0_LinearOperation/0_MatMulOperation")
    assert listing(builder) == {"0 LinearOperation": ["MatMulOperation"]}


def test_members_of_a_graph_without_any_other_evidence(builder: DumpBuilder) -> None:
    builder.operation("0_GraphOperation/0_KvCacheOperation")
    builder.operation("1_Layer/0_KvCacheOperation")
    assert listing(builder) == {"0_0 KvCacheOperation": [], "1_0 KvCacheOperation": []}


def graph(name: str, nodes: list[Any] | None = None) -> dict[str, Any]:
    return {"opName": name, "opType": name} | ({"nodes": nodes} if nodes is not None else {})


def test_reported_graph_decides(builder: DumpBuilder) -> None:
    builder.layer("Layer_3", graph("Layer_3", [graph("OddKernel_3_0"), graph("X_3_1")]))
    builder.operation("3_Layer/0_OddKernel")
    builder.operation("3_Layer/0_OddKernel/0_Inner")
    builder.operation("3_Layer/1_X/0_Y")
    assert listing(builder) == {"3_0 OddKernel": ["Inner"], "3_1 X": ["Y"]}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"nodes": 5}', "[" * 100000])
def test_damaged_graph_is_no_evidence(builder: DumpBuilder, text: str) -> None:
    builder.layer("Layer_3", {}).write_text(text)
    builder.operation("3_Layer/0_LinearOperation")
    assert listing(builder) == {"3_0 LinearOperation": []}
