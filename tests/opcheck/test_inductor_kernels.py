"""Kernels of Inductor, each computed again through the nodes that it fused."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn import functional

from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.dump import inductor_capture
from ait_llm.dump.fx.session import sessions
from ait_llm.opcheck.pipeline import opcheck

WIDTH = 16


class Block(nn.Module):
    """A norm, a gated product, and tokens of any number."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.both = nn.Linear(WIDTH, 2 * WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.rms_norm(x, (WIDTH,), self.norm, 1e-6)
        gate, passed = self.both(y).view(x.shape[0], 2, WIDTH).unbind(1)
        return x + functional.silu(gate) * passed


@pytest.fixture(scope="module", params=[True, False], ids=["weights", "no-weights"])
def captured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bool]:
    """A capture of two calls of other lengths, and whether it has the weights."""
    dump = tmp_path_factory.mktemp("inductor") / "dump"
    torch._dynamo.reset()
    torch.manual_seed(0)
    _load_inductor()
    backend = inductor_capture.capture(dump, weights=request.param)
    run = torch.compile(Block().eval(), backend=backend, dynamic=True)
    with torch.no_grad():
        for rows in (5, 3):
            run(torch.randn(rows, WIDTH))
    torch._dynamo.reset()
    sessions._open.pop(dump).close("exit")
    return dump, request.param


def _load_inductor() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch imports what it deprecates
        importlib.import_module("torch._inductor.compile_fx")


def command(dump: Path, report: Path) -> tuple[int, str]:
    """Exit code of the command, and what it printed."""
    result = CliRunner().invoke(ait, ["llm", "opcheck", "-i", str(dump), "-o", str(report)])
    return result.exit_code, " ".join(result.output.split())


def test_kernels_of_a_healthy_run_are_right(captured: tuple[Path, bool], tmp_path: Path) -> None:
    dump, has_weights = captured
    code, output = command(dump, tmp_path)
    assert code == 0, output
    report = opcheck(dump)
    assert {item.verdict for item in report.items} == {Verdict.PASS}
    kinds = {item.step for item in report.items}
    assert kinds == {0, 1}
    if has_weights:
        assert not report.unchecked
        assert any("mm" in item.op_type for item in report.items)
    else:
        assert "read weights or sizes that were not saved; dump with --weights" in output


def test_a_wrong_kernel_is_the_only_one_named(captured: tuple[Path, bool], tmp_path: Path) -> None:
    dump, _ = captured
    copy = copytree(dump, tmp_path / "dump")
    fused = sorted(copy.glob("**/1/*silu*.OUTPUT.0.*.npy"))[-1]
    values = np.load(fused)
    fused.unlink()  # a file of its own: what the next kernel reads may be a link to it
    np.save(fused, values * np.float32(1.01))
    code, output = command(copy, tmp_path / "report")
    assert code == 1, output
    report = opcheck(copy)
    failed = {item.op_id for item in report.items if item.verdict is Verdict.FAIL}
    assert failed == {f"{fused.name.partition('-')[0]}@0"}


def test_each_weight_is_saved_once(captured: tuple[Path, bool]) -> None:
    dump, has_weights = captured
    shapes = [path for path in dump.glob("**/*.npy") if np.load(path).shape == (2 * WIDTH, WIDTH)]
    assert len(shapes) == (2 if has_weights else 0)
    assert len({path.stat().st_ino for path in shapes}) == has_weights


def test_fused_attention_that_a_program_calls_is_judged(tmp_path: Path) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            parts = self.both(x).view(1, -1, 2, 3, WIDTH // 2).transpose(1, 2).unbind(3)
            turned = (functional.silu(each) for each in parts)
            return functional.scaled_dot_product_attention(*turned, is_causal=True) * 2

    torch._dynamo.reset()
    _load_inductor()
    backend = inductor_capture.capture(tmp_path / "dump", weights=True)
    run = torch.compile(Attention().eval(), backend=backend)
    with torch.no_grad():
        run(torch.randn(1, 5, WIDTH))
    torch._dynamo.reset()
    sessions._open.pop(tmp_path / "dump").close("exit")
    items = opcheck(tmp_path / "dump", jobs=1).items
    assert {item.verdict for item in items} == {Verdict.PASS}
    assert any("attention" in item.title for item in items), [item.title for item in items]
