"""Nodes of FX graphs, each computed again in float64 from its recorded arguments."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.dump import fx_backend
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.selection import Wanted

RECORDED = Path(__file__).parents[1] / "data" / "torchair" / "fx_fp16_dynamic.tar.xz"
STEP = "graph_1/0"
Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """One execution of a graph that torchair recorded."""
    with tarfile.open(RECORDED) as archive:
        for member in archive.getmembers():
            if f"/{STEP}/" in member.name:
                archive.extract(member, tmp_path, filter="data")
    (found,) = tmp_path.glob("*")
    return found


def change_output(dump: Path, target: str, change: Change) -> str:
    """Replace the result of the first such node; gives its name."""
    path = min(dump.glob(f"**/{STEP}/*-{target}*.OUTPUT.0.*.npy"))
    values = np.load(path)
    np.save(path, change(values).astype(values.dtype))
    return path.name.partition("-")[0]


def test_nodes_of_a_healthy_run_are_right(dump: Path, tmp_path: Path) -> None:
    words = ["llm", "opcheck", "-i", str(dump), "-o", str(tmp_path / "report"), "--json"]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 0, result.output
    report = opcheck(dump)
    assert report.standard == "contract"
    assert report.checked == len(report.items) > 150
    kinds = {item.op_type for item in report.items}
    assert {"aten.addmm.default", "aten._softmax.default", "aten._to_copy.default"} <= kinds


@pytest.mark.parametrize(
    ("target", "change"),
    [
        ("aten.addmm.default", lambda values: values * 1.01),
        ("aten.bmm.default", lambda values: values * 1.01),
        ("aten._softmax.default", lambda values: np.roll(values, 1, -1)),
        ("aten.add.Tensor", lambda values: values * 1.01),
        ("aten.mul.Tensor", lambda values: values + values.max()),
    ],
)
def test_a_wrong_node_is_the_only_one_named(target: str, change: Change, dump: Path) -> None:
    name = change_output(dump, target, change)
    report = opcheck(dump, wanted=Wanted(names=(target,)))
    failed = {item.op_id for item in report.items if item.verdict is Verdict.FAIL}
    assert failed == {f"{name}@0"}
    assert report.exit_code() == 1


def test_a_form_that_no_dump_records_is_known_by_the_result(tmp_path: Path) -> None:
    folder = tmp_path / "worldsize1_global_rank0/graph_1/0"
    folder.mkdir(parents=True)
    x = torch.randn(3, 16)
    found = torch.nn.functional.gelu(x, approximate="tanh")
    for word, values in (("INPUT", x), ("OUTPUT", found)):
        np.save(folder / f"gelu-aten.gelu.default.{word}.0.20241125192300000001.npy", values)
    report = opcheck(tmp_path)
    assert [item.verdict for item in report.items] == [Verdict.PASS]
    assert "approximate" in report.items[0].note


class Masked(torch.nn.Module):
    """Attention whose mask, made by a node, is a keyword argument."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = x[:, :, :, 0].unsqueeze(2) * 3
        mixed = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask, scale=0.3)
        return mixed, mask + 1


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_tensors_of_keyword_arguments_are_those_of_the_nodes_that_made_them(
    factor: float, tmp_path: Path
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        run = torch.compile(Masked(), backend=fx_backend.capture(tmp_path))
        run(torch.rand(1, 2, 3, 8))
    torch._dynamo.reset()
    (path,) = tmp_path.glob("**/_scaled_dot*.OUTPUT.0.*.npy")
    np.save(path, np.load(path) * np.float32(factor))
    report = opcheck(tmp_path)
    assert not report.unchecked
    failed = [item.op_type for item in report.items if item.verdict is not Verdict.PASS]
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert failed == ([attention] if factor != 1 else [])
