"""An operator that golden has and mine lacks is told as that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import OTHERS_FIT, Comparison, Report, Side, TensorRecord, Verdict
from ait_llm.report.terminal import terminal_lines

_IDS = [[3, 4, 9, 12, 30, 7]]


class Block(nn.Module):
    """Attention of one head and an MLP, written out; one step of it may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16, bias=False)
        self.bias = nn.Parameter(torch.randn(16))
        self._left_out = ""  # no definition of it

    def forward(self, x: Tensor) -> Tensor:
        left_out = self._left_out
        normed = self.norm(x)
        scores = self.q(normed) @ self.k(normed).transpose(-1, -2)
        if left_out != "scale":
            scores = scores * 0.25
        attended = self.o(torch.softmax(scores, -1) @ self.v(normed))
        if left_out != "bias":
            attended = attended + self.bias
        x = attended if left_out == "residual" else x + attended
        gate = self.up(self.norm2(x))
        made = self.down(gate if left_out == "activation" else torch.nn.functional.gelu(gate))
        return made if left_out == "last residual" else x + made


class Net(nn.Module):
    """Three blocks between an embedding and a capped head."""

    def __init__(self, left_out: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.Sequential(Block(), Block(), Block())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)
        self._left_out = left_out
        self.layers[1].__dict__["_left_out"] = left_out

    def forward(self, ids: Tensor) -> Tensor:
        left_out = self._left_out
        x = self.embed(ids)
        logits = self.head(self.norm(self.layers(x if left_out == "embedding scale" else x * 4.0)))
        return logits if left_out == "cap" else torch.tanh(logits / 3) * 3


def captured(folder: Path, left_out: str, *, modules: bool) -> Path:
    net = Net(left_out).eval()
    config = DumpConfig(dump_path=folder, operators=True, modules=modules, weights=True)
    with torch.no_grad(), register_hook(net, config):
        net(torch.tensor(_IDS))
    return folder


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize(
    ("left_out", "module", "lacking"),
    [
        ("scale", "root.layers.1", "`aten.mul.Tensor`"),
        ("bias", "root.layers.1", "`aten.add.Tensor`"),
        ("residual", "root.layers.1", "`aten.add.Tensor@1`"),
        ("last residual", "root.layers.1", "`aten.add.Tensor@2`"),
        ("activation", "root.layers.1", "`aten.gelu.default`"),
        ("embedding scale", "root", "`aten.mul.Tensor`"),
    ],
)
def test_an_operator_that_mine_lacks_is_named_with_its_module(
    tmp_path: Path, left_out: str, module: str, lacking: str, modules: bool
) -> None:
    golden = captured(tmp_path / "golden", "", modules=modules)
    found = compare(golden, captured(tmp_path / "mine", left_out, modules=modules), jobs=1)
    (origin,) = found.origins
    assert (found.exit_code(), origin.kind) == (1, "code between modules")
    assert origin.evidence.startswith(f"the code of `{module}` leaves out {lacking}: ")


def test_operators_that_mine_lacks_one_after_the_other_are_named_together(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", "", modules=True)
    (origin,) = compare(golden, captured(tmp_path / "mine", "cap", modules=True), jobs=1).origins
    assert origin.evidence.startswith(
        "the code of `root` leaves out `aten.div.Tensor` and `aten.tanh.default` and "
        "`aten.mul.Tensor@1`: it hands on what `aten.mm.default` of `root.head` makes"
    )


def test_a_pair_that_others_fit_as_well_is_not_told_as_another_choice() -> None:
    record = TensorRecord("op", "0", "aten.mul.Tensor", "outtensor0", "out", 0, "")
    doubtful = Comparison(
        record, record, Verdict.SKIPPED, f"another {OTHERS_FIT}", comparable=False
    )
    side = Side("dump", "torch")
    found = Report(side, side, "torch-torch", (Comparison(record, record, Verdict.PASS), doubtful))
    assert (found.left_out, found.doubtful) == (0, 1)
    said = " ".join("\n".join(terminal_lines(found)).split())
    assert "1 tensor that differ, and that several of the other program may answer" in said
    assert "another choice" not in said


@pytest.mark.parametrize(("strict", "title"), [(False, "PASS"), (True, "INCOMPLETE")])
def test_what_strict_counts_as_missing_is_in_the_title(strict: bool, title: str) -> None:
    record = TensorRecord("op", "0", "aten.mul.Tensor", "outtensor0", "out", 0, "")
    alone = Comparison(record, None, Verdict.SKIPPED, "no counterpart", comparable=False)
    side = Side("dump", "torch")
    found = Report(side, side, "torch-torch", (Comparison(record, record, Verdict.PASS), alone))
    assert terminal_lines(found, strict=strict)[0].startswith(f"ait llm compare: {title}")
    assert found.exit_code(strict=strict) == (3 if strict else 0)
