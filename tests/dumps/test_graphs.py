"""Graph files of a dump."""

from dump_builder import DumpBuilder

from ait_llm import open_dump


def test_layers_and_models_in_natural_order(builder: DumpBuilder) -> None:
    for name in ("Layer_10", "Layer_2", "Embedding_0"):
        builder.layer(name, {})
    (builder.root / "layer" / "4242" / "Layer_2.onnx").write_text("x")
    (builder.root / "model" / "4242").mkdir(parents=True)
    (builder.root / "model" / "4242" / "Llama.json").write_text("{}")
    builder.operation("0_Layer")
    dump = open_dump(builder.root)
    assert [each.name for each in dump.layers] == ["Embedding_0", "Layer_2", "Layer_10"]
    assert [(each.pid, each.name) for each in dump.models] == [(4242, "Llama")]


def test_graphs_of_the_process_that_was_opened(builder: DumpBuilder) -> None:
    builder.layer("A_0", {}, pid="4242")
    builder.layer("B_0", {}, pid="4243")
    builder.operation("0_A")
    (only,) = open_dump(builder.root / "tensors" / "0_4242").layers
    assert only.name == "A_0"
