"""Products of GPTQModel and AutoAWQ, recorded as those libraries computed them."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
import torch
from matching_truth.recordings import DATA, unpack

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden.modules import Given, module_function
from ait_llm.opcheck.pipeline import opcheck

NAMES = ("gptq", "gptq-8-bits", "gptq-asymmetric", "awq")


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
    if tensor.is_floating_point():
        tensor[1, 7] *= 1.5
    else:
        tensor[1, 5] += 5 << 4
    torch.save(tensor, path)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_product_with_integers_in_groups_is_right(dumps: Path, name: str) -> None:
    assert judged(dumps / name) is Verdict.PASS


@pytest.mark.parametrize("weight", ["qweight", "qzeros", "scales"])
@pytest.mark.parametrize("name", NAMES)
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
