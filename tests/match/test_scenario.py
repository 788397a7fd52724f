"""What two paths ask for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_builder import DumpBuilder

from ait_llm.errors import FormatError, UsageError
from ait_llm.match.scenario import find_scenario


def _torch_dump(root: Path) -> Path:
    folder = root / "ait_dump" / "torch_tensors" / "cpu_7" / "0" / "root.fc"
    folder.mkdir(parents=True)
    torch.save(torch.ones(2), folder / "output.pth")
    return root


def _npy(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.ones(3, np.float32))
    return path


@pytest.mark.parametrize("part", [".", "ait_dump", "ait_dump/tensors", "ait_dump/tensors/0_4242"])
def test_any_folder_of_a_dump_is_that_dump(builder: DumpBuilder, part: str) -> None:
    builder.operation("0_Add")
    path = builder.root.parent / part
    scenario = find_scenario(path, path)
    assert (scenario.name, scenario.golden.step) == ("atb-atb", None)


def test_a_folder_of_an_execution_count_asks_for_that_one(builder: DumpBuilder) -> None:
    builder.operation("0_Add", step=3)
    path = builder.root / "tensors" / "0_4242" / "3"
    assert find_scenario(path, path).mine.step == 3


def test_kinds_of_two_dumps_make_the_name_golden_first(
    builder: DumpBuilder, tmp_path: Path
) -> None:
    builder.operation("0_Add")
    modules = _torch_dump(tmp_path / "golden")
    assert find_scenario(modules, builder.root).name == "torch-atb"
    assert find_scenario(builder.root, modules).name == "atb-torch"
    assert find_scenario(modules, modules).name == "torch-torch"


def test_two_files_of_any_types_are_files(tmp_path: Path) -> None:
    array = _npy(tmp_path / "a.npy")
    torch.save(torch.ones(3), tmp_path / "b.pth")
    assert find_scenario(array, tmp_path / "b.pth").name == "file"


def test_two_folders_of_tensor_files_are_folders(tmp_path: Path) -> None:
    for side in ("golden", "mine"):
        _npy(tmp_path / side / "layer" / "a.npy")
    assert find_scenario(tmp_path / "golden", tmp_path / "mine").name == "files"


def test_folders_of_safetensors_are_weights(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for side in ("golden", "mine"):
        (tmp_path / side).mkdir()
        save_file({"w": np.ones(2, np.float32)}, tmp_path / side / "model.safetensors")
    scenario = find_scenario(tmp_path / "golden", tmp_path / "mine")
    assert scenario.name == "weights"
    assert [path.name for path in scenario.golden.shards] == ["model.safetensors"]


def test_a_folder_of_pickled_shards_against_one_file_is_weights(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    torch.save({"a": torch.ones(1), "b": torch.ones(1)}, folder / "pytorch_model-1.bin")
    torch.save({"a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "all.pth")
    assert find_scenario(folder, tmp_path / "all.pth").name == "weights"


def test_folders_of_files_that_hold_the_same_names_are_folders_of_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for number in range(2):
        save_file({"logits": np.ones(2)}, tmp_path / f"prompt_{number}.safetensors")
    assert find_scenario(tmp_path, tmp_path).name == "files"


def test_saved_weights_of_a_torch_dump_are_weights_when_asked_for(tmp_path: Path) -> None:
    dump = _torch_dump(tmp_path / "dump")
    weights = dump / "ait_dump" / "torch_tensors" / "cpu_7" / "weights"
    weights.mkdir()
    torch.save(torch.ones(2), weights / "fc.weight.pth")
    assert find_scenario(dump, dump).name == "torch-torch"
    assert find_scenario(dump, dump, weights=True).name == "weights"
    assert find_scenario(weights, weights).name == "weights"


def test_a_folder_with_metadata_is_a_manual_mapping(tmp_path: Path) -> None:
    folder = tmp_path / "1_-1" / "golden_tensor"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps({}))
    assert find_scenario(folder.parent, tmp_path).name == "manual"


def test_a_file_against_a_dump_is_refused_in_one_sentence(
    builder: DumpBuilder, tmp_path: Path
) -> None:
    builder.operation("0_Add")
    with pytest.raises(UsageError) as caught:
        find_scenario(_npy(tmp_path / "a.npy"), builder.root)
    assert str(caught.value) == (
        f"{tmp_path / 'a.npy'} is a tensor file and {builder.root} is a dump of kind atb; "
        "give two files, two folders of the same kind, or two dumps"
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("levels", ["run", "runs/today"])
def test_a_folder_around_the_output_of_a_run_is_no_folder_of_files(
    tmp_path: Path, levels: str
) -> None:
    builder = DumpBuilder(tmp_path / levels / "ait_dump")
    builder.operation("0_Add")
    place = f"{tmp_path}: is not the output directory of a run, but {levels} in it is. "
    with pytest.raises(FormatError) as caught:
        find_scenario(tmp_path, tmp_path)
    assert str(caught.value) == f"{place}Give that folder"
    DumpBuilder(tmp_path / "a" / "ait_dump").operation("0_Add")
    with pytest.raises(FormatError, match=r"holds the outputs of 2 runs, the first is a\. Give"):
        find_scenario(tmp_path, tmp_path)


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.pt")
    return folder / "pipe.pt"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path / "absent", "no such file or directory"),
        (lambda path: path, "is not a dump"),
        (lambda path: Path(__file__), "is not one of the known tensor files"),
        (lambda path: Path("/dev/null"), "is neither a file nor a folder"),
        (_pipe, "is neither a file nor a folder"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, make: object, reason: str) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(FormatError, match=reason):
        find_scenario(path, path)
