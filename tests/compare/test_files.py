"""File against file, in every mix of formats."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from ait_llm import compare, compare_data
from ait_llm.core import DType, TensorDesc
from ait_llm.core.comparison import Verdict
from ait_llm.errors import AitError, FormatError
from ait_llm.formats import write_tensor

RANDOM = np.random.default_rng(3)
GOLDEN = RANDOM.normal(size=(4, 6, 10)).astype(np.float16)
MINE = (GOLDEN.astype(np.float32) * 1.001).astype(np.float16)


def save_bin(path: Path, array: np.ndarray) -> Path:
    path = path.with_suffix(".bin")
    write_tensor(path, array, TensorDesc(DType.FLOAT16, array.shape))
    return path


def save_npy(path: Path, array: np.ndarray) -> Path:
    np.save(path.with_suffix(".npy"), array)
    return path.with_suffix(".npy")


def save_fortran(path: Path, array: np.ndarray) -> Path:
    return save_npy(path, np.asfortranarray(array))


def save_pth(path: Path, array: np.ndarray) -> Path:
    torch.save(torch.from_numpy(array), path.with_suffix(".pth"))
    return path.with_suffix(".pth")


def save_pt_view(path: Path, array: np.ndarray) -> Path:
    """A tensor that is a transposed part of a larger storage."""
    large = torch.zeros(array.shape[1], array.shape[0], array.shape[2] + 3, dtype=torch.float16)
    view = large.transpose(0, 1)[..., 2:-1]
    view.copy_(torch.from_numpy(array))
    torch.save(view, path.with_suffix(".pt"))
    return path.with_suffix(".pt")


def save_safetensors(path: Path, array: np.ndarray) -> Path:
    save_file({"x": array}, path.with_suffix(".safetensors"))
    return path.with_suffix(".safetensors")


FORMATS: list[Callable[[Path, np.ndarray], Path]] = [
    save_bin,
    save_npy,
    save_fortran,
    save_pth,
    save_pt_view,
    save_safetensors,
]


@pytest.mark.parametrize(
    ("save_golden", "save_mine"),
    list(itertools.product(FORMATS, FORMATS)),
    ids=lambda save: save.__name__.removeprefix("save_"),
)
def test_every_mix_of_formats_gives_the_same_numbers(
    tmp_path: Path,
    save_golden: Callable[[Path, np.ndarray], Path],
    save_mine: Callable[[Path, np.ndarray], Path],
) -> None:
    report = compare(save_golden(tmp_path / "golden", GOLDEN), save_mine(tmp_path / "mine", MINE))
    [found] = report.comparisons
    g, m = GOLDEN.astype(np.float64), MINE.astype(np.float64)
    assert found.verdict is Verdict.PASS, found.reason
    assert found.values["max_absolute_error"] == np.abs(m - g).max()
    assert found.values["cosine_similarity"] == pytest.approx(
        (g * m).sum() / np.linalg.norm(g) / np.linalg.norm(m), abs=1e-7
    )
    assert found.worst == np.unravel_index(np.abs(m - g).argmax(), g.shape)
    assert (report.scenario, report.partial, report.exit_code()) == ("file", False, 0)


def test_files_are_compared_without_torch(tmp_path: Path) -> None:
    paths = [save(tmp_path / save.__name__, GOLDEN) for save in FORMATS]
    program = (
        "import sys; from ait_llm import compare\n"
        "first = sys.argv[1]\n"
        "for other in sys.argv[2:]:\n"
        "    assert compare(first, other).exit_code() == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, *map(str, paths)], check=True, timeout=60)


def test_types_may_differ(tmp_path: Path) -> None:
    np.save(tmp_path / "golden.npy", GOLDEN.astype(np.float64))
    torch.save(torch.from_numpy(GOLDEN).bfloat16(), tmp_path / "mine.pth")
    [found] = compare(tmp_path / "golden.npy", tmp_path / "mine.pth").comparisons
    assert found.verdict is Verdict.PASS
    assert 0 < found.values["max_relative_error"] <= 2.0**-8
    assert found.mine is not None
    assert found.mine.dtype is DType.BFLOAT16


def test_axes_of_length_one_do_not_matter(tmp_path: Path) -> None:
    np.save(tmp_path / "golden.npy", GOLDEN)
    np.save(tmp_path / "mine.npy", MINE[None].transpose(1, 2, 0, 3))
    [found] = compare(tmp_path / "golden.npy", tmp_path / "mine.npy").comparisons
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize("shape", [(6, 4, 10), (240,), (4, 6, 9), (2, 4, 6, 10)])
def test_different_shapes_are_never_hidden(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "golden.npy", GOLDEN)
    np.save(tmp_path / "mine.npy", np.resize(GOLDEN, shape))
    report = compare(tmp_path / "golden.npy", tmp_path / "mine.npy")
    for found in report.comparisons:
        assert found.verdict in (Verdict.ERROR, Verdict.SKIPPED)
        assert "[4, 6, 10]" in found.reason
        assert str(list(shape)) in found.reason
    assert report.exit_code() == 3


@pytest.mark.parametrize("shape", [(6, 4, 10), (240,), (4, 6, 9), (2, 4, 6, 10)])
def test_arrays_of_different_shapes_cannot_be_compared(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shapes differ: golden \[4, 6, 10\], mine"):
        compare_data(GOLDEN, np.resize(GOLDEN, shape))


def test_a_path_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    np.save(tmp_path / "golden.npy", GOLDEN)
    with pytest.raises(FormatError, match="no such file"):
        compare(tmp_path / "golden.npy", tmp_path / "mine.npy")


def test_unusable_options_are_told_before_anything_is_read(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.npy"
    for options in (
        {"metrics": ["cosine"]},
        {"tolerance": "fp99=1"},
        {"jobs": 0},
        {"custom": ["missing.py:f"]},
    ):
        with pytest.raises(AitError) as caught:
            compare(nowhere, nowhere, **options)
        assert "no such file" not in str(caught.value) or "custom" in options


def test_custom_metrics_and_a_choice_of_metrics_decide_the_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "golden.npy", GOLDEN)
    np.save(tmp_path / "mine.npy", MINE)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def first_difference(golden: np.ndarray, mine: np.ndarray):\n"
        "    return float(mine[0] - golden[0]), ''\n"
    )
    report = compare(
        tmp_path / "golden.npy",
        tmp_path / "mine.npy",
        metrics=["max_absolute_error"],
        custom=[f"{tmp_path}/mine.py:first_difference"],
    )
    [found] = report.comparisons
    assert report.metrics == ("max_absolute_error", "first_difference")
    assert set(found.values) == set(report.metrics)
    expected = float(MINE.flat[0]) - float(GOLDEN.flat[0])
    assert found.values["first_difference"] == pytest.approx(expected, abs=1e-7)
