"""One decoder on ATB in several layouts, against itself, FX nodes and the graph engine.

Sums of residuals stand alone, or a norm adds up what it reads and hands the sum on; rotary
positions turn the halves of a head, or neighbours, whose weights lie in another order then. The
graph engine and FX ran the recorded decoder, whose weights the decoder on ATB has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from engine_twin import engine_twin, requests
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.cli.main import ait
from tests.match.programs.atb_program import AtbProgram, float16
from tests.match.programs.decoder import Decoder, Shape, rotary_tables
from tests.match.programs.families import _llama_layer

HEADS, KV_HEADS, DIM, LAYERS = 4, 2, 8, 2
HALVES = Shape(HEADS, KV_HEADS, DIM, eps=1e-6)
LAYOUTS = {
    "apart": HALVES,
    "streams": replace(HALVES, streams=True),
    "pairs": replace(HALVES, rope=DIM),
    "streams-pairs": replace(HALVES, streams=True, rope=DIM),
    "pairs-of-halves": replace(HALVES, rope=DIM),  # with the weights of the other layout
}
Change = Callable[[list[Tensor]], None]


class Program(AtbProgram):
    """A program whose heads are smaller than the library turns; a plugin does it instead.

    Args:
        root: of the dump.
        fault: the operator, its number among those of its kind, and what is done to its results.
    """

    def __init__(self, root: Path, fault: tuple[str, int, Change] | None = None) -> None:
        super().__init__(root)
        self._fault = fault
        self._seen: dict[str, int] = {}

    def run(self, param: Any, *inputs: Tensor) -> Any:
        if not isinstance(param, torch_atb.RopeParam):
            return super().run(param, *inputs)
        query, key, cos, sin, _ = inputs
        pairs = param.rotary_coeff != 2
        results = [_turned(each, cos, sin, pairs=pairs) for each in (query, key)]
        self.plugin("RopeOperation", inputs, results, rotaryCoeff=param.rotary_coeff)
        return results

    def _leaf(
        self,
        kind: str,
        params: str | None,
        inputs: list[Tensor],
        outputs: list[Tensor],
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        number = self._seen[kind] = self._seen.get(kind, -1) + 1
        if self._fault is not None and self._fault[:2] == (kind, number):
            self._fault[2](outputs)
        super()._leaf(kind, params, inputs, outputs, names)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, pairs: bool) -> Tensor:
    heads = x.float().reshape(len(x), -1, DIM)
    if pairs:
        other = torch.stack([-heads[..., 1::2], heads[..., ::2]], -1).flatten(-2)
    else:
        first, second = heads.chunk(2, -1)
        other = torch.cat([-second, first], -1)
    turned = heads * cos[:, None].float() + other * sin[:, None].float()
    return turned.half().reshape(x.shape)


def _in_pairs(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of queries and keys with the numbers of both halves of a head side by side."""
    found = dict(state)
    for name, tensor in state.items():
        if re.search(r"self_attn\.[qk]_proj", name):
            heads = tensor.unflatten(0, (-1, 2, DIM // 2)).transpose(1, 2)
            found[name] = heads.flatten(0, 2).contiguous()
    return found


@pytest.fixture(scope="module")
def run(
    recorded_decoder: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The folder of a program, by its name; of ATB with a fault, if one is given."""
    model, ids = engine_twin(recorded_decoder["fx"]), requests(recorded_decoder["fx"])[0]
    plain = {name: float16(tensor) for name, tensor in model.state_dict().items()}
    known: dict[str, Path] = {**recorded_decoder, "ge": recorded_decoder["fused"]}

    def found(name: str, fault: tuple[str, int, Change] | None = None) -> Path:
        if fault is None and name in known:
            return known[name]
        shape = LAYOUTS[name]
        state = plain if shape.rope == 2 or name == "pairs-of-halves" else _in_pairs(plain)
        folder = tmp_path_factory.mktemp(name)
        tables = rotary_tables(DIM, 32, interleaved=shape.rope != 2)
        Decoder(Program(folder, fault), shape, tables).prefill(
            [ids.reshape(-1)],
            state["model.embed_tokens.weight"],
            [_llama_layer(state, number) for number in range(LAYERS)],
            (state["model.norm.weight"],),
            state["lm_head.weight"],
        )
        if fault is None:
            known[name] = folder
        return folder

    return found


def _compare(golden: Path, mine: Path, output: Path) -> Result:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1"]
    return CliRunner().invoke(ait, [*map(str, words), "--steps", "0:0"])


PAIRS = [
    ("apart", "streams", 90),
    ("streams", "apart", 90),
    ("apart", "pairs", 90),
    ("streams-pairs", "apart", 90),
    ("fx", "streams", 60),
    ("streams", "fx", 60),
    ("fx", "pairs", 60),
    ("fx", "streams-pairs", 60),
    ("ge", "streams", 60),
    ("streams", "ge", 60),
    ("ge", "pairs", 60),
    ("ge", "streams-pairs", 60),
]


@pytest.mark.parametrize(("golden", "mine", "least"), PAIRS)
def test_healthy_layouts_pass(
    run: Callable[..., Path], tmp_path: Path, golden: str, mine: str, least: int
) -> None:
    result = _compare(run(golden), run(mine), tmp_path)
    assert result.exit_code == 0, result.output
    counted = re.search(r"([0-9,]+) PASS", result.output)
    assert counted is not None
    assert int(counted[1].replace(",", "")) >= least, result.output


def _scaled(results: list[Tensor]) -> None:
    results[0].mul_(1.1)


def _sum(results: list[Tensor]) -> None:
    results[1].mul_(1.1)


def _swapped(results: list[Tensor]) -> None:
    results[1].copy_(results[1].roll(1, 0))


FAULTS = {
    "norm": ("streams", ("RmsNormOperation", 2, _scaled)),
    "sum": ("streams", ("RmsNormOperation", 3, _sum)),
    "rotary": ("pairs", ("RopeOperation", 1, _swapped)),
    "product": ("streams-pairs", ("LinearOperation", 5, _scaled)),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("golden", ["apart", "fx", "ge"])
def test_one_fault_is_named(
    run: Callable[..., Path], tmp_path: Path, golden: str, fault: str
) -> None:
    layout, (kind, number, change) = FAULTS[fault]
    result = _compare(run(golden), run(layout, (kind, number, change)), tmp_path)
    assert result.exit_code == 1, result.output
    started = re.search(r"^  started +(\S+)", result.output, re.MULTILINE)
    assert started is not None, result.output
    assert started[1].startswith(kind), result.output


@pytest.mark.parametrize("golden", ["apart", "fx"])
def test_another_rotary_layout_of_the_same_weights_is_a_fault(
    run: Callable[..., Path], tmp_path: Path, golden: str
) -> None:
    result = _compare(run(golden), run("pairs-of-halves"), tmp_path)
    assert result.exit_code == 1, result.output
