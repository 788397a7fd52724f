"""``ait llm convert``: every format to every format, on real files and folders."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file

from ait_llm.cli.main import ait
from ait_llm.convert.files import convert_files
from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.formats import load, write_tensor
from ait_llm.formats.ge_file import read_ge
from ait_llm.formats.save import SAVE_FORMATS, save

DATA = Path(__file__).parents[1] / "data"
GE = DATA / "ge_dump"


def convert(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", "convert", *map(str, words)])


def bf16(shape: tuple[int, ...] = (3, 5)) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(ml_dtypes.bfloat16)


@pytest.fixture
def atb_file(tmp_path: Path) -> Path:
    path = tmp_path / "outtensor0.bin"
    write_tensor(path, bf16(), TensorDesc(DType.BFLOAT16, (3, 5), FORMAT_ND))
    return path


@pytest.mark.parametrize("first", SAVE_FORMATS)
@pytest.mark.parametrize("second", SAVE_FORMATS)
def test_values_survive_the_way_through_any_two_formats(
    tmp_path: Path, atb_file: Path, first: str, second: str
) -> None:
    assert convert(atb_file, "-o", tmp_path / "1", "--to", first).exit_code == 0
    (middle,) = (tmp_path / "1").iterdir()
    result = convert(middle, "-o", tmp_path / "2", "--to", second)
    assert result.exit_code == 0, result.output
    (last,) = (tmp_path / "2").iterdir()
    np.testing.assert_array_equal(
        load(last).array.astype(np.float32), bf16().astype(np.float32), strict=True
    )


def test_types_that_a_format_does_not_know_are_widened_and_told(
    tmp_path: Path, atb_file: Path
) -> None:
    result = convert(atb_file, "-o", tmp_path / "out", "--to", "npy")
    assert "widened" in result.output
    assert "bf16 as float" in result.output
    assert np.load(tmp_path / "out" / "outtensor0.npy", allow_pickle=False).dtype == np.float32


def test_other_formats_keep_the_type(tmp_path: Path, atb_file: Path) -> None:
    for name in ("pt", "safetensors", "bin", "ge"):
        result = convert(atb_file, "-o", tmp_path / "out", "--to", name)
        assert "widened" not in result.output
        (file,) = (tmp_path / "out").glob(f"*{SAVE_FORMATS[name]}")
        assert load(file).dtype is DType.BFLOAT16


def test_each_tensor_of_a_ge_file_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    source = next((GE / "samples").glob("Add.Add_2*"))
    result = convert(source, "-o", tmp_path, "--to", "npy")
    assert result.exit_code == 0, result.output
    expected = {"intensor0": "00.input.0", "intensor1": "00.input.1", "outtensor0": "00.output.0"}
    for name, file in expected.items():
        ours = np.load(tmp_path / f"{source.name}.{name}.npy", allow_pickle=False)
        theirs = np.load(GE / "expected" / f"{file}.npy", allow_pickle=False)
        np.testing.assert_array_equal(ours, theirs)


def test_one_tensor_is_chosen_by_its_name(tmp_path: Path) -> None:
    source = next((GE / "samples").glob("Add.Add_2*"))
    result = convert(source, "-o", tmp_path, "--to", "npy", "--name", "outtensor0")
    assert result.exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{source.name}.npy"]


def test_several_tensors_stay_together_where_the_format_holds_them(tmp_path: Path) -> None:
    source = next((GE / "samples").glob("Add.Add_2*"))
    convert(source, "-o", tmp_path, "--to", "safetensors")
    (file,) = tmp_path.glob("*.safetensors")
    assert sorted(load_file(file)) == ["intensor0", "intensor1", "outtensor0"]


def test_a_folder_keeps_its_tree_and_a_damaged_file_costs_itself_only(
    tmp_path: Path, atb_file: Path
) -> None:
    tree = tmp_path / "dump"
    (tree / "0_1" / "after").mkdir(parents=True)
    shutil.copy(atb_file, tree / "0_1" / "after" / "outtensor0.bin")
    (tree / "0_1" / "broken.bin").write_bytes(atb_file.read_bytes()[:-4])
    (tree / "readme.txt").write_text("no tensor")
    result = convert(tree, "-o", tmp_path / "out", "--to", "pt")
    assert result.exit_code == 3
    assert (tmp_path / "out" / "0_1" / "after" / "outtensor0.pt").is_file()
    assert "  missing " in result.output
    assert "broken.bin" in result.output
    assert "1 file without tensors" in result.output
    assert convert(tree, "-o", tmp_path / "2", "--to", "pt", "--allow-skip").exit_code == 0


def test_an_output_that_is_removed_meanwhile_is_told(tmp_path: Path, atb_file: Path) -> None:
    tree, output = tmp_path / "dump", tmp_path / "out"
    tree.mkdir()
    for number in range(3):
        shutil.copy(atb_file, tree / f"outtensor{number}.bin")
    seen: list[Path] = []

    def remove(_source: Path) -> None:
        if not seen:
            while len(list(output.glob("outtensor*.pt"))) < 3:  # its thread goes on meanwhile
                time.sleep(0.01)
            shutil.rmtree(output)
        seen.append(_source)

    result = convert_files(tree, output, "pt", jobs=1, on_file=remove)
    assert len(result.problems) == 1
    assert "not there any more; something removed them meanwhile" in result.problems[0]


def test_files_that_are_there_are_not_replaced_unasked(tmp_path: Path, atb_file: Path) -> None:
    words = (atb_file, "-o", tmp_path / "out", "--to", "npy")
    assert convert(*words).exit_code == 0
    again = convert(*words)
    assert again.exit_code == 3
    assert "--overwrite" in again.output
    assert convert(*words, "--overwrite").exit_code == 0


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, atb_file: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link.bin").symlink_to(atb_file)
    result = convert(tree, "-o", tmp_path / "out", "--to", "npy")
    assert result.exit_code == 3
    assert not list((tmp_path / "out").iterdir())


def test_files_are_for_the_group_and_nobody_else(tmp_path: Path, atb_file: Path) -> None:
    for name in SAVE_FORMATS:
        convert(atb_file, "-o", tmp_path / name, "--to", name)
        (file,) = (tmp_path / name).iterdir()
        assert file.stat().st_mode & 0o777 == 0o640
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "dtype", [DType.INT4, DType.FLOAT8_E4M3FN, DType.BOOL, DType.INT64, DType.COMPLEX64]
)
@pytest.mark.parametrize("name", SAVE_FORMATS)
def test_every_kind_of_type_is_written_with_its_values(
    tmp_path: Path, dtype: DType, name: str
) -> None:
    assert dtype.numpy_type is not None
    values = np.array([[1, 0, 3], [2, 1, 1]]).astype(dtype.numpy_type)
    path = tmp_path / f"x{SAVE_FORMATS[name]}"
    source = tmp_path / "source.bin"
    write_tensor(source, values, TensorDesc(dtype, (2, 3), FORMAT_ND))
    save(path, {"": load(source)}, name)
    np.testing.assert_array_equal(
        load(path).array.astype(np.complex64), values.astype(np.complex64), strict=True
    )


@pytest.mark.parametrize(
    "words",
    [("missing.bin", "--to", "npy"), ("a.txt", "--to", "npy"), ("a.txt", "--to", "hdf5")],
)
def test_wrong_use_is_one_sentence_and_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "a.txt").write_text("text")
    result = convert(tmp_path / words[0], "-o", tmp_path / "out", *words[1:])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", SAVE_FORMATS)
def test_one_value_without_axes_gets_none(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32(2.5))
    assert convert(tmp_path / "x.npy", "-o", tmp_path / "out", "--to", kind).exit_code == 0
    (file,) = (tmp_path / "out").iterdir()
    array = load(file).array
    assert (array.shape, float(array)) == ((), 2.5)


def test_inputs_of_an_operator_stay_inputs_in_files_of_the_graph_engine(tmp_path: Path) -> None:
    source = next((GE / "samples").glob("Add.Add_2*"))
    convert(source, "-o", tmp_path, "--to", "ge")
    (file,) = tmp_path.glob("*.ge")
    names = ["intensor0", "intensor1", "outtensor0"]
    assert [each.name for each in read_ge(file).tensors] == names
    for name in names:
        first, second = load(source, name), load(file, name)
        np.testing.assert_array_equal(first.array, second.array, strict=True)


def test_captured_files_are_converted_without_torch_which_takes_seconds_to_load(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    values = torch.arange(6.0).reshape(2, 3)
    torch.save(values, tmp_path / "one.pth")
    torch.save({"a": values, "b": [values + 1]}, tmp_path / "several.pt")
    code = (
        "import sys; from ait_llm.cli.main import ait; "
        "ait(['llm', 'convert', *sys.argv[1:], '--to', 'npy'], standalone_mode=False); "
        "print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(tmp_path), "-o", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    found = {path.name: np.load(path) for path in (tmp_path / "out").iterdir()}
    assert set(found) == {"one.npy", "several.a.npy", "several.b.0.npy"}
    np.testing.assert_array_equal(found["several.b.0.npy"], values.numpy() + 1)
