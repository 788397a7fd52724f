"""Layers of experts of vLLM, recorded as its kernels computed them, judged alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

KNOWN = (
    "softmax",
    "softmax-float32",
    "not-to-one",
    "gelu-bias",
    "gelu-tanh",
    "groups",
    "groups-bias",
    "tiles",
)
UNKNOWN = "have experts of which the capture does not tell enough"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(DATA / "fused-experts.tar.xz", tmp_path_factory.mktemp("experts"))


def checked(dump: Path) -> OpcheckReport:
    return opcheck(dump, jobs=1)


def verdicts(dump: Path) -> list[Verdict]:
    return [item.verdict for item in checked(dump).items]


def changed(dump: Path, folder: Path, pattern: str, how: Callable[[Tensor], Tensor]) -> Path:
    copytree(dump, folder)
    (path,) = folder.rglob(pattern)
    values = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(how(values.clone()), path)
    return folder


def stated(dump: Path, folder: Path, before: str, after: str) -> Path:
    """The dump with another definition."""
    copytree(dump, folder)
    (tree,) = folder.rglob("model_tree.json")
    text = json.dumps(json.loads(tree.read_text()))
    assert before in text
    tree.write_text(text.replace(before, after))
    return folder


@pytest.mark.parametrize("name", KNOWN)
def test_recorded_experts_are_right(dumps: Path, name: str) -> None:
    assert verdicts(dumps / name) == [Verdict.PASS]


def one_row(values: Tensor) -> Tensor:
    values[3] *= 1.5
    return values


def one_element(values: Tensor) -> Tensor:
    values[3, int(values[3].float().abs().argmax())] *= 2
    return values


@pytest.mark.parametrize("how", [one_row, one_element])
@pytest.mark.parametrize("name", KNOWN)
def test_a_wrong_row_or_element_of_experts_is_found(
    dumps: Path, tmp_path: Path, name: str, how: Callable[[Tensor], Tensor]
) -> None:
    dump = changed(dumps / name, tmp_path / "dump", "root.experts/output.pth", how)
    assert verdicts(dump) == [Verdict.FAIL]


@pytest.mark.parametrize("weight", ["w13_weight", "w2_weight"])
@pytest.mark.parametrize("name", ["softmax", "groups-bias", "tiles"])
def test_weights_of_experts_in_another_order_are_found(
    dumps: Path, tmp_path: Path, name: str, weight: str
) -> None:
    dump = changed(dumps / name, tmp_path / "dump", f"*.{weight}.pth", lambda each: each.roll(1, 0))
    assert verdicts(dump) == [Verdict.FAIL]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("softmax", '"renormalize": true', '"renormalize": false'),
        ("softmax", '"top_k": 2', '"top_k": 1'),
        ("gelu-bias", '"GELU"', '"SILU"'),
        ("groups-bias", '"routed_scaling_factor": 2.5', '"routed_scaling_factor": 2.0'),
        ("groups-bias", '"topk_group": 2', '"topk_group": 4'),
    ],
)
def test_experts_that_compute_otherwise_than_is_stated_are_found(
    dumps: Path, tmp_path: Path, name: str, before: str, after: str
) -> None:
    assert verdicts(stated(dumps / name, tmp_path / "dump", before, after)) == [Verdict.FAIL]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"CPUUnquantizedExperts"', '"FlashInferExperts"'),
        ('"UnquantizedFusedMoEMethod"', '"Fp8MoEMethod"'),
        ('"CPURouter"', '"RoutingSimulatorRouter"'),
        ('.tp_size": 1', '.tp_size": 2'),
        ('.enable_eplb": false', '.enable_eplb": true'),
        ('"gate": null', '"other": null'),
        ('"activation": "SILU"', '"activation": "SITU"'),
        ('"apply_router_weight_on_input": false', '"apply_router_weight_on_input": true'),
    ],
)
def test_experts_of_which_more_would_have_to_be_known_are_counted(
    dumps: Path, tmp_path: Path, before: str, after: str
) -> None:
    dump = stated(dumps / "softmax", tmp_path / "dump", before, after)
    report = opcheck(dump, jobs=1)
    assert not report.items
    assert report.unchecked == {UNKNOWN: 1}


def test_interleaved_gates_are_counted(dumps: Path) -> None:
    assert opcheck(dumps / "interleaved", jobs=1).unchecked == {UNKNOWN: 1}


def test_a_token_whose_experts_score_alike_is_not_held_to_either(
    dumps: Path, tmp_path: Path
) -> None:
    def alike(logits: Tensor) -> Tensor:
        logits[5] = logits[5].sort().values[torch.tensor([7, 6, 6, 0, 1, 2, 3, 4])]
        return logits

    tied = changed(dumps / "softmax", tmp_path / "tied", "root.experts/input_1.pth", alike)
    assert verdicts(tied) == [Verdict.PASS]
    other = changed(tied, tmp_path / "other", "root.experts/output.pth", one_element)
    assert verdicts(other) == [Verdict.FAIL]


def test_a_rank_that_does_not_add_up_is_held_to_its_own_experts(
    dumps: Path, tmp_path: Path
) -> None:
    """Of eight experts this rank has the last four; what the others make is not in its result."""
    dump = stated(dumps / "softmax-float32", tmp_path / "own", '.ep_size": 1', '.ep_size": 2')
    (tree,) = dump.rglob("model_tree.json")
    text = tree.read_text().replace('"local_num_experts": 8', '"local_num_experts": 4')
    tree.write_text(text)
    assert opcheck(dump, jobs=1).unchecked == {UNKNOWN: 1}
    tree.write_text(text.replace('skip_final_all_reduce": false', 'skip_final_all_reduce": true'))
    (weights,) = dump.rglob("weights")
    for name in ("w13_weight", "w2_weight"):
        path = weights / f"root.experts.routed_experts.{name}.pth"
        torch.save(torch.load(path, weights_only=True)[4:].clone(), path)
    places = torch.tensor([-1, -1, -1, -1, 0, 1, 2, 3], dtype=torch.int32)
    torch.save(places, weights / "root.experts.routed_experts._expert_map.pth")
    assert verdicts(dump) == [Verdict.FAIL]  # the recording has the sum of all experts
    (call,) = dump.glob("ait_dump/torch_tensors/*/0/root.experts")
    x, logits = (torch.load(call / f"input_{n}.pth", weights_only=True) for n in (0, 1))
    torch.save(_of_last_four(weights, x, logits), call / "output.pth")
    assert verdicts(dump) == [Verdict.PASS]


def _of_last_four(weights: Path, x: Tensor, logits: Tensor) -> Tensor:
    """Token by token, from weights of the kernel with vectors: 16 rows lie together."""
    first, second = (
        torch.load(weights / f"root.experts.routed_experts.{name}_weight.pth", weights_only=True)
        for name in ("w13", "w2")
    )

    def product(packed: Tensor, values: Tensor) -> Tensor:
        rows, columns = packed.shape
        flat = packed.flatten()
        places = torch.arange(columns) * 16
        return torch.stack(
            [values @ flat[row // 16 * 16 * columns + row % 16 + places] for row in range(rows)]
        )

    made = torch.zeros_like(x, dtype=torch.float64)
    for token, (own, scores) in enumerate(zip(x.double(), logits.double(), strict=True)):
        best = scores.topk(2)
        for share, expert in zip(best.values.softmax(0), best.indices.tolist(), strict=True):
            if expert >= 4:
                gate, up = product(first[expert - 4].double(), own).chunk(2)
                made[token] += share * product(
                    second[expert - 4].double(), gate.sigmoid() * gate * up
                )
    return made.to(x.dtype)
