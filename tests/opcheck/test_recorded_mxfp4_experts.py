"""Experts of GPT-OSS in MXFP4, recorded as their kernels ran in the interpreter of Triton."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor

from ait_llm import open_dump
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.dequantised import dequantised
from ait_llm.opcheck.case import NoCase
from ait_llm.opcheck.cases import case_of
from ait_llm.opcheck.pipeline import opcheck

NAMES = ("two-of-four", "all")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "mxfp4-experts.tar.xz", tmp_path_factory.mktemp("mxfp4"))


def verdicts(dump: Path) -> list[Verdict]:
    return [item.verdict for item in opcheck(dump, jobs=1).items]


def changed(dump: Path, folder: Path, pattern: str, how: Callable[[Tensor], Tensor]) -> Path:
    copytree(dump, folder)
    (path,) = folder.rglob(pattern)
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(how(values.clone()), path)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_layer_is_right(dumps: Path, name: str) -> None:
    assert verdicts(dumps / name) == [Verdict.PASS, Verdict.PASS]


def test_a_wrong_element_of_the_result_is_found(dumps: Path, tmp_path: Path) -> None:
    def one(values: Tensor) -> Tensor:
        values[1, 2, int(values[1, 2].float().abs().argmax())] *= 1.2
        return values

    dump = changed(dumps / "two-of-four", tmp_path / "dump", "root.0/output_0.pth", one)
    assert verdicts(dump) == [Verdict.FAIL, Verdict.PASS]


def test_shares_that_do_not_add_up_to_one_are_found(dumps: Path, tmp_path: Path) -> None:
    dump = changed(dumps / "all", tmp_path / "dump", "root.0/output_0.pth", lambda x: x * 0.8)
    assert verdicts(dump) == [Verdict.FAIL, Verdict.PASS]


def test_a_wrong_scale_of_a_weight_is_found(dumps: Path, tmp_path: Path) -> None:
    def larger(scales: Tensor) -> Tensor:
        scales[:, 3] += 1
        return scales

    pattern = "root.0.experts.down_proj_scales.pth"
    dump = changed(dumps / "two-of-four", tmp_path / "dump", pattern, larger)
    assert verdicts(dump) == [Verdict.FAIL, Verdict.PASS]


def test_wrong_logits_are_found(dumps: Path, tmp_path: Path) -> None:
    def other(logits: Tensor) -> Tensor:
        logits[3] += 0.25  # of all experts: neither choice nor shares change
        return logits

    dump = changed(dumps / "two-of-four", tmp_path / "dump", "root.0/output_1.pth", other)
    assert verdicts(dump) == [Verdict.PASS, Verdict.FAIL]


def test_tokens_with_equal_logits_may_take_either_expert(dumps: Path, tmp_path: Path) -> None:
    def equal(logits: Tensor) -> Tensor:
        logits[4] = logits[4, 0]
        return logits

    dump = changed(dumps / "two-of-four", tmp_path / "first", "root.0/output_1.pth", equal)
    dump = changed(dump, tmp_path / "dump", "root.0/output_0.pth", _without_row_four)
    assert verdicts(dump)[0] is Verdict.PASS


def _without_row_four(values: Tensor) -> Tensor:
    values[0, 4] = 0
    return values


def test_the_activation_is_the_recorded_one(dumps: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    copytree(dumps / "all", folder)
    (path,) = folder.rglob("model_tree.json")
    path.write_text(path.read_text().replace('"alpha": 1.702', '"alpha": 1.0'))
    assert json.loads(path.read_text())
    assert verdicts(folder) == [Verdict.FAIL, Verdict.PASS]


def test_a_layer_with_some_of_the_experts_is_not_judged(dumps: Path, tmp_path: Path) -> None:
    dump = dumps / "all"
    for name in ("gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks",
                 "down_proj_scales"):  # fmt: skip
        folder = tmp_path / name
        dump = changed(dump, folder, f"root.0.experts.{name}.pth", lambda x: x[:2].clone())
    (layer,) = (one for one in open_dump(dump).operations() if one.name == "root.0")
    assert isinstance(case_of(layer, whole=True), NoCase)


def test_weights_are_saved_as_a_checkpoint_has_them(dumps: Path) -> None:
    """Real numbers by OCP Microscaling Formats 1.0: E2M1 times a power of two."""
    every = {each.stem: each for each in open_dump(dumps / "all").weights()}
    blocks, scales = (
        every[f"root.0.experts.down_proj_{name}"].torch().numpy() for name in ("blocks", "scales")
    )
    assert (blocks.shape, scales.shape) == ((4, 64, 3, 16), (4, 64, 3))
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    number = table[blocks[1, 5, 2, 7] >> 4] * 2.0 ** (int(scales[1, 5, 2]) - 127)
    (layer,) = (one for one in open_dump(dumps / "all").operations() if one.name == "root.0")
    real = dequantised(layer.parameters)["root.0.experts.down_proj"].tensor.nd()
    assert real[1, 2 * 32 + 2 * 7 + 1, 5] == number
