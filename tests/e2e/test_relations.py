"""Programs that hold the same values in other forms: a healthy pair passes, one fault is named."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from matching_truth import adapters, families
from matching_truth.drives import Generation, once
from relation_programs import ask, experts, latent, plain, restored, scaled, stored
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

Make = Callable[[], nn.Module]
Drive = Callable[[nn.Module], None]
PROGRAM = Path(__file__).with_name("programs") / "decoder_ranks.py"


def _compare(golden: Path, mine: Path, output: Path) -> Result:
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1"]
    return CliRunner().invoke(ait, [str(word) for word in words])


def _captured(model: nn.Module, drive: Drive, folder: Path, *, operators: bool) -> Path:
    config = DumpConfig(dump_path=folder, operators=operators, weights=True, token_range=range(8))
    with torch.no_grad(), register_hook(model.eval(), config):
        drive(model)
    return folder


def _started(result: Result) -> str:
    """The operator in which the error is said to start."""
    assert result.exit_code == 1, result.output
    found = re.search(r"^  started +(\S+)", result.output, re.MULTILINE)
    assert found is not None, result.output
    return found[1]


def _passed(result: Result, least: int) -> None:
    assert result.exit_code == 0, result.output
    counted = re.search(r"([0-9,]+) PASS", result.output)
    assert counted is not None, result.output
    assert int(counted[1].replace(",", "")) >= least, result.output
    assert "started" not in result.output


def _checked(
    golden: Make, mine: Make, fault: str, folder: Path, *, operators: bool, least: int
) -> None:
    """Both directions pass, and the fault of mine is found at its module."""
    sides = [
        _captured(make(), ask, folder / name, operators=operators)
        for name, make in (("golden", golden), ("mine", mine))
    ]
    _passed(_compare(*sides, folder / "out"), least)
    _passed(_compare(*sides[::-1], folder / "out"), least)
    bad = _captured(scaled(mine(), fault, 3.0), ask, folder / "bad", operators=operators)
    found = _started(_compare(sides[0], bad, folder / "out"))
    assert found == (f"root.{fault}.aten.mul.Tensor" if operators else f"root.{fault}")


LEVELS = pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])


@LEVELS
def test_joined_projections(tmp_path: Path, operators: bool) -> None:
    make = partial(plain, "separate"), partial(plain, "joined")
    _checked(*make, "layers.1.self_attn.o_proj", tmp_path, operators=operators, least=85)


@LEVELS
@pytest.mark.parametrize(
    ("ways", "fault"),
    [
        (("joined", "apart"), "layers.1.mlp.experts.2.down_proj"),
        (("apart", "joined"), "layers.1.mlp.gate"),
    ],
)
def test_experts_apart_and_joined(
    tmp_path: Path, operators: bool, ways: tuple[str, str], fault: str
) -> None:
    make = [partial(experts, way) for way in ways]
    _checked(*make, fault, tmp_path, operators=operators, least=90)


@LEVELS
@pytest.mark.parametrize(
    ("way", "fault"),
    [
        ("joined", "layers.1.self_attn.fused_qkv_a_proj"),
        ("split", "layers.1.self_attn.k_b_proj"),
        ("absorbed", "layers.1.self_attn.q_b_proj"),
    ],
)
def test_latent_attention(tmp_path: Path, operators: bool, way: str, fault: str) -> None:
    make = partial(latent, "separate"), partial(latent, way)
    _checked(*make, fault, tmp_path, operators=operators, least=100)


@pytest.mark.parametrize(
    ("form", "operators"),
    [
        ("int8", False),
        ("compressed", False),
        ("fp8-tensor", False),
        ("fp8-rows", False),
        ("fp8-blocks", False),
        ("mxfp4", False),
        ("compressed", True),
        ("mxfp4", True),
    ],
)
def test_weights_in_few_bits(tmp_path: Path, form: str, operators: bool) -> None:
    mine = partial(stored, form)
    fault = "layers.0.mlp.up_proj"
    _checked(partial(restored, form), mine, fault, tmp_path, operators=operators, least=90)
    real = _captured(plain("separate"), ask, tmp_path / "real", operators=operators)
    _passed(_compare(real, tmp_path / "mine", tmp_path / "out"), 90)


def _equal_everywhere(way: str) -> nn.Module:
    """Projections of a block, both layers, and embedding and head, have the same weights each."""
    model = plain(way)
    for layer in model.layers:
        for module, names, several in (
            (layer.self_attn, ("q_proj", "k_proj", "v_proj"), "qkv_proj"),
            (layer.mlp, ("gate_proj", "up_proj"), "gate_up_proj"),
        ):
            if way == "joined":
                whole = module.get_parameter(f"{several}.weight")
                first = whole.chunk(len(names))[0].clone()
                whole.copy_(torch.cat([first] * len(names)))
            else:
                weights = [module.get_parameter(f"{name}.weight") for name in names]
                for weight in weights[1:]:
                    weight.copy_(weights[0])
    model.layers[1].load_state_dict(model.layers[0].state_dict())
    model.lm_head.weight = model.embed_tokens.weight
    return model


@LEVELS
def test_weights_that_are_equal_contradict_no_name(tmp_path: Path, operators: bool) -> None:
    make = partial(_equal_everywhere, "separate"), partial(_equal_everywhere, "joined")
    fault = "layers.1.self_attn.o_proj"
    _checked(*make, fault, tmp_path, operators=operators, least=80)


CALLS = {
    "left": Generation(4),
    "right": Generation(4, "right"),
    "uncached": Generation(cache=False),
}


@pytest.fixture(scope="module")
def one_request(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prompt and two tokens after it, with a cache."""
    folder = tmp_path_factory.mktemp("calls") / "one"
    return _captured(families.make("llama"), Generation(), folder, operators=False)


@pytest.mark.parametrize("call", CALLS)
def test_rows_padding_and_caches(one_request: Path, tmp_path: Path, call: str) -> None:
    mine = _captured(families.make("llama"), CALLS[call], tmp_path / "mine", operators=False)
    _passed(_compare(one_request, mine, tmp_path / "out"), 200)
    fault = "model.layers.1.mlp.down_proj"
    bad = scaled(families.make("llama"), fault)  # type: ignore[arg-type]
    _captured(bad, CALLS[call], tmp_path / "bad", operators=False)
    assert _started(_compare(one_request, tmp_path / "bad", tmp_path / "out")) == f"root.{fault}"


@LEVELS
def test_an_adapter_merged_and_beside(tmp_path: Path, operators: bool) -> None:
    def apart() -> nn.Module:
        return adapters.with_lora(families.make("llama"))

    merged = _captured(
        adapters.merge(apart(), False), once, tmp_path / "golden", operators=operators
    )
    mine = _captured(apart(), once, tmp_path / "mine", operators=operators)
    _passed(_compare(merged, mine, tmp_path / "out"), 100)
    fault = "model.layers.1.self_attn.o_proj"
    bad = scaled(apart(), fault)  # type: ignore[arg-type]
    _captured(bad, once, tmp_path / "bad", operators=operators)
    found = _started(_compare(merged, tmp_path / "bad", tmp_path / "out"))
    assert found == (f"root.{fault}.aten.mul.Tensor" if operators else f"root.{fault}")


@pytest.mark.parametrize(
    ("form", "operators"),
    [
        (adapters.OneModule, False),
        (adapters.Unscaled, False),
        (adapters.ByRank, False),
        (adapters.Around, False),
        (adapters.OneModule, True),
        (adapters.ByRank, True),
    ],
)
def test_an_adapter_that_a_layer_writes_out(
    tmp_path: Path, form: type[nn.Module], operators: bool
) -> None:
    def apart() -> nn.Module:
        return adapters.with_lora(families.make("llama"))

    merged = _captured(
        adapters.merge(apart(), False), once, tmp_path / "golden", operators=operators
    )
    mine = _captured(
        adapters.written_out(apart(), form), once, tmp_path / "mine", operators=operators
    )
    _passed(_compare(merged, mine, tmp_path / "out"), 100)
    _passed(_compare(mine, merged, tmp_path / "out"), 100)
    fault = "model.layers.1.self_attn.v_proj"
    bad = scaled(adapters.written_out(apart(), form), fault)  # type: ignore[arg-type]
    _captured(bad, once, tmp_path / "bad", operators=operators)
    found = _started(_compare(merged, tmp_path / "bad", tmp_path / "out"))
    assert found in (f"root.{fault}.aten.mul.Tensor", f"root.{fault}")


@pytest.mark.parametrize(
    ("level", "golden", "mine", "least"),
    [
        ("module", "two", "four", 360),
        ("op", "one", "two", 950),
    ],
)
def test_shares_of_ranks(tmp_path: Path, level: str, golden: str, mine: str, least: int) -> None:
    runs = golden, mine, f"{mine}-bad"
    subprocess.run([sys.executable, PROGRAM, tmp_path, level, *runs], check=True)
    _passed(_compare(tmp_path / golden, tmp_path / mine, tmp_path / "out"), least)
    found = _started(_compare(tmp_path / golden, tmp_path / f"{mine}-bad", tmp_path / "out"))
    assert found.startswith("root.layers.1.mlp.up_proj")
