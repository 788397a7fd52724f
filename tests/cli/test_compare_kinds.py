"""``ait llm compare`` on dumps of two kinds: a healthy pair passes, a fault of mine is named."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from engine_twin import capture_twin, engine_twin, requests
from relation_programs import Decoder, ask, plain
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait
from ait_llm.dump import fx_backend, inductor_capture
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dump.fx.session import sessions

DATA = Path(__file__).resolve().parents[1] / "data"
FAULT = "layers.1.mlp.down_proj"
PRODUCT = r"\s+(t_13|(\S*[._])?(mm|linear))"  # what reads the wrong weight in graphs and calls


def _compare(golden: Path, mine: Path, output: Path) -> Result:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1"]
    return CliRunner().invoke(ait, [str(word) for word in words])


def _passed(result: Result) -> int:
    """How many tensors pass."""
    counted = re.search(r"([0-9,]+) PASS", result.output)
    assert counted is not None, result.output
    return int(counted[1].replace(",", ""))


def _hooked(model: nn.Module, folder: Path, *, operators: bool) -> None:
    config = DumpConfig(dump_path=folder, operators=operators, weights=True)
    with torch.no_grad(), register_hook(model, config):
        ask(model)


def _compiled(model: nn.Module, folder: Path, *, kernels: bool) -> None:
    tool = inductor_capture if kernels else fx_backend
    torch._dynamo.reset()
    with torch.no_grad():
        ask(torch.compile(model, backend=tool.capture(folder)))  # type: ignore[arg-type]
    torch._dynamo.reset()
    session = sessions._open.pop(folder, None)
    if session is not None:
        session.close("exit")


def _calls(model: nn.Module, folder: Path) -> None:
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(task="tensor", level="L1", dump_path=str(folder))
    with torch.no_grad():
        debugger.start(model)
        ask(model)
        debugger.stop()
        debugger.step()
    PrecisionDebugger._reset()


KINDS: dict[str, Callable[[Decoder, Path], None]] = {
    "modules": partial(_hooked, operators=False),
    "operators": partial(_hooked, operators=True),
    "fx": partial(_compiled, kernels=False),
    "inductor": partial(_compiled, kernels=True),
    "api": _calls,
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    """Captures of one program, healthy or not, each made once."""
    folder = tmp_path_factory.mktemp("kinds")

    def found(kind: str, faulty: bool = False) -> Path:
        place = folder / f"{kind}-{faulty}"
        if not place.exists():
            model = plain("separate")
            if faulty:
                model.get_parameter(f"{FAULT}.weight").mul_(1.5)
            KINDS[kind](model, place)
        return place

    return found


PAIRS = [
    ("modules", "operators"),
    ("modules", "fx"),
    ("operators", "fx"),
    ("fx", "inductor"),
    ("inductor", "modules"),
    ("api", "modules"),
    ("modules", "api"),
    ("api", "fx"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where Inductor is loaded
@pytest.mark.parametrize(("golden", "mine"), PAIRS)
def test_one_program_in_two_kinds(
    captures: Callable[[str, bool], Path], tmp_path: Path, golden: str, mine: str
) -> None:
    healthy = _compare(captures(golden, False), captures(mine, False), tmp_path / "healthy")
    assert healthy.exit_code == 0, healthy.output
    assert _passed(healthy) > 30
    bad = _compare(captures(golden, False), captures(mine, True), tmp_path / "bad")
    assert bad.exit_code == 1, bad.output
    started = bad.output.partition("started")[2].partition("worst")[0]
    assert "down_proj" in started or re.match(PRODUCT, started), bad.output


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recorded runs of the graph engine and of FX nodes, and modules of the same model."""
    found = {}
    for name, archive in (
        ("ge", "ge_dump/ge_run_fused"),
        ("ge-plain", "ge_dump/ge_run_fusion_off"),
        ("fx", "torchair/fx_fp16_dynamic"),
    ):
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(DATA / f"{archive}.tar.xz") as file:
            file.extractall(folder, filter="data")
        [found[name]] = folder.iterdir()
    found["modules"] = tmp_path_factory.mktemp("modules")
    capture_twin(found["modules"], engine_twin(found["fx"]), requests(found["fx"]))
    return found


@pytest.mark.parametrize(
    ("golden", "mine"),
    [("fx", "ge"), ("ge", "fx"), ("ge-plain", "ge"), ("modules", "ge"), ("ge", "modules")],
)
def test_the_graph_engine(engine: dict[str, Path], tmp_path: Path, golden: str, mine: str) -> None:
    result = _compare(engine[golden], engine[mine], tmp_path)
    assert result.exit_code == 0, result.output
    assert _passed(result) > 200
