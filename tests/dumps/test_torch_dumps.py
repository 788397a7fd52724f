"""Reading dumps of torch modules, ours and the upstream tool's, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Decoder, calls, capture, ids, opened, values
from torch import nn

from ait_llm import open_dump
from ait_llm.compare.values import open_payload, open_values
from ait_llm.core import DType
from ait_llm.dumps import torch_records
from ait_llm.errors import FormatError
from ait_llm.formats.pth_header import read_pth_header


@pytest.fixture
def out(tmp_path: Path) -> Path:
    capture(Decoder(2), tmp_path, ids(), token_range=[0], weights=True)
    return tmp_path


def _process(out: Path) -> Path:
    [folder] = (out / "ait_dump" / "torch_tensors").iterdir()
    return folder


def _ledger(out: Path) -> Path:
    [path] = (out / "ait_dump" / "ledger").iterdir()
    return path


def test_calls_come_in_the_order_in_which_they_began(out: Path) -> None:
    assert list(calls(opened(out), 0)) == [
        "root",
        "root.embed",
        "root.layers.0",
        "root.layers.0.0",
        "root.layers.0.1",
        "root.layers.1",
        "root.layers.1.0",
        "root.layers.1.1",
        "root.head",
    ]


def test_ids_are_positions_in_the_tree(out: Path) -> None:
    found = calls(opened(out), 0)
    assert str(found["root.layers.1.0"].op_id) == "0_1_1_0"
    assert (found["root.layers.1"].is_graph, found["root.head"].is_graph) == (True, False)
    assert found["root.head"].type == "Linear"


def test_shape_and_type_are_read_without_the_values(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("values were loaded")

    monkeypatch.setattr(torch_records, "load", refuse)
    [output] = calls(opened(out), 0)["root.head"].outputs
    assert (output.dtype, output.shape) == (DType.FLOAT32, (1, 4, 16))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(2, 0, 3),
        torch.tensor(1, dtype=torch.int16),
        torch.zeros(2, dtype=torch.uint16),
        torch.zeros(2, dtype=torch.float8_e5m2),
        torch.arange(6.0).reshape(2, 3).t(),
        nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)),
    ],
)
def test_headers_of_files_that_torch_wrote(tmp_path: Path, tensor: torch.Tensor) -> None:
    torch.save(tensor, tmp_path / "x.pth")
    header = read_pth_header(tmp_path / "x.pth")
    assert header is not None
    assert header.shape == tuple(tensor.shape)
    assert f"torch.{header.dtype.torch_name}" == str(tensor.dtype)


class _Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.system, ("touch /tmp/should-not-exist",)


@pytest.mark.parametrize("content", [{"a": torch.ones(1)}, [1, 2], "text", _Evil()])
def test_headers_of_other_files_are_unknown(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pth")
    assert read_pth_header(tmp_path / "x.pth") is None
    (tmp_path / "y.pth").write_bytes(b"PK\x03\x04 not an archive")
    assert read_pth_header(tmp_path / "y.pth") is None
    assert not Path("/tmp/should-not-exist").exists()


@pytest.mark.parametrize(
    ("inner", "names"),
    [
        (".", 9),
        ("ait_dump", 9),
        ("ait_dump/torch_tensors", 9),
        ("ait_dump/torch_tensors/{process}", 9),
        ("ait_dump/torch_tensors/{process}/0", 9),
        ("ait_dump/torch_tensors/{process}/0/root.layers.1", 3),
        ("ait_dump/torch_tensors/{process}/0/root.head", 1),
    ],
)
def test_a_part_of_a_dump_can_be_opened(out: Path, inner: str, names: int) -> None:
    dump = open_dump(out / inner.format(process=_process(out).name))
    assert dump.kind == "torch"
    assert len(list(dump.operations())) == names
    assert dump.processes[0].problem is None


def test_files_that_vanished_are_losses(out: Path) -> None:
    next((_process(out) / "0" / "root.head").glob("*.pth")).unlink()
    [loss] = opened(out).processes[0].losses
    assert (loss.op, loss.state, loss.tensors) == ("root.head", "missing", 1)


def test_a_dump_of_both_kinds_asks_which(out: Path) -> None:
    (out / "ait_dump" / "tensors" / "0_1" / "0").mkdir(parents=True)
    with pytest.raises(FormatError, match=r"atb, torch.*torch_tensors for torch"):
        open_dump(out)
    assert open_dump(out, "torch").kind == "torch"
    assert open_dump(out / "ait_dump" / "torch_tensors").kind == "torch"
    assert open_dump(out / "ait_dump" / "tensors").kind == "atb"


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """The layout of the upstream tool: plain torch.save, no ledger, no order."""
    process = tmp_path / "ait_dump" / "torch_tensors" / "npu0_4242"
    layer = {"name": "root.layers.0", "type": "Block", "children": []}
    layers = {"name": "root.layers", "type": "ModuleList", "children": [layer]}
    tree = {"name": "root", "type": "Demo", "children": [layers]}
    process.mkdir(parents=True)
    (process / "model_tree.json").write_text(json.dumps(tree))
    for step in (0, 10, 9):
        for name, stem in [
            ("root", "input_0"),
            ("root", "output"),
            ("root.layers.0", "output_0"),
            ("root.layers.0", "output_10"),
            ("root.layers.0", "output_1_0"),
        ]:
            folder = process / str(step) / name
            folder.mkdir(parents=True, exist_ok=True)
            big = torch.arange(100.0, requires_grad=True)
            torch.save(big[step : step + 3], folder / f"{stem}.pth")
    return tmp_path


def test_dumps_of_the_upstream_tool_are_read(upstream: Path) -> None:
    dump = opened(upstream)
    assert dump.steps == (0, 9, 10)
    [process] = dump.processes
    assert (process.device, process.pid, process.state, process.problem) == (
        0,
        4242,
        "unknown",
        None,
    )
    found = calls(dump, 9)
    assert list(found) == ["root", "root.layers.0"]
    assert values(found["root"])["output"].tolist() == [9.0, 10.0, 11.0]
    block = found["root.layers.0"]
    assert [tensor.ir_name for tensor in block.outputs] == ["0", "1_0", "10"]
    assert [tensor.name for tensor in block.outputs] == ["outtensor0", "outtensor1", "outtensor2"]
    assert block.outputs[0].shape == (3,)
    assert (block.type, str(block.op_id)) == ("Block", "0_0_0")


def test_a_dump_without_a_tree_is_read(upstream: Path) -> None:
    (upstream / "ait_dump/torch_tensors/npu0_4242/model_tree.json").unlink()
    assert set(calls(opened(upstream), 0)) == {"root", "root.layers.0"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"name":1}', '{"name":"root","type":"T","children":[3]}', "[" * 99999, "\xff"],
)
def test_a_damaged_tree_is_a_format_error(upstream: Path, text: str) -> None:
    path = upstream / "ait_dump/torch_tensors/npu0_4242/model_tree.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FormatError):
        list(opened(upstream).operations())


def test_odd_names_in_a_dump_are_no_error(upstream: Path) -> None:
    step = upstream / "ait_dump/torch_tensors/npu0_4242/0"
    (step / "root" / "output_²_00012.pth").write_bytes(b"")
    for name in ("a\nb", "@1", "root@", "root@01", "%zz", "root.x@99999999999999999999"):
        (step / name).mkdir()
        (step / name / "input_0.pth").write_bytes(b"")
    (step / "file").write_text("")
    (step / "root" / "input_1.pth").mkdir()
    found = list(opened(upstream).operations(step=0))
    assert len(found) == 8
    with pytest.raises(FormatError):
        next(call for call in found if call.name == "a\nb").tensors[0].numpy()


def test_a_damaged_tensor_and_a_link_out_of_the_dump_are_format_errors(upstream: Path) -> None:
    folder = upstream / "ait_dump/torch_tensors/npu0_4242/0/root"
    (folder / "output.pth").write_bytes((folder / "output.pth").read_bytes()[:200])
    (upstream / "secret.pth").write_bytes((folder / "input_0.pth").read_bytes())
    (folder / "input_0.pth").unlink()
    (folder / "input_0.pth").symlink_to(upstream / "secret.pth")
    call = calls(opened(upstream), 0)["root"]
    for tensor in call.tensors:
        with pytest.raises(FormatError):
            tensor.shape  # noqa: B018 - reading it is the test
        with pytest.raises(FormatError):
            tensor.numpy()


def test_a_place_is_looked_up_again_when_its_file_has_changed(upstream: Path) -> None:
    tensor = calls(opened(upstream), 0)["root"].tensors[0]
    before = tensor.payload()
    assert before is not None
    assert before.shape == tensor.shape
    torch.save(torch.zeros(3, 7), tensor.path)
    after = tensor.payload()
    assert after is not None
    assert after.shape == (3, 7)
    tensor.path.rename(upstream / "elsewhere.pth")
    tensor.path.symlink_to(upstream / "elsewhere.pth")
    with pytest.raises(FormatError, match="link"):
        tensor.payload()


def test_values_that_were_kept_with_their_place_are_those_of_the_file(out: Path) -> None:
    for operation in opened(out).operations():
        for tensor in operation.tensors:
            shape = tensor.shape  # whoever reads it reads the values of a small tensor with it
            payload = tensor.payload()
            assert payload is not None
            assert payload.kept is not None
            with open_payload(payload) as kept, open_values(tensor) as again:
                assert kept.array.shape == shape
                assert kept.array.tobytes() == again.array.tobytes()
                assert kept.stamp == again.stamp


def test_a_small_file_that_has_changed_since_its_header_was_read_is_read_again(out: Path) -> None:
    tensor = calls(opened(out), 0)["root.head"].outputs[0]
    assert tensor.shape
    torch.save(torch.full((2,), 7.0), tensor.path)
    with open_values(tensor) as found:
        assert found.array.tolist() == [7.0, 7.0]


def test_no_more_values_are_kept_than_a_dump_may(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_records, "_ALL_KEPT_BYTES", 2000)
    tensors = [each for operation in opened(out).operations() for each in operation.tensors]
    assert all(each.shape is not None for each in tensors)
    kept = [payload.kept for each in tensors if (payload := each.payload()) is not None]
    assert 0 < sum(len(content) for content, _ in filter(None, kept)) <= 2000
    assert None in kept


def test_a_weightless_value_without_data_says_so(tmp_path: Path) -> None:
    [output] = calls(capture(Decoder(1), tmp_path, ids(), mode="stats"), 0)["root"].outputs
    with pytest.raises(FormatError, match="only its statistics"):
        output.numpy()


@pytest.mark.parametrize(
    "damage",
    [
        ("call", '"call":-1'),
        ("call", '"call":"x"'),
        ("step", '"step":"0"'),
        ("state", '"state":"odd"'),
    ],
)
def test_a_damaged_ledger_is_a_format_error(out: Path, damage: tuple[str, str]) -> None:
    key, replacement = damage
    old = {"call": '"call":0', "step": '"step":0', "state": '"state":"saved"'}[key]
    path = _ledger(out)
    path.write_text(path.read_text().replace(old, replacement))
    with pytest.raises(FormatError):
        list(opened(out).operations())


def test_facts_of_another_type_in_the_ledger_are_left_out(out: Path) -> None:
    path = _ledger(out)
    text = path.read_text().replace(
        '"call":0', '"call":0,"values":3,"weights":[1],"not_captured":{"a":1},"order":"x"'
    )
    path.write_text(text)
    for call in opened(out).operations():
        assert (dict(call.params), dict(call.weights), call.not_captured) == ({}, {}, ())


@pytest.mark.parametrize("cut", [1, 40])
def test_half_a_line_at_the_end_of_a_statistics_table_is_left_out(tmp_path: Path, cut: int) -> None:
    capture(Decoder(1), tmp_path, ids(), mode="stats")
    path = _process(tmp_path) / "0" / "statistics.csv"
    rows = len(path.read_text().splitlines()) - 1
    path.write_bytes(path.read_bytes()[:-cut])
    found = sum(len(call.tensors) for call in opened(tmp_path).operations())
    assert found == rows - 1


@pytest.mark.parametrize(
    "row",
    [
        "root,T,x,output,float32,1,1,1,1,1,0,0",
        "root",
        "root,T,0,output,float32,a,1,1,1,1,0,0",
        "root,T,0,output,float32,1,1,1,1,1,0.5,0",
        '"' + "x" * 200_000,
    ],
)
def test_a_damaged_statistics_table_is_a_format_error(tmp_path: Path, row: str) -> None:
    capture(Decoder(1), tmp_path, ids(), mode="stats")
    path = _process(tmp_path) / "0" / "statistics.csv"
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(FormatError, match=r"statistics\.csv"):
        list(opened(tmp_path).operations())


@pytest.mark.parametrize("mode", ["stats", "both"])
def test_statistics_of_parameters_are_no_operation(tmp_path: Path, mode: str) -> None:
    dump = capture(Decoder(1), tmp_path, ids(), mode=mode, weights=True)
    assert all(".weights" not in each.name for each in dump.operations())
    weights = {tensor.stem: tensor for tensor in dump.weights()}
    head = weights["root.head.weight"]
    assert (head.shape, head.has_data) == ((16, 8), mode == "both")
    assert head.statistics is not None
    assert head.statistics.max == pytest.approx(float(Decoder(1).head.weight.detach().max()))
    assert calls(dump, 0)["root.head"].parameters["root.head.weight"].shape == (16, 8)
