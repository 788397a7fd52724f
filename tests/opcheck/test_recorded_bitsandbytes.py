"""Products of bitsandbytes, recorded as the library computed them on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor

from ait_llm import open_dump
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.dequantised import dequantised
from ait_llm.opcheck.pipeline import opcheck

FOUR = ("nf4", "nf4-nested", "fp4-nested", "packed")
EIGHT = ("int8", "int8-bfloat16")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "bitsandbytes.tar.xz", tmp_path_factory.mktemp("bitsandbytes"))


def verdicts(dump: Path) -> list[Verdict]:
    return [item.verdict for item in opcheck(dump, jobs=1).items]


def changed(dump: Path, folder: Path, pattern: str, how: Callable[[Tensor], Tensor]) -> Path:
    copytree(dump, folder)
    (path,) = folder.rglob(pattern)
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(how(values.clone()), path)
    return folder


@pytest.mark.parametrize("name", [*FOUR, *EIGHT])
def test_a_recorded_product_is_right(dumps: Path, name: str) -> None:
    assert verdicts(dumps / name) == [Verdict.PASS]


def one_element(values: Tensor) -> Tensor:
    values[1, 2, int(values[1, 2].float().abs().argmax())] *= 1.1
    return values


@pytest.mark.parametrize("name", [*FOUR, *EIGHT])
def test_a_wrong_element_of_a_product_is_found(dumps: Path, tmp_path: Path, name: str) -> None:
    dump = changed(dumps / name, tmp_path / "dump", "root.0/output.pth", one_element)
    assert verdicts(dump) == [Verdict.FAIL]


def other_codes(values: Tensor) -> Tensor:
    values[40:72] ^= 0x88  # two signs each, or two codes far away
    return values


def larger(values: Tensor) -> Tensor:
    values[..., 3] = (values[..., 3].double() * 1.4).to(values.dtype)
    return values


@pytest.mark.parametrize(
    ("name", "weight", "how"),
    [
        *((name, "weight", other_codes) for name in FOUR),
        ("nf4", "weight.absmax", larger),
        ("nf4-nested", "weight.absmax", larger),
        ("nf4-nested", "weight.nested_absmax", lambda values: values * 1.4),
        ("fp4-nested", "weight.quant_map", lambda values: values.flip(0)),
        *((name, "SCB", larger) for name in EIGHT),
    ],
)
def test_other_numbers_of_what_is_stored_are_found(
    dumps: Path, tmp_path: Path, name: str, weight: str, how: Callable[[Tensor], Tensor]
) -> None:
    dump = changed(dumps / name, tmp_path / "dump", f"root.0.{weight}.pth", how)
    assert verdicts(dump) == [Verdict.FAIL]


def test_without_its_scales_a_product_is_not_judged(dumps: Path, tmp_path: Path) -> None:
    """What ran before it was captured has packed its weight, and its scales are not saved."""
    copytree(dumps / "packed", tmp_path / "dump")
    for path in (tmp_path / "dump").rglob("root.0.weight.*.pth"):
        path.unlink()
    report = opcheck(tmp_path / "dump", jobs=1)
    assert not report.items
    assert report.unchecked == {"have no golden operator: Linear4bit": 1}


@pytest.mark.parametrize(
    ("name", "kind"), [("fp4-in-float16", "Linear4bit"), ("int8-float32", "Linear8bitLt")]
)
def test_a_product_in_fewer_bits_than_its_input_is_not_judged(
    dumps: Path, name: str, kind: str
) -> None:
    report = opcheck(dumps / name, jobs=1)
    assert report.unchecked == {f"have no golden operator: {kind}": 1}


def between_two_integers(x: Tensor) -> Tensor:
    x[1, 4] *= 0.5
    x[1, 4, 5:7] = torch.tensor([4.0, 2.0])  # which become 127 and 63.5
    return x


def test_a_row_that_may_be_rounded_either_way_is_not_judged(dumps: Path, tmp_path: Path) -> None:
    dump = changed(dumps / "int8", tmp_path / "dump", "root.0/input_0.pth", between_two_integers)
    (item,) = opcheck(dump, jobs=1).items
    assert item.verdict is Verdict.PASS, item.reason
    other = changed(dump, tmp_path / "other", "root.0/output.pth", one_element)
    assert verdicts(other) == [Verdict.FAIL]


@pytest.mark.parametrize("name", ["nf4", "nf4-nested", "fp4-nested"])
def test_a_weight_of_four_bits_is_the_one_that_the_library_multiplied_with(
    dumps: Path, name: str
) -> None:
    (operation,) = (each for each in open_dump(dumps / name).operations() if each.name != "root")
    (found,) = dequantised(operation.parameters).values()
    weight, bias = found.tensor.torch().double(), operation.parameters["root.0.bias"].torch()
    (x,), (made,) = operation.inputs, operation.outputs
    golden = x.torch().double() @ weight.t() + bias.double()
    near = 1e-6 if name == "nf4-nested" else 1e-2
    torch.testing.assert_close(made.torch().double(), golden, rtol=near, atol=near)
    assert 0.04 < found.tensor.rounding < 0.2  # of four bits
