from __future__ import annotations

import lzma
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ge_proto
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import DType
from ait_llm.errors import FormatError
from ait_llm.topology import (
    FxOrigin,
    GeGraphFile,
    GeOp,
    proto_text,
    read_ge_graph,
    stream_ge_ops,
)

pytest.importorskip("google.protobuf")

TORCHAIR = Path(__file__).parents[1] / "data" / "torchair"
RECORDED = sorted(TORCHAIR.glob("dynamo_*txt.xz"))

# y = x.float(); topk(y * y, 3), by hand: one FX node becomes several operators
TOPK = r"""
name: "graph_1"
op { name: "arg0_1" type: "Data" attr { key: "index" value { i: 0 } }
     output_desc { name: "y" dtype: DT_FLOAT16 shape { dim: 1 dim: -1 dim: 32 } layout: "ND" } }
op { name: "Cast" type: "Cast" input: "arg0_1:0" attr { key: "dst_type" value { i: 0 } }
     output_desc { name: "y" dtype: DT_FLOAT
       attr { key: "_fx_tensor_name" value { s: "_to_copy-aten._to_copy.default.OUTPUT.0" } } } }
op { name: "Mul" type: "Mul" input: "Cast:0" input: "Cast:0" output_desc { name: "y" } }
op { name: "Cast_1" type: "Cast" input: "Mul:0" attr { key: "dst_type" value { i: 0 } }
     output_desc { name: "y" dtype: DT_FLOAT
       attr { key: "_fx_tensor_name" value { s: "mul_5-aten.mul.Tensor.OUTPUT.0" } } } }
op { name: "Const" type: "Const"
     attr { key: "value" value { t { desc { dtype: DT_INT64 shape { } layout: "ND" }
                                     data: "\003\000\000\000\000\000\000\000" } } }
     output_desc { dtype: DT_INT64 shape { } layout: "ND" } }
op { name: "TopKV2" type: "TopKV2" input: "Cast_1:0" input: "" input: "Const:0" input: "Mul:-1"
     output_desc { name: "values"
       attr { key: "_fx_tensor_name" value { s: "topk-aten.topk.default.OUTPUT.0" } } }
     output_desc { name: "indices" } }
op { name: "Cast_2" type: "Cast" input: "TopKV2:1" attr { key: "dst_type" value { i: 9 } }
     output_desc { name: "y" dtype: DT_INT64
       attr { key: "_fx_tensor_name" value { s: "topk-aten.topk.default.OUTPUT.1" } } } }
op { name: "NetOutput" type: "NetOutput" input: "TopKV2:0" input: "Cast_2:0" }
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "dynamo_original_graph.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(params=RECORDED, ids=lambda path: path.name.split("_rank")[0] + path.suffixes[-2])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that torchair wrote."""
    source: Path = request.param
    path = tmp_path / source.name.removesuffix(".xz")
    path.write_bytes(lzma.decompress(source.read_bytes()))
    return path


def same_name(extension: str, kind: str, tmp_path: Path) -> Path:
    (source,) = TORCHAIR.glob(f"dynamo_{kind}_graph_1_*.{extension}.xz")
    path = tmp_path / source.name.removesuffix(".xz")
    path.write_bytes(lzma.decompress(source.read_bytes()))
    return path


def expected_value(attr: Any) -> Any:
    """An ``AttrDef`` of the protobuf library as our reader gives it."""
    kind = attr.WhichOneof("value")
    value = getattr(attr, kind) if kind else None
    if kind == "s":
        return value.decode("utf-8", "backslashreplace")
    if kind == "f":
        return pytest.approx(value)  # printed with as many digits as a float32 needs
    if kind == "list_list_int":
        return tuple(tuple(row.list_i) for row in value.list_list_i)
    if kind == "list":
        if value.s:
            return tuple(item.decode("utf-8", "backslashreplace") for item in value.s)
        if value.dt:
            return tuple(value.dt)
        return pytest.approx(tuple(value.f)) if value.f else tuple(value.i) or tuple(value.b)
    return value


def _data_type(number: int) -> str:
    return next(name for name, n in ge_proto._DATA_TYPES.items() if n == number)


def assert_same(op: GeOp, expected: Any) -> None:
    assert (op.name, op.type) == (expected.name, expected.type)
    assert list(op.ports) == [desc.name for desc in expected.input_desc]
    edges = [edge.rpartition(":") for edge in expected.input]
    assert list(op.controls) == [name for name, _, index in edges if index == "-1"]
    slots = [(name, index) for name, _, index in edges if index != "-1"]
    assert op.inputs == tuple((name, int(index)) for name, index in slots if name)
    assert op.slots == tuple(number for number, (name, _) in enumerate(slots) if name)
    for entry in expected.attr:
        if not entry.value.HasField("t"):
            assert op.attrs[entry.key] == expected_value(entry.value), entry.key
    assert len(op.outputs) == len(expected.output_desc)
    for tensor, desc in zip(op.outputs, expected.output_desc, strict=True):
        assert (tensor.name, tensor.layout) == (desc.name, desc.layout)
        assert tensor.dtype_name == (_data_type(desc.dtype) if desc.dtype else "")
        assert tensor.shape == (tuple(desc.shape.dim) if desc.HasField("shape") else None)
        texts = {entry.key: entry.value.s.decode() for entry in desc.attr}
        name = texts.pop("_fx_tensor_name", None)
        assert tensor.origin == (FxOrigin.parse(name) if name else None)
        assert {key: tensor.attrs[key] for key in texts} == texts


@pytest.mark.parametrize(
    "recorded",
    [path for path in RECORDED if path.suffixes[-2] == ".txt"],
    ids=lambda path: path.name.split("_rank")[0],
    indirect=True,
)
def test_files_of_torchair_are_read_as_the_protobuf_library_reads_them(recorded: Path) -> None:
    expected = ge_proto.parse(recorded.read_text())
    graph = read_ge_graph(recorded)
    assert (graph.name, len(graph.ops)) == (expected.name, len(expected.op))
    for op, other in zip(graph.ops, expected.op, strict=True):
        assert_same(op, other)


@pytest.mark.parametrize("kind", ["original", "optimized"])
def test_both_forms_of_one_graph_hold_the_same_operators(kind: str, tmp_path: Path) -> None:
    text, pbtxt = (read_ge_graph(same_name(form, kind, tmp_path)) for form in ("txt", "pbtxt"))
    assert text.name == "graph_1"
    assert pbtxt.name == ""  # this form has no place for it
    assert [op.outputs for op in pbtxt.ops] == [op.outputs for op in text.ops]
    assert pbtxt.ops == text.ops


def test_every_recorded_input_leads_to_an_output(recorded: Path) -> None:
    graph = read_ge_graph(recorded)
    edges = [edge for op in graph.ops for edge in op.inputs]
    assert len(edges) > 300
    assert all(index < len(graph.by_name[name].outputs) for name, index in edges)


def test_names_of_fx_tensors_stay_with_the_output_that_holds_them(write: Write) -> None:
    graph = read_ge_graph(write(TOPK))
    origins = {
        (op.name, index): (tensor.origin.node, tensor.origin.path)
        for op in graph.ops
        for index, tensor in enumerate(op.outputs)
        if tensor.origin
    }
    assert origins == {
        ("Cast", 0): ("_to_copy", (0,)),
        ("Cast_1", 0): ("mul_5", (0,)),
        ("TopKV2", 0): ("topk", (0,)),
        ("Cast_2", 0): ("topk", (1,)),
    }


def test_control_edges_and_missing_inputs_are_kept_apart_from_data(write: Write) -> None:
    graph = read_ge_graph(write(TOPK))
    topk = graph.by_name["TopKV2"]
    assert topk.inputs == (("Cast_1", 0), ("Const", 0))
    assert topk.slots == (0, 2)
    assert topk.controls == ("Mul",)
    assert [op.name for op in graph.consumers["Mul", 0]] == ["Cast_1"]
    assert [op.name for op in graph.consumers["Cast", 0]] == ["Mul"]


def test_types_shapes_and_constants_are_described(write: Write) -> None:
    graph = read_ge_graph(write(TOPK))
    assert graph.name == "graph_1"
    data, cast, mul = graph.ops[:3]
    assert (data.outputs[0].dtype, data.outputs[0].shape) == (DType.FLOAT16, (1, -1, 32))
    assert (cast.outputs[0].dtype, cast.outputs[0].shape) == (DType.FLOAT32, None)
    assert (mul.outputs[0].dtype, mul.outputs[0].dtype_name) == (None, "")
    value: Any = graph.by_name["Const"].attrs["value"]
    assert (value.dtype, value.shape) == (DType.INT64, ())


def test_pbtxt_of_a_graph_equals_its_text(write: Write) -> None:
    expected = ge_proto.parse(TOPK)
    assert read_ge_graph(write(ge_proto.to_pbtxt(expected))).ops == read_ge_graph(write(TOPK)).ops


def test_graph_of_the_engine_tells_what_each_operator_was_fused_from(write: Write) -> None:
    text = """
    name: "ge_default"  version: 1
    graph {
      name: "ge_default_1"
      op { name: "MulCast_1" type: "AutomaticBufferFusionOp" input: "Cast:0"
           attr { key: "_datadump_original_op_names" value { list { s: "Mul" s: "Cast_1" } } }
           output_desc { attr { key: "_datadump_origin_name" value { s: "Cast_1" } }
                         attr { key: "_datadump_origin_output_index" value { i: 0 } } } }
      op { name: "trans_TransData_14" type: "TransData"
           attr { key: "_datadump_original_op_names" value { list { val_type: 1 } } } }
      op { name: "Data" type: "Data" }
    }
    graph { name: "body" op { name: "Data" type: "Data" } }
    attr { key: "target" value { s: "ASCEND" } }
    """
    graph = read_ge_graph(write(text))
    assert graph.name == "ge_default_1"
    assert [op.original_ops for op in graph.ops] == [("Mul", "Cast_1"), (), None]
    assert graph.ops[0].outputs[0].attrs["_datadump_origin_name"] == "Cast_1"
    assert [(sub.name, len(sub.ops)) for sub in graph.subgraphs] == [("body", 1)]


NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters='":^'), min_size=1, max_size=20
)
TEXTS = st.one_of(
    st.sampled_from([": ", " {", "}", '"', "\\", "'", 'a: "b" { c }', "é中\U0001f600", "\n  }\n"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    graph = ge_proto.new("GraphDef", name=draw(TEXTS))
    for name in names:
        op = graph.op.add(name=name, type=draw(st.sampled_from(["Add", "TopKV2"])))
        edges = st.builds("{}:{}".format, st.sampled_from(names), st.sampled_from([-1, 0, 1, 12]))
        op.input.extend(draw(st.lists(st.one_of(st.just(""), edges), max_size=4)))
        for key in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4)):
            value = op.attr.add(key=key).value
            kind = draw(st.sampled_from(["s", "bytes", "i", "f", "b", "list", "rows", "dt", ""]))
            if kind == "s":
                value.s = draw(TEXTS.filter(bool)).encode()
            elif kind == "bytes":
                value.s = draw(st.binary(min_size=1, max_size=20))
            elif kind == "i":
                value.i = draw(st.integers(-(2**63), 2**63 - 1))
            elif kind == "f":
                value.f = draw(st.floats(width=32, allow_nan=False))
            elif kind == "b":
                value.b = draw(st.booleans())
            elif kind == "list":
                value.list.s.extend(text.encode() for text in draw(st.lists(TEXTS, max_size=3)))
            elif kind == "rows":
                for row in draw(st.lists(st.lists(st.integers(-9, 9), max_size=3), min_size=1)):
                    value.list_list_int.list_list_i.add(list_i=row)
            elif kind == "dt":
                value.dt = 27
        for index in range(draw(st.integers(0, 2))):
            op.input_desc.add(name=f"x{index}")
            desc = op.output_desc.add(name=draw(st.sampled_from(["y", ""])), dtype=27)
            desc.shape.dim.extend(draw(st.lists(st.integers(-2, 2**40), max_size=3)))
            desc.attr.add(key="_meta").value.s = draw(TEXTS.filter(bool)).encode()
    return graph


@given(graphs(), st.booleans(), st.booleans(), st.sampled_from([7, 64, 1 << 18]))
@settings(deadline=None, max_examples=60)
def test_any_graph_that_protobuf_prints_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, graph: Any, one_line: bool, utf8: bool, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "graph.txt"
    path.write_text(ge_proto.to_text(graph, one_line=one_line, utf8=utf8), newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proto_text, "CHUNK_BYTES", chunk)
        read = read_ge_graph(path)
    assert read.name == graph.name
    assert len(read.ops) == len(graph.op)
    for op, expected in zip(read.ops, graph.op, strict=True):
        assert_same(op, expected)


@given(graphs())
@settings(deadline=None, max_examples=30)
def test_any_graph_that_torchair_prints_as_pbtxt_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, graph: Any
) -> None:
    for number, op in enumerate(
        graph.op
    ):  # torchair does not escape names, so its own have no need
        op.name, renamed = f"op{number}", op.name
        for other in graph.op:
            other.input[:] = [
                f"op{number}:{edge.rpartition(':')[2]}" if edge.startswith(f"{renamed}:") else edge
                for edge in other.input
            ]
    path = tmp_path_factory.mktemp("any") / "graph.pbtxt"
    path.write_text(ge_proto.to_pbtxt(graph), newline="")
    for op, expected in zip(read_ge_graph(path).ops, graph.op, strict=True):
        assert_same(op, expected)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'"caf\303\251 \x41\u00e9\U0001F600 \"\'\\\n"', "café Aé\U0001f600 \"'\\\n"),
        ("'single \\' \" quotes'", "single ' \" quotes"),
        ("\"a: {\" \n  '} b'", "a: {} b"),
        (r'"\377"', "\\xff"),
    ],
)
def test_escapes_and_adjacent_strings(write: Write, written: str, value: str) -> None:
    text = f'op <name: "A", type: "B"; attr: {{ key: "k" value {{ s: {written} }} }} >'
    for chunk in (1, 5, 1 << 18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proto_text, "CHUNK_BYTES", chunk)
            assert read_ge_graph(write(text)).ops[0].attrs["k"] == value


def test_comments_and_lists_in_brackets(write: Write) -> None:
    text = """# written by hand: op { name
    op { name: "A" # }
      type: "B" input: ["x:0", 'y:1'] attr { key: "f" value { list { f: [-inf, 1.5f, 2] } } }
      output_desc { shape { dim: [2, -1] } } }
    """
    (op,) = read_ge_graph(write(text)).ops
    assert op.inputs == (("x", 0), ("y", 1))
    assert op.attrs["f"] == (float("-inf"), 1.5, 2.0)
    assert op.outputs[0].shape == (2, -1)


def test_equal_text_at_another_depth_is_not_taken_for_a_message(write: Write) -> None:
    # The first line with one brace closes the inner message here: layout alone tells nothing.
    piece = 'attr {\n  key: "k"\n  value {\n  i: 1\n  }\n  }\n'
    text = "".join(f'op {{\n  name: "{name}"\n  type: "T"\n  {piece}}}\n' for name in "AB")
    assert [op.attrs for op in read_ge_graph(write(text)).ops] == [{"k": 1}, {"k": 1}]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('name: "g"\nop {\n  type: "A"\n}\n', 4, "has no name"),
        ('op {\n  name: "A"\n}\n', 3, "'A' that ends here has no type"),
        ('op {\n  name: "A\n  type: "B"\n}\n', 2, "not protobuf text format"),
        ('op {\n  name: "A"\n  type "B"\n}\n', 3, "not protobuf text format"),
        ('name: "g"\n}\n', 2, "was not opened"),
        ('op {\n  name: "A"\n', 3, "ends within the message 'op'"),
        ("graph {\n", 2, "ends within a message"),
        (
            'op {\n  name: "A"\n  type: "B"\n  attr {\n    key: "k"\n value { i: 1.5 }\n  }\n}\n',
            7,
            "k: ",
        ),
        (
            'op { name: "A" type: "B" }\nattr { key: "k" value { b: 7 } }',
            2,
            "k: '7' is not a truth",
        ),
        ('op { name: "A" type: "B" }\nop { name: "A" type: "B" }\n', 2, "two operators"),
        ('op { name: "A"\n' + "a {\n" * 200, 101, "nested deeper than 100"),
        (
            'node {\n  name: "A"\n  op: "B"\n  attr { key: "[o]y" value { s: \'x {\' } }\n}\n',
            4,
            "[o]y",
        ),
    ],
)
def test_malformed_text_is_named_by_its_line(
    write: Write, text: str, line: int, reason: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read_ge_graph(write(text))
    assert f"line {line}: " in caught.value.reason
    assert reason in caught.value.reason


@pytest.mark.parametrize("text", ["", "\n", 'name: "g"\n', "attr { key: 1 }"])
def test_file_without_operators_is_no_graph(write: Write, text: str) -> None:
    with pytest.raises(FormatError, match="no operator"):
        read_ge_graph(write(text))


def test_a_cut_file_gives_a_clean_error_wherever_it_is_cut(write: Write) -> None:
    whole = len(read_ge_graph(write(TOPK)).ops)
    errors = 0
    for end in range(0, len(TOPK.rstrip()), 7):
        try:
            assert len(read_ge_graph(write(TOPK[:end])).ops) < whole
        except FormatError:
            errors += 1
    assert errors > 200  # all but the cuts right after an operator


def test_random_bytes_give_a_clean_error(tmp_path: Path) -> None:
    source = random.Random(7)
    path = tmp_path / "graph.txt"
    for size in (1, 100, 5000):
        path.write_bytes(b"op {" + source.randbytes(size))
        with pytest.raises(FormatError, match=r"line \d+"):
            read_ge_graph(path)


def test_a_missing_file_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        next(stream_ge_ops(tmp_path / "none.txt"))


@pytest.mark.parametrize("form", ["text", "pbtxt"])
def test_long_payloads_are_passed_over(tmp_path: Path, form: str) -> None:
    graph = ge_proto.parse(TOPK)
    expected = read_ge_graph(_printed(graph, form, tmp_path))
    peaks = []
    for size in (1, 4):
        graph.op[4].attr[0].value.t.data = bytes(range(256)) * (size << 11)  # text: 3 times as long
        path = _printed(graph, form, tmp_path)
        assert path.stat().st_size > size * 8 * proto_text.MAX_TEXT_BYTES
        tracemalloc.start()
        try:
            read = read_ge_graph(path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert [op.name for op in read.ops] == [op.name for op in graph.op]
        assert read.ops[5:] == expected.ops[5:]
    assert peaks[1] < peaks[0] + (1 << 18)


def _printed(graph: Any, form: str, folder: Path) -> Path:
    path = folder / "graph"
    text = ge_proto.to_text(graph) if form == "text" else ge_proto.to_pbtxt(graph)
    path.write_text(text + "# end\n")
    return path


def test_memory_of_a_stream_does_not_follow_the_file(tmp_path: Path) -> None:
    def peak(copies: int) -> tuple[int, int]:
        path = tmp_path / f"{copies}.txt"
        with path.open("w") as file:
            for number in range(copies):
                file.write(TOPK.replace('name: "', f'name: "layer{number}_'))
        tracemalloc.start()
        try:
            count = sum(1 for _ in stream_ge_ops(path))
            return count, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, small = peak(100)
    many, large = peak(400)
    assert (few, many) == (100 * 8, 400 * 8)
    assert large < small + (1 << 18)


def test_a_message_without_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_text, "MAX_MESSAGE_BYTES", 1 << 16)
    monkeypatch.setattr(proto_text, "CHUNK_BYTES", 1 << 12)
    with pytest.raises(FormatError, match="one message has more than 65536 bytes"):
        read_ge_graph(write("op {\n" + 'input: "a:0"\n' * 10000))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "dynamo_original_graph_10_rank_3_pid_77_ts_20261121091647917887.txt",
            ("original", 10, 3, 77, "20261121091647917887", "txt"),
        ),
        (
            "dynamo_optimized_graph_20240320101112131415.pbtxt",
            ("optimized", None, None, None, "20240320101112131415", "pbtxt"),
        ),
    ],
)
def test_file_names_of_all_generations(name: str, parts: tuple[object, ...]) -> None:
    file = GeGraphFile.parse(name)
    assert file is not None
    found = (file.stage, file.number, file.rank, file.pid, file.stamp, file.extension)
    assert found == parts


def test_other_file_names_are_none() -> None:
    assert GeGraphFile.parse("dynamo_original_graph_1.txt") is None
    assert FxOrigin.parse("mul_5") is None


def test_a_name_of_a_nested_result_has_a_path() -> None:
    origin = FxOrigin.parse("split-aten.split.Tensor.OUTPUT.1.0")
    assert origin == FxOrigin("split", "aten.split.Tensor", (1, 0))
