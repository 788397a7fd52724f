"""Products of GPTQModel, AutoAWQ and torchao, recorded as those libraries computed them."""

from __future__ import annotations

import math
from pathlib import Path
from shutil import copytree

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matching_truth.recordings import DATA, unpack

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden.modules import Given, module_function
from ait_llm.opcheck.golden.modules.microscaling import rounded
from ait_llm.opcheck.pipeline import opcheck

GROUPS = ("gptq", "gptq-8-bits", "gptq-asymmetric", "awq")


MICROSCALED = ("weight_qdata", "weight_scale")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "quantised.tar.xz", tmp_path_factory.mktemp("quantised"))


def judged(dump: Path) -> Verdict:
    (item,) = opcheck(dump, jobs=1).items
    return item.verdict


def changed(dump: Path, folder: Path, weight: str) -> Path:
    """The dump with one element of what is stored of the weight changed a little."""
    copytree(dump, folder)
    (path,) = folder.rglob(f"*.{weight}.pth")
    tensor = torch.load(path, weights_only=True)
    if tensor.dtype is torch.float8_e8m0fnu:
        tensor.view(torch.uint8)[0, 4] += 1
    elif tensor.dtype is torch.uint8:
        tensor[1, 5] ^= 0x88  # two signs
    elif tensor.dtype.itemsize == 1:
        tensor.view(torch.uint8)[1, int(tensor[1].float().abs().argmax())] ^= 0x80
    elif tensor.is_floating_point():
        tensor[1, 7] *= 1.5
    else:
        tensor[1, 5] += 5 << 4
    torch.save(tensor, path)
    return folder


@pytest.mark.parametrize("name", [*GROUPS, "mxfp4", "mxfp8"])
def test_a_recorded_product_is_right(dumps: Path, name: str) -> None:
    assert judged(dumps / name) is Verdict.PASS


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        *((name, weight) for name in GROUPS for weight in ("qweight", "qzeros", "scales")),
        *((name, weight) for name in ("mxfp4", "mxfp8") for weight in MICROSCALED),
    ],
)
def test_one_other_number_of_what_is_stored_is_found(
    dumps: Path, tmp_path: Path, name: str, weight: str
) -> None:
    assert judged(changed(dumps / name, tmp_path / "dump", weight)) is Verdict.FAIL


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("TorchLinear", {"adapter": "Lora"}),
        ("TorchLinear", {"online_full_had": True}),
        ("TorchLinear", {"planar": True}),
        ("TorchLinear", {"bits": 3}),
        ("QuantLinear", {}),  # of AutoGPTQ: ExLlama's kernel, which moves the integers, has it too
    ],
)
def test_a_product_of_which_more_would_have_to_be_known_is_not_judged(
    kind: str, more: dict[str, object]
) -> None:
    known = {"in_features": 128, "out_features": 64, "bits": 4, **more}
    shapes = {"qweight": (16, 64), "qzeros": (4, 8), "scales": (4, 64)}
    given = Given(kind, known, ("0",), shapes, ((5, 64),))
    assert module_function(given) is None


@pytest.mark.parametrize("mode", ["FLOOR", "RCEIL", "CEIL"])
@pytest.mark.parametrize(("kind", "most"), [("float4_e2m1fn_x2", 6.0), ("float8_e4m3fn", 448.0)])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), spread=st.floats(0, 6))
def test_blocks_are_rounded_to_the_nearest_numbers_of_their_power_of_two(
    kind: str, most: float, mode: str, seed: int, spread: float
) -> None:
    draw = np.random.default_rng(seed)
    x = (draw.normal(size=32) * np.exp(draw.normal(size=32) * spread)).astype(np.float32)
    raw = np.arange(16 if most == 6.0 else 256, dtype=np.uint8)
    small = raw.view(ml_dtypes.float4_e2m1fn if most == 6.0 else ml_dtypes.float8_e4m3fn)
    grid = np.unique(small.astype(np.float64)[np.isfinite(small.astype(np.float64))])
    largest = math.frexp(float(np.abs(x).max()))
    top = {6.0: 2, 448.0: 8}[most]
    power = {
        "FLOOR": largest[1] - 1 - top,
        "CEIL": largest[1] - 1 - top + (largest[0] > 0.5),
        "RCEIL": math.ceil(math.log2(float(np.abs(x).max()) / most)),
    }[mode]
    found = rounded(x[None], kind, mode)[0]
    for one, made in zip(x.astype(np.float64), found.astype(np.float64), strict=True):
        off = np.abs(grid * 2.0**power - np.clip(one, -most * 2.0**power, most * 2.0**power))
        assert made / 2.0**power in grid
        assert abs(made / 2.0**power - np.clip(one / 2.0**power, -most, most)) <= (
            off.min() / 2.0**power
        )


@pytest.mark.parametrize("more", [{}, {"weight.act_quant_kwargs.scaling_mode": "EVEN"}])
def test_a_product_whose_input_is_rounded_in_an_unknown_way_is_not_judged(
    more: dict[str, object],
) -> None:
    known = {"in_features": 128, "out_features": 64, "weight.type": "MXTensor", **more}
    shapes = {"weight_qdata": (64, 64), "weight_scale": (32, 16)}
    assert module_function(Given("Linear", known, ("0",), shapes, ((5, 64),))) is None
