"""``ait llm show`` lists a dump; the files are those of the official probe."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import onnx.checker
import pytest
from click.testing import CliRunner, Result
from fx_dumps import unpack_sample

from ait_llm.cli.main import ait

OFFICIAL = Path(__file__).parents[1] / "data" / "atb-official" / "filter0"


def show(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "show", *words])


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The official files in our layout, with the ledger of a process that was killed."""
    dump = tmp_path / "ait_dump"
    shutil.copytree(OFFICIAL / "atb_dump_data" / "data" / "0_4242", dump / "tensors" / "0_4242")
    ledger = dump / "ledger" / "0_4242.jsonl"
    ledger.parent.mkdir()
    ledger.write_text(
        '{"kind":"header","schema":1,"device":"0","pid":4242}\n'
        '{"kind":"op","op":"0_0","type":"RmsNormOperation","path":"0_4242/0/0_Decoder_layer/'
        '0_RmsNormOperation","phase":"after","step":0,"state":"saved","tensors":1,"bytes":256}\n'
    )
    return tmp_path


def test_operations_are_listed_in_execution_order_with_their_ids() -> None:
    result = show(str(OFFICIAL))
    rows = [line.split() for line in result.stdout.splitlines()[3:]]
    assert result.exit_code == 0
    assert rows[0] == ["0", "0", "Decoder_layer", "(graph)"]
    assert rows[1][:3] == ["0", "0_0", "RmsNormOperation"]
    assert [row[1] for row in rows[:6]] == ["0", "0_0", "0_1", "0_1_0", "0_1_1", "0_2"]


def test_tensors_are_listed_with_type_format_and_shape() -> None:
    output = " ".join(show(str(OFFICIAL), "--tensors").stdout.split())
    assert "after/outtensor0 (output) float16 nd [4,32]" in output


def test_json_is_one_object_per_line() -> None:
    rows = [json.loads(line) for line in show(str(OFFICIAL), "--json").stdout.splitlines()]
    assert {"process": "0_4242", "step": 0, "op_id": "0_0"}.items() <= rows[1].items()


def test_only_the_wanted_token_is_listed() -> None:
    assert "Decoder_layer" not in show(str(OFFICIAL), "--token", "7").stdout


def test_an_unfinished_dump_is_listed_and_said_to_be_incomplete(unfinished: Path) -> None:
    result = show(str(unfinished))
    assert result.exit_code == 3
    assert "did not finish its capture" in result.stderr
    assert "RmsNormOperation" in result.stdout
    assert show(str(unfinished), "--allow-skip").exit_code == 0


def test_what_is_no_dump_is_one_sentence(tmp_path: Path) -> None:
    result = show(str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a dump" in result.stderr


def test_one_file_of_the_graph_engine_lists_its_tensors() -> None:
    source = next((OFFICIAL.parents[1] / "ge_dump" / "samples").glob("Add.Add_2*"))
    result = show(str(source))
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        *("intensor0", "intensor1", "outtensor0")
    ]
    (first, *_) = show(str(source), "--json").stdout.splitlines()
    assert json.loads(first)["tensor"] == "intensor0"


def test_one_file_without_names_lists_its_tensor(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    assert show(str(tmp_path / "x.npy")).stdout.split()[-1] == "[2,3]"


def test_steps_of_a_compiled_graph_are_summed_up(tmp_path: Path) -> None:
    sample = unpack_sample(tmp_path)  # its third graph ran three times
    lines = show(str(sample)).stdout.splitlines()
    assert lines[1] == "process 0_0: tokens 0-2, no ledger"


def test_graphs_of_a_dump_are_written_as_onnx(tmp_path: Path) -> None:
    data = OFFICIAL.parents[1]
    dump = tmp_path / "dump"
    shutil.copytree(data / "topology" / "demo", dump / "ait_dump")
    for rank in (0, 1):
        graph = dump / "fx_tensors" / f"worldsize2_global_rank{rank}" / "graph_1" / "graph.json"
        graph.parent.mkdir(parents=True)
        shutil.copy(data / "topology" / "fx" / "graph.json", graph)
    (ge,) = (data / "torchair").glob("dynamo_original_graph_2_*.txt.xz")
    (dump / ge.name.removesuffix(".xz")).write_bytes(lzma.decompress(ge.read_bytes()))
    result = show(str(dump), "--onnx", str(tmp_path / "models"))
    assert result.exit_code == 0, result.output
    written = [Path(line).name for line in result.stdout.splitlines()]
    assert written == [
        ge.name.replace(".txt.xz", ".onnx"),
        "DecoderLayer_0.onnx",
        "DemoModel.onnx",
        "graph_1.onnx",
        "graph_1_2.onnx",
    ]
    for name in written:
        onnx.checker.check_model(str(tmp_path / "models" / name), full_check=True)


def test_a_graph_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = (tmp_path / f"dynamo_original_graph_{n * 20}.txt" for n in "12")
    good.write_text('op { name: "A" type: "B" output_desc { } }')
    bad.write_text('op { name: "A"')
    result = show(str(tmp_path), "--onnx", str(tmp_path / "models"))
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [str(tmp_path / "models" / f"{good.stem}.onnx")]
    assert f"{bad}: line 1: the file ends within the message 'op'" in result.stderr


def test_one_graph_file_is_written_as_onnx(tmp_path: Path) -> None:
    graph = OFFICIAL.parents[1] / "topology" / "fx" / "graph.json"
    result = show(str(graph), "--onnx", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'fx.onnx'}\n")


def test_a_dump_without_graphs_has_no_onnx(tmp_path: Path) -> None:
    result = show(str(tmp_path), "--onnx", str(tmp_path / "models"))
    assert result.exit_code == 2
    assert "holds no graph; capture it with" in result.stderr
    assert not (tmp_path / "models").exists()


def test_graphs_of_a_path_that_is_not_there_are_wrong_use(tmp_path: Path) -> None:
    result = show(str(tmp_path / "gone"), "--onnx", str(tmp_path / "out"))
    assert result.exit_code == 2
    said = f"ait: error: {tmp_path / 'gone'}: no such file or directory ["
    assert result.output.startswith(said)
