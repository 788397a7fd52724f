"""Files and weights by their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ge_dump_files import FLOAT, FLOAT16, FRACTAL_NZ, Stored, nz, of, write_file
from safetensors.numpy import save_file

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import FormatError
from ait_llm.formats import write_tensor
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def _found(golden: Path, mine: Path, *, weights: bool = False) -> list[Match | Unmatched]:
    (pair,) = pair_runs(find_scenario(golden, mine, weights=weights)).pairs
    return match_runs(pair.golden, pair.mine, MatchOptions())


def _write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".npy":
            np.save(path, VALUES)
        case ".bin":
            write_tensor(path, VALUES, TensorDesc(DType.FLOAT32, VALUES.shape))
        case ".safetensors":
            save_file({"x": VALUES}, path)
        case _:
            torch.save(torch.from_numpy(VALUES), path)
    return path


@pytest.mark.parametrize("golden", [".npy", ".bin", ".pth", ".pt", ".safetensors"])
def test_a_file_of_any_type_answers_one_of_any_other(tmp_path: Path, golden: str) -> None:
    for mine in (".npy", ".bin", ".pth", ".safetensors"):
        paths = _write(tmp_path / f"golden{golden}"), _write(tmp_path / f"mine{mine}")
        (match,) = _found(*paths)
        assert isinstance(match, Match)
        assert match.mine.record.role == "file"
        assert match.mine.record.op == f"mine{mine}"
        assert (match.mine.record.dtype, match.mine.record.shape) == (DType.FLOAT32, (2, 3))
        for source in (match.golden, match.mine):
            np.testing.assert_array_equal(source.tensor.nd(), VALUES)
            np.testing.assert_array_equal(source.tensor.torch().numpy(), VALUES)


def test_tensors_of_containers_pair_by_name(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "b": [torch.zeros(3)]}, tmp_path / "g.pth")
    save_file({"b.0": np.zeros(3), "c": np.zeros(1)}, tmp_path / "m.safetensors")
    found = _found(tmp_path / "g.pth", tmp_path / "m.safetensors")
    assert [m.mine.record.name for m in found if isinstance(m, Match)] == ["b.0"]
    alone = {(u.side, u.record.name): u.reason for u in found if isinstance(u, Unmatched)}
    assert set(alone) == {("golden", "a"), ("mine", "c")}
    assert alone["golden", "a"] == "my file m.safetensors holds no tensor of that name"


def test_dump_files_of_the_graph_engine_pair_by_tensor(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float16).reshape(3, 20)
    blocks = nz(matrix, 16)
    stored = Stored(blocks.tobytes(), FLOAT16, blocks.shape, FRACTAL_NZ, matrix.shape)
    golden = write_file(tmp_path / "a" / "Mul.Mul.1.2.3", [of(VALUES, FLOAT)], [stored])
    mine = write_file(tmp_path / "b" / "Mul.Mul.9.2.7", [of(VALUES, FLOAT)], [of(matrix, FLOAT16)])
    mine.write_bytes(mine.read_bytes()[:-1])  # the output is cut off
    first, last = _found(golden, mine)
    assert isinstance(first, Match)
    assert isinstance(last, Match)
    assert (first.golden.record.name, last.golden.record.name) == ("intensor0", "outtensor0")
    np.testing.assert_array_equal(first.mine.tensor.nd(), VALUES)
    np.testing.assert_array_equal(last.golden.tensor.nd(), matrix)
    assert last.golden.record.shape == (3, 20)
    assert (last.golden.tensor.has_data, last.mine.tensor.has_data) == (True, False)
    with pytest.raises(FormatError, match="119 of its 120 bytes"):
        last.mine.tensor.nd()
    with pytest.raises(FormatError, match="not one of the known tensor files"):
        _found(golden, _unknown(tmp_path / "notes.txt"))


def _unknown(path: Path) -> Path:
    path.write_text("nothing that anybody compares")
    return path


def test_a_damaged_file_is_still_a_pair_whose_reading_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"not numpy")
    (match,) = _found(_write(tmp_path / "good.npy"), tmp_path / "bad.npy")
    assert isinstance(match, Match)
    assert match.mine.record.dtype is None
    with pytest.raises(FormatError, match="is not an npy file"):
        match.mine.tensor.nd()


def test_folders_pair_by_path_then_by_path_without_suffix(tmp_path: Path) -> None:
    for name in ("a/x.npy", "a/y.npy", "only_golden.npy"):
        _write(tmp_path / "golden" / name)
    for name in ("a/x.npy", "a/y.bin", "b/x.npy"):
        _write(tmp_path / "mine" / name)
    found = _found(tmp_path / "golden", tmp_path / "mine")
    matches = {(m.golden.record.op, m.mine.record.op) for m in found if isinstance(m, Match)}
    assert matches == {("a/x.npy", "a/x.npy"), ("a/y.npy", "a/y.bin")}
    alone = {(u.side, u.record.op) for u in found if isinstance(u, Unmatched)}
    assert alone == {("golden", "only_golden.npy"), ("mine", "b/x.npy")}


def test_a_link_out_of_the_folder_is_refused_and_the_rest_is_compared(tmp_path: Path) -> None:
    _write(tmp_path / "secret.npy")
    _write(tmp_path / "golden" / "y.npy")
    (tmp_path / "golden" / "x.npy").symlink_to(tmp_path / "secret.npy")
    for name in ("x.npy", "y.npy"):
        _write(tmp_path / "mine" / name)
    matches = {
        m.mine.record.op: m
        for m in _found(tmp_path / "golden", tmp_path / "mine")
        if isinstance(m, Match)
    }
    assert set(matches) == {"x.npy", "y.npy"}
    for read in ("nd", "payload"):
        with pytest.raises(FormatError, match="lies outside of"):
            getattr(matches["x.npy"].golden.tensor, read)()


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    _write(tmp_path / "store" / "blob.npy")
    (tmp_path / "x.npy").symlink_to(tmp_path / "store" / "blob.npy")
    (match,) = _found(tmp_path / "x.npy", tmp_path / "x.npy")
    assert isinstance(match, Match)
    np.testing.assert_array_equal(match.mine.tensor.nd(), VALUES)


def test_the_place_of_every_tensor_in_its_file_is_known(tmp_path: Path) -> None:
    for suffix in (".npy", ".bin", ".pth", ".safetensors"):
        path = _write(tmp_path / f"x{suffix}")
        (match,) = _found(path, path)
        assert isinstance(match, Match)
        payload = match.mine.tensor.payload()  # type: ignore[attr-defined]
        raw = path.read_bytes()[payload.offset : payload.offset + payload.length]
        np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(2, 3), VALUES)


def _checkpoints(tmp_path: Path) -> tuple[Path, Path]:
    """A float checkpoint, and the same weights in int8, sharded otherwise."""
    generator = np.random.default_rng(0)
    golden, mine = tmp_path / "float", tmp_path / "w8a8"
    golden.mkdir()
    mine.mkdir()
    names = [f"model.layers.{i}.mlp.up_proj" for i in (0, 1, 10)]
    real, quantised = {}, {}
    for name in names:
        scale = generator.uniform(0.01, 0.1, (4, 1)).astype(np.float32)
        offset = generator.integers(-3, 3, (4, 1)).astype(np.float32)
        integers = generator.integers(-128, 128, (4, 8)).astype(np.int8)
        real[f"{name}.weight"] = (integers - offset) * scale
        quantised |= {
            f"{name}.weight": integers,
            f"{name}.weight_scale": scale,
            f"{name}.weight_offset": offset,
        }
    real["model.norm.weight"] = quantised["model.norm.weight"] = np.ones(8, np.float32)
    save_file(real, golden / "model.safetensors")
    items = list(quantised.items())
    for shard, part in enumerate((items[:3], items[3:6], items[6:])):
        save_file(dict(part), mine / f"model-{shard}.safetensors")
    return golden, mine


@pytest.mark.parametrize("swapped", [False, True])
def test_int8_weights_of_all_shards_are_dequantised(tmp_path: Path, swapped: bool) -> None:
    paths = _checkpoints(tmp_path)
    found = _found(*(paths[::-1] if swapped else paths))
    matches = [each for each in found if isinstance(each, Match)]
    assert [m.mine.record.title for m in matches] == [
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.10.mlp.up_proj.weight",
        "model.norm.weight",
    ]
    for match in matches:
        golden = apply(match.golden.tensor.nd(), match.golden.views)
        mine = apply(match.mine.tensor.nd(), match.mine.views)
        np.testing.assert_allclose(mine, golden, rtol=1e-6)
        assert match.mine.record.role == "weight"
    # scales and offsets are looked at with their weights
    assert len(found) == len(matches)
    assert [record.op for _, record in matches[0].uses] == [
        "model.layers.0.mlp.up_proj.weight_scale",
        "model.layers.0.mlp.up_proj.weight_offset",
    ]


def test_a_quantised_weight_without_scale_is_unmatched(tmp_path: Path) -> None:
    save_file({"a.weight": np.ones((2, 2), np.float32)}, tmp_path / "g.safetensors")
    save_file({"a.weight": np.ones((2, 2), np.int8)}, tmp_path / "m.safetensors")
    found = _found(tmp_path / "g.safetensors", tmp_path / "m.safetensors", weights=True)
    assert {each.reason for each in found if isinstance(each, Unmatched)} == {
        "a.weight is quantised, its scale a.weight_scale is not there"
    }


def test_pickled_shards_are_weights_whose_values_are_mapped(tmp_path: Path) -> None:
    for side in ("golden", "mine"):
        (tmp_path / side).mkdir()
        for shard in range(2):
            tensors = {f"w{shard}": torch.full((3,), float(shard)), f"b{shard}": torch.zeros(1)}
            torch.save(tensors, tmp_path / side / f"pytorch_model-{shard}.bin")
    found = _found(tmp_path / "golden", tmp_path / "mine")
    matches = [m for m in found if isinstance(m, Match)]
    assert [m.mine.record.op for m in matches] == ["b0", "b1", "w0", "w1"]
    assert all(m.mine.tensor.payload() is not None for m in matches)  # type: ignore[attr-defined]


def test_two_shards_with_one_weight_are_refused(tmp_path: Path) -> None:
    for shard in ("a", "b"):
        save_file({"w": np.ones(1)}, tmp_path / f"{shard}.safetensors")
    with pytest.raises(FormatError, match="holds the weight 'w', and so does"):
        _found(tmp_path, tmp_path, weights=True)


def test_weights_that_a_torch_capture_saved_answer_a_checkpoint(tmp_path: Path) -> None:
    from ait_llm import DumpConfig, register_hook

    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    with register_hook(model, DumpConfig(str(tmp_path / "dump"), weights=True)):
        model(torch.ones(1, 2))
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    found = _found(tmp_path / "model.safetensors", tmp_path / "dump", weights=True)
    matches = [each for each in found if isinstance(each, Match)]
    assert len(found) == len(matches) == 2
    for match in matches:
        np.testing.assert_array_equal(match.mine.tensor.nd(), match.golden.tensor.nd())
