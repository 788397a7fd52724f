"""Graphs built with both builders, run through the native runtime, against torch."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import ait_llm.hostatb as torch_atb
from ait_llm.core import OpId
from ait_llm.errors import OperationError

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
Elewise = torch_atb.ElewiseParam.ElewiseType


def elewise(kind: Elewise) -> torch_atb.Operation:
    return torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=kind))


def add() -> torch_atb.Operation:
    return elewise(Elewise.ELEWISE_ADD)


def mul() -> torch_atb.Operation:
    return elewise(Elewise.ELEWISE_MUL)


def linear() -> torch_atb.Operation:
    return torch_atb.Operation(torch_atb.LinearParam(has_bias=False))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def flatten(shape: list[int]) -> list[int]:
    return [1, shape[0] * shape[1]]


def by_names() -> torch_atb.Operation:
    return (
        torch_atb.GraphBuilder("Graph")
        .set_input_output(["x", "y", "z"], ["out"])
        .add_operation(add(), ["x", "y"], ["add_out"])
        .reshape("add_out", flatten, "add_out_")
        .add_operation(mul(), ["add_out_", "z"], ["out"])
        .build()
    )


def by_nodes() -> torch_atb.Operation:
    builder = torch_atb.Builder("Graph")
    x, y = builder.add_input("x"), builder.add_input("y")
    param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD)
    total = builder.add_node([x, y], param).get_output(0)
    z = builder.add_input("z")
    builder.reshape(total, flatten, "add_out_")
    node = builder.add_node(["add_out_", z], mul())
    builder.mark_output(node.get_output(0))
    return builder.build()


@pytest.mark.parametrize("build", [by_names, by_nodes])
def test_graph_with_a_reshaped_tensor_equals_torch(
    build: Callable[[], torch_atb.Operation],
) -> None:
    graph = build()
    assert repr(graph) == "op name: Graph, input_num: 3, output_num: 1"
    for rows in (2, 5):
        x, y, z = randn(rows, 3), randn(rows, 3, seed=1), randn(1, rows * 3, seed=2)
        (output,) = graph.forward([x, y, z])
        assert torch.equal(output, (x + y).view(1, -1) * z)


def test_names_of_node_outputs_are_those_of_torch_atb() -> None:
    builder = torch_atb.Builder("Graph")
    x = builder.add_input("x")
    split = builder.add_node([x], torch_atb.SplitParam())
    assert split.outTensorIds == [
        "node0_outTensor0_SplitOperation",
        "node0_outTensor1_SplitOperation",
    ]
    assert split.get_output(1) == split.outTensorIds[1]
    assert split.inTensorIds == ["x"]
    with pytest.raises(IndexError, match="has 2 outputs, not number 2"):
        split.get_output(2)
    split.set_stream_id(1)
    assert split.get_stream_id() == 1


def test_views_of_views_combine() -> None:
    graph = (
        torch_atb.GraphBuilder("Views")
        .set_input_output(["x", "w"], ["out"])
        .reshape("x", lambda shape: [shape[0], shape[1], 4, 8], "heads")
        .reshape("heads", lambda shape: [shape[0] * shape[1], shape[2] * shape[3]], "tokens")
        .add_operation(linear(), ["tokens", "w"], ["out"])
        .build()
    )
    x, weight = randn(2, 3, 32), randn(5, 32, seed=1)
    (output,) = graph.forward([x, weight])
    expected = functional.linear(x.view(6, 32).float(), weight.float())
    torch.testing.assert_close(output.float(), expected, rtol=1e-3, atol=1e-2)


def mlp() -> torch_atb.Operation:
    swish = torch_atb.ActivationParam(activation_type=4)
    return (
        torch_atb.GraphBuilder("Mlp")
        .set_input_output(["x", "w"], ["out"])
        .add_operation(linear(), ["x", "w"], ["hidden"])
        .add_operation(torch_atb.Operation(swish), ["hidden"], ["out"])
        .build()
    )


def layer() -> torch_atb.Operation:
    """``x + mlp(rms_norm(x))``, twice."""
    norm = torch_atb.RmsNormParam(layer_type=1)
    return (
        torch_atb.GraphBuilder("Demo_layer")
        .set_input_output(["x", "gamma", "w"], ["out"])
        .add_operation(torch_atb.Operation(norm), ["x", "gamma"], ["normed"])
        .add_operation(mlp(), ["normed", "w"], ["mlp"])
        .add_operation(add(), ["x", "mlp"], ["middle"])
        .add_operation(mlp(), ["middle", "w"], ["second"])
        .add_operation(add(), ["middle", "second"], ["out"])
        .build()
    )


def torch_layer(x: Tensor, gamma: Tensor, weight: Tensor) -> Tensor:
    normed = functional.rms_norm(x, (x.shape[-1],), gamma, 1e-5)
    middle = x + functional.silu(functional.linear(normed, weight))
    return middle + functional.silu(functional.linear(middle, weight))


def test_nested_graphs_equal_torch_over_many_runs() -> None:
    graph = layer()
    gamma, weight = randn(32, seed=1), randn(32, 32, seed=2) / 8
    for step, rows in enumerate((4, 1, 1, 4)):
        x = randn(rows, 32, seed=step)
        (output,) = graph.forward([x, gamma, weight])
        expected = torch_layer(x.float(), gamma.float(), weight.float())
        torch.testing.assert_close(output.float(), expected, rtol=1e-2, atol=1e-2)
    assert graph._clock.step == 3


def test_built_graph_is_a_node_of_builder() -> None:
    builder = torch_atb.Builder("Bigger")
    x, w = builder.add_input("x"), builder.add_input("w")
    inner = builder.add_node([x, w], mlp())
    total = builder.add_node([x, inner.get_output(0)], add())
    builder.mark_output(total.get_output(0))
    xs, ws = randn(4, 32), randn(32, 32, seed=1) / 8
    (output,) = builder.build().forward([xs, ws])
    expected = xs.float() + functional.silu(functional.linear(xs.float(), ws.float()))
    torch.testing.assert_close(output.float(), expected, rtol=1e-2, atol=1e-2)


def test_leaves_know_their_ids_layers_and_steps() -> None:
    model = torch_atb.GraphBuilder("Model").set_input_output(["x", "gamma", "w"], ["out"])
    model.add_operation(layer(), ["x", "gamma", "w"], ["hidden"])
    model.add_operation(layer(), ["hidden", "gamma", "w"], ["out"])
    graph = model.build()
    graph.forward([randn(2, 32), randn(32), randn(32, 32) / 8])
    assert graph.op_id is not None
    swish = graph._children[1]._children[3]._children[1]._leaf
    assert swish is not None
    assert swish.site.op_id == OpId((*graph.op_id.parts, 1, 3, 1))
    assert (swish.site.layer, swish.site.clock.step) == (1, 0)
    graph.forward([randn(2, 32), randn(32), randn(32, 32) / 8])
    assert swish.site.clock.step == 1


def test_top_level_layers_of_one_name_are_counted() -> None:
    inputs = [randn(2, 32), randn(32), randn(32, 32) / 8]
    layers = [layer() for _ in range(3)]
    for each in layers:
        each.forward(inputs)
    sites = [each._children[0]._leaf.site for each in layers if each._children[0]._leaf]
    first = sites[0].layer
    assert first is not None
    assert [site.layer for site in sites] == [first, first + 1, first + 2]


def cache_graph() -> torch_atb.Operation:
    """Writes into the caches, then adds one to the key cache of this step."""
    names = ["key", "value", "k_cache", "v_cache", "slots"]
    return (
        torch_atb.GraphBuilder("Cache")
        .set_input_output(names, ["out"])
        .add_operation(
            torch_atb.Operation(torch_atb.ReshapeAndCacheParam()), names, ["k_cache", "v_cache"]
        )
        .add_operation(add(), ["k_cache", "v_cache"], ["out"])
        .build()
    )


def cache_inputs() -> list[Tensor]:
    return [
        randn(2, 2, 16),
        randn(2, 2, 16, seed=1),
        randn(3, 4, 2, 16, seed=2),
        randn(3, 4, 2, 16, seed=3),
        torch.tensor([5, 2], dtype=torch.int32),
    ]


def test_graph_changes_caches_in_place_before_later_nodes_read_them() -> None:
    inputs = cache_inputs()
    (output,) = cache_graph().forward(inputs)
    assert torch.equal(inputs[2][1, 1], inputs[0][0])
    assert torch.equal(output, inputs[2] + inputs[3])


def test_non_contiguous_cache_of_a_graph_is_changed_in_place() -> None:
    inputs = cache_inputs()
    inputs[2] = torch.zeros(3, 4, 2, 32, dtype=torch.float16)[..., ::2]
    cache_graph().forward(inputs)
    assert torch.equal(inputs[2][1, 1], inputs[0][0])


def test_builder_keeps_caches_in_their_memory() -> None:
    builder = torch_atb.Builder("Cache")
    names = [builder.add_input(name) for name in ("key", "value", "k", "v", "slots")]
    caches = builder.add_node(names, torch_atb.ReshapeAndCacheParam())
    total = builder.add_node([caches.get_output(0), caches.get_output(1)], add())
    builder.mark_output(total.get_output(0))
    inputs = cache_inputs()
    (output,) = builder.build().forward(inputs)
    assert torch.equal(inputs[2][0, 2], inputs[0][1])
    assert torch.equal(output, inputs[2] + inputs[3])


def test_marked_cache_is_returned_as_the_input_itself() -> None:
    builder = torch_atb.Builder("Cache")
    names = [builder.add_input(name) for name in ("key", "value", "k", "v", "slots")]
    caches = builder.add_node(names, torch_atb.ReshapeAndCacheParam())
    builder.mark_output(caches.get_output(0))
    inputs = cache_inputs()
    (output,) = builder.build().forward(inputs)
    assert output.data_ptr() == inputs[2].data_ptr()
    assert torch.equal(output[1, 1], inputs[0][0])
    assert torch.equal(inputs[3][1, 1], inputs[1][0])


def test_operation_in_a_graph_cannot_run_alone_or_join_another() -> None:
    operation = add()
    builder = torch_atb.GraphBuilder("First").set_input_output(["x"], ["out"])
    builder.add_operation(operation, ["x", "x"], ["out"])
    with pytest.raises(OperationError, match="is in graph 'First' already"):
        builder.add_operation(operation, ["x", "x"], ["out"])
    builder.build()
    with pytest.raises(OperationError, match="is a node of graph 'First' and cannot run"):
        operation.forward([randn(2, 2), randn(2, 2)])
    other = torch_atb.GraphBuilder("Second").set_input_output(["x"], ["out"])
    with pytest.raises(OperationError, match="is a node of a graph already"):
        other.add_operation(operation, ["x", "x"], ["out"]).build()


def test_mistakes_in_graphs_are_named() -> None:
    builder = torch_atb.GraphBuilder("Wrong").set_input_output(["x"], ["out"])
    with pytest.raises(OperationError, match="ElewiseOperation has 2 inputs, 1 are"):
        builder.add_operation(add(), ["x"], ["out"])
    builder.add_operation(add(), ["x", "nothing"], ["out"])
    with pytest.raises(OperationError, match="reads 'nothing', which is neither an input nor"):
        builder.build()
    with pytest.raises(OperationError, match="has two tensors named 'x'"):
        torch_atb.GraphBuilder("Twice").set_input_output(["x"], ["x"])
    with pytest.raises(OperationError, match="has 257 input tensors; at most 256 fit"):
        torch_atb.GraphBuilder("Large").set_input_output([f"x{i}" for i in range(257)], [])
    with pytest.raises(OperationError, match="'y' is no output of a node"):
        torch_atb.Builder("Marks").mark_output("y")


def test_reshape_to_another_size_is_refused() -> None:
    graph = (
        torch_atb.GraphBuilder("Wrong")
        .set_input_output(["x"], ["out"])
        .reshape("x", lambda shape: [shape[0] + 1], "view")
        .add_operation(add(), ["view", "view"], ["out"])
        .build()
    )
    with pytest.raises(OperationError, match="cannot be seen as"):
        graph.forward([randn(4)])


def test_failing_reshape_keeps_its_own_message() -> None:
    graph = (
        torch_atb.GraphBuilder("Wrong")
        .set_input_output(["x"], ["out"])
        .reshape("x", lambda shape: [shape[7]], "view")
        .add_operation(add(), ["view", "view"], ["out"])
        .build()
    )
    with pytest.raises(OperationError, match="list index out of range"):
        graph.forward([randn(4)])


def test_model_topology_is_written_as_recorded() -> None:
    topology = torch_atb.ModelTopology("DemoModel")
    topology.add_tensors("input", ["ids"])
    topology.add_tensors("weight", ["w0", "w1", "w2", "w3"])
    topology.add_tensors("internal", ["hidden"])
    topology.add_tensors("output", ["logits"])
    topology.add_node("DecoderLayer", ["ids", "w0", "w1"], ["hidden"])
    topology.add_node("DecoderLayer", ["hidden", "w2", "w3", "unnamed"], ["logits"])
    assert topology.to_json() == (
        '{"inTensors":["DemoModel_input_0"],"internalTensors":["DemoModel_internal_0"],'
        '"modelName":"DemoModel","nodes":[{"inTensors":["DemoModel_input_0","DemoModel_weight_0",'
        '"DemoModel_weight_1"],"opName":"DecoderLayer","outTensors":["DemoModel_internal_0"]},'
        '{"inTensors":["DemoModel_internal_0","DemoModel_weight_2","DemoModel_weight_3"],'
        '"opName":"DecoderLayer","outTensors":["DemoModel_output_0"]}],'
        '"outTensors":["DemoModel_output_0"],"weightTensors":["DemoModel_weight_0",'
        '"DemoModel_weight_1","DemoModel_weight_2","DemoModel_weight_3"]}'
    )
    with pytest.raises(OperationError, match="unknown kind of model tensor 'bias'; known: input"):
        topology.add_tensors("bias", ["b"])
    torch_atb.report_model("DemoModel", topology)  # no probe: asked, and not wanted
    torch_atb.report_model("DemoModel", json.loads(topology.to_json()))
