"""Calls of a compiled model where one side compiled again and the other one did not."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ait_llm.dump import fx_backend
from ait_llm.dump.fx.session import sessions
from ait_llm.match.pairing import Pairing, pair_runs
from ait_llm.match.scenario import find_scenario


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.tanh() @ x.transpose(0, 1)).softmax(-1) + 1


def captured(folder: Path, *, dynamic: bool) -> Path:
    torch._dynamo.reset()
    model = torch.compile(Model(), backend=fx_backend.capture(folder), dynamic=dynamic)
    for length in (5, 7, 4):
        model(torch.linspace(0, 1, 8 * length).view(length, 8))
    torch._dynamo.reset()
    sessions._open.pop(folder).close("exit")
    return folder


def paired(golden: Path, mine: Path) -> Pairing:
    return pair_runs(find_scenario(golden, mine))


def test_a_call_answers_the_call_though_its_graph_is_another_one(tmp_path: Path) -> None:
    again = captured(tmp_path / "again", dynamic=False)
    once = captured(tmp_path / "once", dynamic=True)
    for sides in ((again, once), (once, again)):
        found = paired(*sides)
        assert [(pair.golden.step, pair.mine.step) for pair in found.pairs] == [
            (0, 0),
            (1, 1),
            (2, 2),
        ]
        assert found.problems == ()


def test_runs_that_compiled_alike_are_paired_graph_by_graph(tmp_path: Path) -> None:
    sides = [captured(tmp_path / name, dynamic=False) for name in ("one", "other")]
    found = paired(*sides)
    assert [pair.reason for pair in found.pairs] == [f"graph_{n} step 0" for n in (1, 2, 3)]
    assert found.problems == ()
