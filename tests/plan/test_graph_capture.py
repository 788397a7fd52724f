"""Estimates for compiled graphs are what captures then write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ait_llm.core import StepRange
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import sessions
from ait_llm.dump.fx_backend import backend_of
from ait_llm.dump.inject.compile_calls import fx_options
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.plan.graph_survey import GraphSizes, read_graph_survey
from ait_llm.plan.proposals import proposals

Written = Callable[[Path], tuple[Counter[str], Counter[str]]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(x)))


def run(options: FxOptions) -> Path:
    """Call a compiled block seven times under a capture."""
    torch._dynamo.reset()
    compiled = torch.compile(Block().eval(), backend=backend_of(options))
    with torch.no_grad():
        for _ in range(7):
            compiled(torch.zeros(4, 64))
    sessions.get(options).close("exit")
    return options.output


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> GraphSizes:
    folder = tmp_path_factory.mktemp("survey")
    steps = StepRange.parse("0,2,4,4")
    survey = run(FxOptions(folder, steps, survey=True))
    room = sum(path.stat().st_blocks * 512 for path in survey.rglob("*.npy"))
    length = sum(path.stat().st_size for path in survey.rglob("*.npy"))
    assert room < length  # there are no data in them
    return GraphSizes(read_graph_survey(survey))


@pytest.mark.parametrize(
    "options",
    [{}, {"inputs": False}, {"type_prefixes": ("addmm", "t.")}, {"steps": StepRange.parse("2,5")}],
)
def test_files_of_nodes_are_told_to_the_byte(
    sizes: GraphSizes, written: Written, tmp_path: Path, options: dict[str, Any]
) -> None:
    settings = TorchSettings(
        tmp_path, types=("fx",), **{"steps": StepRange.parse("all"), **options}
    )
    estimate = sizes.estimate(settings)
    real, files = written(run(fx_options(settings)))
    assert round(estimate.parts["tensors"].bytes) == real["tensors"]
    assert estimate.files == files.total()
    assert estimate.bytes == pytest.approx(real.total(), rel=0.02)
    assert estimate.steps == (4 if "steps" in options else 7)


def test_proposals_for_graphs_take_fewer_sides_and_steps(sizes: GraphSizes, tmp_path: Path) -> None:
    asked = TorchSettings(tmp_path, types=("fx",), steps=StepRange.parse("all"))
    found, smallest = proposals(sizes, asked, sizes.estimate(asked).bytes // 3)
    assert found
    assert isinstance(smallest.options, TorchSettings)
    assert not smallest.options.inputs
    assert smallest.options.steps == StepRange.parse("0,0")
