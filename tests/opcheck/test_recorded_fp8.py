"""``FP8Linear`` of transformers, recorded as its kernel ran in the interpreter of Triton."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import ml_dtypes
import numpy as np
import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor

from ait_llm import open_dump
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.dequantised import dequantised
from ait_llm.opcheck.pipeline import opcheck

KNOWN = ("blocks", "blocks-bias", "whole")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "fp8.tar.xz", tmp_path_factory.mktemp("fp8"))


def verdicts(dump: Path) -> list[Verdict]:
    return [item.verdict for item in opcheck(dump, jobs=1).items]


def changed(dump: Path, folder: Path, pattern: str, how: Callable[[Tensor], Tensor]) -> Path:
    copytree(dump, folder)
    (path,) = folder.rglob(pattern)
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(how(values.clone()), path)
    return folder


@pytest.mark.parametrize("name", KNOWN)
def test_a_recorded_product_is_right(dumps: Path, name: str) -> None:
    assert verdicts(dumps / name) == [Verdict.PASS]


def one_element(values: Tensor) -> Tensor:
    values[1, 2, int(values[1, 2].float().abs().argmax())] *= 1.2
    return values


@pytest.mark.parametrize("name", KNOWN)
def test_a_wrong_element_of_a_product_is_found(dumps: Path, tmp_path: Path, name: str) -> None:
    dump = changed(dumps / name, tmp_path / "dump", "root.0/output.pth", one_element)
    assert verdicts(dump) == [Verdict.FAIL]


@pytest.mark.parametrize("name", KNOWN)
def test_a_scale_of_the_weight_that_is_off_is_found(dumps: Path, tmp_path: Path, name: str) -> None:
    def larger(scales: Tensor) -> Tensor:
        scales.view(-1)[0] *= 1.25
        return scales

    dump = changed(dumps / name, tmp_path / "dump", "root.0.weight_scale_inv.pth", larger)
    assert verdicts(dump) == [Verdict.FAIL]


@pytest.mark.parametrize("name", ["blocks", "whole"])
def test_a_product_with_an_input_that_was_not_rounded_is_found(
    dumps: Path, tmp_path: Path, name: str
) -> None:
    dump = _computed(dumps / name, tmp_path / "dump", lambda x: x)
    assert verdicts(dump) == [Verdict.FAIL]


def test_scales_of_the_input_may_be_powers_of_two(dumps: Path, tmp_path: Path) -> None:
    def by_powers(x: np.ndarray) -> np.ndarray:
        blocks = x.reshape(-1, 128)
        scale = 2.0 ** np.ceil(np.log2(np.abs(blocks).max(-1, keepdims=True) / 448))
        small = (blocks / scale).astype(ml_dtypes.float8_e4m3fn)
        return (small.astype(np.float64) * scale).reshape(x.shape)

    dump = _computed(dumps / "blocks", tmp_path / "dump", by_powers)
    assert verdicts(dump) == [Verdict.PASS]


def _computed(dump: Path, folder: Path, rounded: Callable[[np.ndarray], np.ndarray]) -> Path:
    """The dump with the product of another rounding of the input."""
    (operation,) = (each for each in open_dump(dump).operations() if each.name != "root")
    (weight,) = dequantised(operation.parameters).values()
    x = rounded(operation.inputs[0].torch().double().numpy())
    made = torch.from_numpy(x @ weight.tensor.nd().astype(np.float64).T).bfloat16()
    return changed(dump, folder, "root.0/output.pth", lambda _: made)


def test_a_result_in_float32_is_not_judged(dumps: Path) -> None:
    """Matrix units add up with fewer bits than that."""
    report = opcheck(dumps / "float32", jobs=1)
    assert report.unchecked == {"have no golden operator: FP8Linear": 1}


def rounded(x: np.ndarray, off: float = 0.0) -> np.ndarray:
    """Blocks as floats of 8 bits, by a division that is so far off."""
    blocks = x.reshape(-1, 128)
    scale = np.abs(blocks).max(-1, keepdims=True) / 448
    small = np.clip(blocks / scale * (1 + off), -448, 448).astype(np.float32)
    return (small.astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale).reshape(x.shape)


def between(x: Tensor) -> Tensor:
    x[1, 2, :128] = 1.75 * 17 / 448  # 17 of 448: between 16 and 18
    x[1, 2, 5] = 1.75
    return x


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(2.0**-22, Verdict.PASS), (-(2.0**-22), Verdict.PASS), (0.2, Verdict.FAIL)],
)
def test_what_lies_between_two_floats_may_be_rounded_to_either(
    dumps: Path, tmp_path: Path, off: float, verdict: Verdict
) -> None:
    dump = changed(dumps / "blocks", tmp_path / "x", "root.0/input_0.pth", between)
    made = _computed(dump, tmp_path / "dump", lambda x: rounded(x, off))
    assert verdicts(made) == [verdict]


def test_a_result_that_is_no_number_is_found(dumps: Path, tmp_path: Path) -> None:
    def lost(values: Tensor) -> Tensor:
        values[0, 0, 0] = float("nan")
        return values

    dump = changed(dumps / "blocks", tmp_path / "dump", "root.0/output.pth", lost)
    assert verdicts(dump) == [Verdict.FAIL]
