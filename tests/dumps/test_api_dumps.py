"""Dumps of API calls: the files of the released msprobe, and damaged and hostile ones."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msprobe_samples import NAMES, sample

from ait_llm import open_dump
from ait_llm.core import DType
from ait_llm.dumps import ApiDump
from ait_llm.dumps.api_json import UnfinishedError, read_members
from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.describe import describe
from ait_llm.errors import FormatError


def opened(path: Path) -> ApiDump:
    dump = open_dump(path)
    assert isinstance(dump, ApiDump)
    return dump


def files_of(folder: Path) -> list[Path]:
    return sorted((*folder.glob("step*/*/dump.json"), *folder.glob("step*/*/debug.json")))


def leaves(value: Any) -> Iterator[Any]:
    """Every recorded value, by a walk of its own: what has a type, and None."""
    if isinstance(value, dict) and not isinstance(value.get("type", value.get("class_type")), str):
        for each in value.values():
            yield from leaves(each)
        if not value:
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)  # NaN is NaN


@pytest.mark.parametrize("side", ["golden", "target"])
@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_the_real_tool_is_read(name: str, side: str) -> None:
    folder = sample(name) / side
    plain = [(key, record) for file in files_of(folder) for key, record in _data(file).items()]
    calls = list(opened(folder).operations())
    assert [call.name for call in calls] == [key for key, _ in plain]
    for call, (_, record) in zip(calls, plain, strict=True):
        # the tables list parameters before outputs; an empty list of arguments is no value
        parts = [record]
        if call.direction != "debug":
            keys = sorted(record, key=lambda key: str(key).startswith("output"))
            parts = [record[key] for key in keys]
        expected = [leaf for part in parts if part not in ({}, []) for leaf in leaves(part)]
        assert same([value.recorded for value in call.values], expected)


def _data(file: Path) -> dict[str, Any]:
    data = json.loads(file.read_text())["data"]
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("name", ["L1_tensor", "mix_tensor", "zoo_tensor"])
def test_every_value_of_the_real_tool_is_read(name: str) -> None:
    read = 0
    for call in opened(sample(name) / "target").operations():
        for tensor in call.tensors:
            described = next(value for value in call.values if value.label == tensor.ir_name)
            assert tensor.has_data == (described.data_name is not None)
            if not tensor.has_data:
                continue
            expected = torch.load(tensor.path, weights_only=True)
            if isinstance(expected, torch.Tensor):
                assert tensor.torch().dtype == expected.dtype
                assert tensor.shape == tuple(expected.shape)
                assert str(expected.dtype) == described.recorded_dtype or (
                    described.type == "numpy.ndarray"
                )
                assert torch.equal(tensor.torch().nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
                payload = tensor.payload()
                assert payload is not None
                assert payload.shape == tensor.shape
            read += 1
    assert read > 90


def test_arrays_of_strings_are_read_as_such() -> None:
    folder = sample("zoo_tensor") / "target"
    (call,) = (each for each in open_dump(folder).operations() if each.name.startswith("mymod"))
    texts = next(value for value in call.values if value.recorded_dtype == "<U1")
    path = next(folder.glob("step0/rank0/dump_tensor_data/*.npy"))
    assert np.array_equal(texts.texts(folder), np.load(path))
    assert texts.label not in {tensor.ir_name for tensor in call.tensors}


def test_names_of_items_are_those_of_the_tools_tables() -> None:
    """The tables name an item after its file if there is one; keyword arguments differ then."""
    folder = sample("dist_stat")
    for rank in (0, 1):
        (table,) = (folder / "compare" / "csv_step0").glob(f"compare_result_rank{rank}_*.csv")
        rows = [line.split(",", 1)[0] for line in table.read_text().splitlines()]
        named = {row for row in rows if row.count(".") > 3 and " " not in row}
        items = {
            value.item
            for call in open_dump(folder / "target").operations(device=rank)
            for value in call.values
        }
        assert named
        assert named <= items


def test_parts_of_a_name() -> None:
    linear = parse_name("Functional.linear.3.backward")
    assert (linear.api, linear.call, linear.direction) == ("Functional.linear", 3, "backward")
    norm = parse_name("Module.layers.0.norm.RMSNorm.forward.2")
    assert (norm.api, norm.call) == ("Module.layers.0.norm.RMSNorm", 2)
    assert (norm.module_path, norm.type, norm.is_module) == ("layers.0.norm", "RMSNorm", True)
    old = parse_name("Module.head.Linear.parameters_grad")
    assert (old.api, old.call, old.direction) == ("Module.head.Linear", 0, "parameters_grad")
    saved = parse_name("emb_out.1.debug")
    assert (saved.api, saved.call, saved.direction) == ("emb_out", 1, "debug")


def test_statistics_are_those_recorded() -> None:
    call = next(open_dump(sample("L1_md5") / "golden").operations(step=0))
    record = _data(sample("L1_md5") / "golden/step0/rank0/dump.json")[call.name]
    found, first = call.tensors[0].statistics, record["input_args"][0]
    assert found is not None
    assert (found.max, found.min) == (float(first["Max"]), float(first["Min"]))
    assert call.values[0].md5 == first["md5"]


def test_nan_in_statistics_stays_nan() -> None:
    calls = open_dump(sample("zoo_stat") / "target").operations()
    call = next(each for each in calls if each.name == "Tensor.abs.3.forward")
    found = call.inputs[0].statistics
    assert found is not None
    assert math.isnan(found.max or 0)
    assert math.isnan(found.l2norm or 0)


def test_modules_stand_above_the_calls_in_them() -> None:
    calls = {call.name: call for call in open_dump(sample("mix_tensor") / "target").operations()}
    block = calls["Module.layers.0.Block.forward.0"]
    norm = calls["Module.layers.0.n1.RMSNorm.forward.0"]
    power = calls["Tensor.pow.0.forward"]
    assert power.parent == norm.name
    assert power.scope == (block.name, norm.name)
    assert power.op_id.parent == norm.op_id
    assert norm.op_id.parent == block.op_id
    assert (block.is_graph, norm.is_graph, power.is_graph) == (True, True, False)
    assert block.level == "mix"
    by_id = sorted(calls.values(), key=lambda call: call.op_id)
    assert by_id.index(block) < by_id.index(norm) < by_id.index(power)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch.float8_e8m0fnu", DType.FLOAT8_E8M0),
        ("torch.uint64", DType.UINT64),
        ("BFloat16", DType.BFLOAT16),  # MindSpore
        ("int64", DType.INT64),  # NumPy
        ("torch.quint8", DType.UNDEFINED),
    ],
)
def test_names_of_element_types(tmp_path: Path, name: str, expected: DType) -> None:
    write(tmp_path, {"Mint.a.0.forward": {"output": [{**TENSOR, "dtype": name}]}})
    (call,) = opened(tmp_path).operations()
    assert call.outputs[0].dtype is expected


def test_keyword_arguments_and_plain_values_are_listed() -> None:
    calls = {call.name: call for call in open_dump(sample("zoo_stat") / "target").operations()}
    full = calls["Torch.full.0.forward"]
    assert full.params == {
        "input.0.0": 2,
        "input.0.1": 2,
        "input.1": 3.5,
        "input.dtype": "torch.float16",
        "input.device": "cpu",
    }
    assert full.outputs[0].dtype is DType.FLOAT16
    assert [value.keyword for value in full.values][-3:] == [True, True, False]


@pytest.mark.parametrize("part", ["", "step0", "step0/rank1", "step0/rank1/dump.json"])
def test_any_part_of_a_dump_opens_it(part: str) -> None:
    dump = opened(sample("dist_stat") / "golden" / part)
    ranks = {1} if "rank1" in part else {0, 1}
    assert {call.rank for call in dump.operations()} == ranks
    assert {(process.device, process.pid) for process in dump.processes} == {
        (rank, 0) for rank in ranks
    }


def test_a_process_without_a_rank_keeps_its_id() -> None:
    (process,) = open_dump(sample("debug_stat") / "golden").processes
    assert (process.device, process.pid) == (-1, 28562)


def test_listing_shows_items(tmp_path: Path) -> None:
    rows = list(describe(open_dump(sample("zoo_stat") / "golden"), tensors=True))
    assert rows[0].name == "Torch.linspace.0.forward"
    assert rows[1].tensor == "after/outtensor0 (output.0)"
    assert (rows[1].dtype, rows[1].shape) == ("float", "6")


def write(folder: Path, data: Any, **files: Any) -> Path:
    """A dump of one rank."""
    rank = folder / "step0" / "rank0"
    rank.mkdir(parents=True)
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (rank / "dump.json").write_text(json.dumps({**header, "data": data}, indent=1))
    for name, content in files.items():
        (rank / f"{name}.json").write_text(json.dumps(content, indent=1))
    return rank / "dump.json"


TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
RECORD = {"input_args": [TENSOR, {"type": "int", "value": 10**40}], "output": [None]}


def test_stacks_of_old_and_new_form(tmp_path: Path) -> None:
    frames = ["File a.py, line 1, in f, \n f()"]
    write(
        tmp_path / "new",
        {"Torch.a.0.forward": RECORD},
        stack={"0": [["Torch.a.0.forward"], frames]},
    )
    write(tmp_path / "old", {"Torch.a.0.forward": RECORD}, stack={"Torch.a.0.forward": frames})
    write(tmp_path / "none", {"Torch.a.0.forward": RECORD})
    stacks = [
        next(iter(opened(tmp_path / name).operations())).stack for name in ("new", "old", "none")
    ]
    assert stacks == [tuple(frames), tuple(frames), None]


def test_integers_of_any_size_are_exact(tmp_path: Path) -> None:
    write(tmp_path, {"Torch.a.0.forward": RECORD})
    (call,) = opened(tmp_path).operations()
    assert call.params == {"input.1": 10**40}


def test_megatron_parents_with_their_micro_step(tmp_path: Path) -> None:
    construct = {
        "Module.m.M.forward.0": None,
        "Torch.a.0.forward": ["Module.m.M.forward.0", 1],
        "megatron_micro_step_number": 2,
    }
    write(tmp_path, {"Torch.a.0.forward": RECORD}, construct=construct)
    (call,) = opened(tmp_path).operations()
    assert call.parent == "Module.m.M.forward.0"


def test_parents_in_a_circle_are_left_at_the_top(tmp_path: Path) -> None:
    write(tmp_path, {"a": {}, "b": {}}, construct={"a": "b", "b": "a"})
    calls = list(opened(tmp_path).operations())
    assert {len(call.scope) for call in calls} == {2}
    assert len({call.op_id for call in calls}) == 2


def test_a_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path, {f"Torch.a.{n}.forward": RECORD for n in range(5)})
    text = path.read_text()
    path.write_text(text[: text.index("Torch.a.3") + 40])
    dump = opened(tmp_path)
    assert [call.call for call in dump.operations()] == [0, 1, 2]
    assert "dump.json of step 0 breaks off" in (dump.processes[0].problem or "")


def test_a_record_that_was_written_again_is_one(tmp_path: Path) -> None:
    """As by a process that was killed while the gradients of a module came in."""
    path = write(tmp_path, {})
    name = "Module.a.Linear.parameters_grad.0"
    weight, both = {"weight": [TENSOR]}, {"weight": [TENSOR], "bias": [TENSOR]}
    records = [(name, weight), (name, both), ("Torch.a.0.forward", RECORD)]
    text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in records)
    path.write_text(f'{{"task": "statistics", "data": {{{text}}}}}')
    calls = list(opened(tmp_path).operations())
    assert [call.name for call in calls] == [name, "Torch.a.0.forward"]
    assert [tensor.ir_name for tensor in calls[0].tensors] == ["weight", "bias"]
    (path.parent / "debug.json").write_text(
        '{"task": "statistics", "data": {"x_grad.0.debug": null, "y.0.debug": null,'
        f'"x_grad.0.debug": {json.dumps(TENSOR)}}}}}'
    )
    path.unlink()
    calls = list(opened(tmp_path).operations())
    assert [(call.name, len(call.tensors)) for call in calls] == [
        ("x_grad.0.debug", 1),
        ("y.0.debug", 0),
    ]


@pytest.mark.parametrize("indent", [1, None])
def test_every_cut_of_a_file_is_noticed(tmp_path: Path, indent: int | None) -> None:
    path = write(tmp_path, {})
    data = {"Torch.a.0.forward": {}, "Torch.b.0.forward": {"output": [{"x": {"y": 1}}]}}
    text = json.dumps({"task": "tensor", "data": data}, indent=indent)
    for end in range(text.index(":") + 1, len(text)):  # before its first key it is no such file
        path.write_text(text[:end])
        process = opened(tmp_path).processes[0]
        assert process.problem is not None, text[:end]
        assert len(list(opened(tmp_path).operations())) <= 2
    path.write_text(text)
    assert opened(tmp_path).processes[0].problem is None


def test_malformed_json_is_refused_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, {f"Torch.a.{n}.forward": RECORD for n in range(200)})
    lines = path.read_text().splitlines()
    lines[20] = '   "output" [null]'
    path.write_text("\n".join(lines))
    with pytest.raises(FormatError, match=r"dump\.json: is malformed at line 21, column \d+"):
        list(opened(tmp_path).operations())


@pytest.mark.parametrize("text", ["[1]", '{"data": 1} x', '{"a" 1}', '{"a": 1,}', '{"a": tru }   '])
def test_what_is_no_object_is_malformed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text + " " * 100)
    with pytest.raises(FormatError, match="is malformed at line 1"):
        list(read_members(path))


def test_values_across_the_window_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "a": 12345.678,
        "b": 'zw\u00f6lf \\ " \n',
        "c": [True, None, -1e-300],
        "d": {"e": 10**30},
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    raw = path.read_bytes()
    for chunk in range(1, 40):
        monkeypatch.setattr("ait_llm.dumps.api_json._CHUNK", chunk)
        members = list(read_members(path))
        assert {member.key: member.value for member in members} == content
        for member in members:
            piece = raw[member.offset : member.offset + member.length]
            assert json.loads(piece) == member.value


def test_bare_tokens_for_what_json_has_no_number_for(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": NaN, "b": Infinity, "c": -Infinity}')
    values = [member.value for member in read_members(path)]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(FormatError, match=r"nested too deeply|breaks off"):
        list(read_members(path))
    deep: Any = None
    for _ in range(500):
        deep = [deep]
    write(tmp_path, {"Torch.a.0.forward": {"output": deep}})
    with pytest.raises(FormatError, match="nested deeper than 400"):
        _ = next(iter(opened(tmp_path).operations())).values


def test_memory_does_not_follow_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are kept hold places, not records; records are read again when asked for."""
    write(tmp_path, {f"Torch.a.{n}.forward": RECORD for n in range(300)})
    monkeypatch.setattr("ait_llm.dumps.api_records._KEPT_BYTES", 1000)
    (file,) = opened(tmp_path).files
    dump = opened(tmp_path)
    calls = list(dump.operations())
    assert len(dump.files[0]._kept) < 10
    assert all(
        same([v.recorded for v in call.values], [TENSOR, RECORD["input_args"][1], None])
        for call in calls
    )
    file.place.path.write_text("{}")
    with pytest.raises(FormatError, match="has changed since it was opened"):
        _ = calls[0].values


@pytest.mark.parametrize("name", ["../secret.pt", "/etc/passwd", "a/b.pt", "..", "a\0.pt", 7])
def test_files_outside_the_folder_are_refused(tmp_path: Path, name: Any) -> None:
    record = {"output": [{**TENSOR, "data_name": name}]}
    write(tmp_path, {"Torch.a.0.forward": record})
    with pytest.raises(FormatError, match=r"names the file .* which does not lie in"):
        list(next(iter(opened(tmp_path).operations())).tensors)


def test_links_out_of_the_dump_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.pt"
    torch.save(torch.ones(2), secret)
    record = {"output": [{**TENSOR, "data_name": "a.pt"}]}
    folder = write(tmp_path / "dump", {"Torch.a.0.forward": record}).parent / "dump_tensor_data"
    folder.mkdir()
    (folder / "a.pt").symlink_to(secret)
    (tensor,) = next(iter(opened(tmp_path / "dump").operations())).tensors
    with pytest.raises(FormatError):
        tensor.numpy()


def test_files_that_are_named_and_gone_are_losses(tmp_path: Path) -> None:
    shutil.copytree(sample("L1_tensor") / "target", tmp_path / "dump")
    gone = tmp_path / "dump/step0/rank0/dump_tensor_data/Functional.linear.0.forward.output.0.pt"
    gone.unlink()
    (process,) = open_dump(tmp_path / "dump").processes
    assert [(loss.op, loss.state) for loss in process.losses] == [(gone.stem, "missing")]


def test_values_that_were_not_saved_are_asked_for_in_vain() -> None:
    call = next(iter(opened(sample("L1_md5") / "golden").operations()))
    with pytest.raises(FormatError, match="Capture with the task tensor"):
        call.tensors[0].numpy()


def test_the_configuration_of_a_kernel_dump_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text('{"dump": {"dump_list": [], "dump_path": "./dump"}}')
    with pytest.raises(FormatError, match="is not a dump"):
        open_dump(tmp_path)
    with pytest.raises(FormatError, match="is a file, a dump is a folder"):
        open_dump(tmp_path / "dump.json")


def test_cut_within_the_last_value_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ('{"a": "b', '{"a": -Inf', '{"a": 1.', '{"a": "\\u00', '{"a"', "", '{"a": 1'):
        path.write_text(text)
        with pytest.raises(UnfinishedError, match="breaks off at line 1"):
            list(read_members(path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(
    content=st.dictionaries(st.text(max_size=6), JSON, max_size=4),
    data=st.dictionaries(st.text(max_size=6), JSON, max_size=4),
    chunk=st.integers(1, 64),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_members_are_those_that_json_reads(
    tmp_path_factory: pytest.TempPathFactory,
    content: dict[str, Any],
    data: dict[str, Any],
    chunk: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "members.json"
    content.pop("data", None)
    text = json.dumps({**content, "data": data}, indent=indent, ensure_ascii=ascii_only)
    path.write_bytes(text.encode("utf-8", "surrogatepass" if ascii_only else "replace"))
    raw = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ait_llm.dumps.api_json._CHUNK", chunk)
        members = list(read_members(path, ("data",)))
    expected = json.loads(raw)
    inner = expected.pop("data")
    assert same({m.key: m.value for m in members if not m.parent}, expected)
    assert same({m.key: m.value for m in members if m.parent == "data"}, inner)
    for member in members:
        assert same(json.loads(raw[member.offset : member.offset + member.length]), member.value)


@given(data=st.binary(max_size=200), start=st.sampled_from([b"", b'{"data": {"a": ', b'{"a": 1']))
@settings(max_examples=80, deadline=None)
def test_no_bytes_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.json"
    path.write_bytes(start + data)
    with contextlib.suppress(FormatError):
        list(read_members(path, ("data",)))


WORDS = st.sampled_from(
    ["type", "class_type", "tensor", "dtype", "shape", "Max", "value", "data_name", "torch.Tensor"]
)
ODD = st.recursive(
    st.none() | st.integers(-2, 3) | WORDS | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=10,
)
SECTIONS = st.sampled_from(["input_args", "input_kwargs", "input", "parameters", "output", "x"])


@given(
    name=st.sampled_from(["Torch.a.0.forward", "Module.m.M.parameters_grad.0", "x.0.debug", "y"]),
    record=ODD | st.dictionaries(SECTIONS, ODD, max_size=4),
    construct=st.dictionaries(st.sampled_from("ab"), ODD | st.sampled_from("ab")),
    stack=ODD,
)
@settings(max_examples=80, deadline=None)
def test_no_record_ends_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, record: Any, construct: Any, stack: Any
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as folder:
        write(Path(folder), {name: record}, construct=construct, stack={"0": stack})
        with contextlib.suppress(FormatError):
            for row in describe(opened(Path(folder)), tensors=True):
                assert row.type is not None
        for call in opened(Path(folder)).operations():
            for part in ("stack", "scope", "phases", "level"):
                with contextlib.suppress(FormatError):
                    getattr(call, part)
            with contextlib.suppress(FormatError):
                dict(call.params)
            with contextlib.suppress(FormatError):
                for value in call.values:
                    _ = value.item, value.value, value.md5, value.requires_grad
                for tensor in call.tensors:
                    _ = tensor.dtype, tensor.statistics, tensor.has_data, tensor.path
