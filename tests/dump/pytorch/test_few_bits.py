"""A capture without weights says what keeping them in few bits has cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.pytorch.few_bits import known_rounding, rounding

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]
QCONFIGS = {
    "per tensor": torch.ao.quantization.default_dynamic_qconfig,
    "per channel": torch.ao.quantization.per_channel_dynamic_qconfig,
}


class Stored(nn.Module):
    """A weight as it is given, and buffers beside it."""

    def __init__(self, weight: Tensor, **buffers: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


def broken() -> nn.Module:
    """A quantised product that has lost what was packed."""
    made = torch.ao.nn.quantized.dynamic.Linear(4, 4)
    del made._packed_params
    return made


class WithoutHash(Stored):
    """Equal where its weights are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithoutHash) and torch.equal(self.weight, other.weight)

    __hash__ = None  # type: ignore[assignment]


def linear(seed: int = 1) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(96, 320).eval()


def distance(real: Tensor, stored: Tensor) -> float:
    return float((real.double() - stored.double()).norm() / real.double().norm())


@pytest.mark.parametrize("turned", [False, True])
def test_int8_with_a_scale_for_each_row_costs_what_was_lost(turned: bool) -> None:
    real = linear().weight.detach()
    scale = real.abs().amax(-1, keepdim=True) / 127
    whole = torch.round(real / scale).to(torch.int8)
    stored = Stored(whole.t().contiguous().t() if turned else whole)
    assert rounding(stored) == pytest.approx(distance(real, whole * scale), rel=0.1)


@pytest.mark.parametrize("name", QCONFIGS)
def test_what_torch_ao_has_packed_costs_what_was_lost(name: str) -> None:
    model = nn.Sequential(linear())
    real = model[0].weight.detach()
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear: QCONFIGS[name]}, inplace=True)
    lost = distance(real, model[0].weight().dequantize())
    assert rounding(model[0]) == pytest.approx(lost, rel=0.1)


def test_tables_of_embeddings_cost_what_was_lost() -> None:
    torch.manual_seed(1)
    table = nn.Embedding(50, 96)
    real = table.weight.detach()
    settings = torch.ao.quantization
    for bits, qconfig in (
        (8, settings.float_qparams_weight_only_qconfig),
        (4, settings.float_qparams_weight_only_qconfig_4bit),
    ):
        table.qconfig = qconfig
        stored = torch.ao.nn.quantized.Embedding.from_float(table)
        lost = distance(real, stored.weight().dequantize())
        assert rounding(stored) == pytest.approx(lost, rel=0.1 if bits == 8 else 0.8)


def test_a_quantised_parameter_costs_its_own_steps() -> None:
    real = linear().weight.detach()
    stored = nn.Module()
    stored.register_buffer("weight", torch.quantize_per_tensor(real, 0.01, 5, torch.qint8))
    lost = distance(real, stored.weight.dequantize())
    assert rounding(stored) == pytest.approx(lost, rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_of_eight_bits_cost_at_most_what_is_told(dtype: torch.dtype) -> None:
    real = linear().weight.detach()
    lost = distance(real, real.to(dtype))
    assert lost < rounding(Stored(real.to(dtype))) < 2 * lost


def test_plain_weights_and_whole_numbers_that_are_none_cost_nothing() -> None:
    places = torch.arange(64, dtype=torch.int32).view(8, 8)
    assert rounding(linear()) == 0
    assert rounding(linear().to(torch.bfloat16)) == 0
    assert rounding(Stored(torch.ones(8, 8), position_index=places)) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LazyLinear(4),
        lambda: nn.Linear(2, 3, device="meta"),
        lambda: Stored(torch.empty(0, 4, dtype=torch.int8)),
        lambda: Stored(torch.zeros(3, 4, dtype=torch.int8)),
        broken,
    ],
    ids=["no shape yet", "no memory", "no elements", "zeros", "broken"],
)
def test_weights_without_numbers_cost_nothing(make: Callable[[], nn.Module]) -> None:
    assert rounding(make()) == 0


def test_a_module_without_a_hash_is_looked_at_once() -> None:
    whole = torch.randint(-127, 128, (32, 32), dtype=torch.int8)
    stored = WithoutHash(whole)
    first = known_rounding(stored)
    stored.weight.data = torch.ones_like(whole)
    assert first == known_rounding(stored) != rounding(stored)


def test_the_tree_of_a_capture_has_it_by_module(tmp_path: Path) -> None:
    model = nn.Sequential(linear(), nn.ReLU(), nn.Linear(320, 8)).eval()
    torch.ao.quantization.quantize_dynamic(model, {"0"}, inplace=True)
    with register_hook(model, DumpConfig(dump_path=tmp_path)), torch.no_grad():
        model(torch.ones(2, 96))
    [path] = tmp_path.rglob("model_tree.json")
    tree = json.loads(path.read_text())
    told = {each["name"]: each.get("rounding") for each in tree["children"]}
    assert told == {"root.0": rounding(model[0]), "root.1": None, "root.2": None}


def test_saved_weights_are_those_that_were_packed(tmp_path: Path) -> None:
    from ait_llm.dumps import open_dump
    from ait_llm.dumps.dequantised import dequantised

    model = nn.Sequential(linear(), linear().to(torch.float32)).eval()
    model[1] = nn.Linear(320, 96).eval()
    qconfigs = {"0": QCONFIGS["per tensor"], "1": QCONFIGS["per channel"]}
    torch.ao.quantization.quantize_dynamic(model, qconfigs, inplace=True)
    with register_hook(model, DumpConfig(dump_path=tmp_path, weights=True)), torch.no_grad():
        model(torch.ones(2, 96))
    saved = {each.stem: each for each in open_dump(tmp_path / "ait_dump").weights()}
    found = dequantised(saved)
    for place in (0, 1):
        expected = model[place].weight().dequantize().numpy()
        assert (found[f"root.{place}.weight"].tensor.nd() == expected).all()
        assert (saved[f"root.{place}.bias"].nd() == model[place].bias().detach().numpy()).all()


def test_saved_tables_of_eight_bits_are_those_that_were_packed(tmp_path: Path) -> None:
    from ait_llm.dumps import open_dump
    from ait_llm.dumps.dequantised import dequantised

    torch.manual_seed(1)
    table = nn.Embedding(50, 96)
    table.qconfig = torch.ao.quantization.float_qparams_weight_only_qconfig
    model = nn.Sequential(torch.ao.nn.quantized.Embedding.from_float(table))
    with register_hook(model, DumpConfig(dump_path=tmp_path, weights=True)), torch.no_grad():
        model(torch.ones(2, 3, dtype=torch.long))
    found = dequantised({each.stem: each for each in open_dump(tmp_path / "ait_dump").weights()})
    expected = model[0].weight().dequantize().numpy()
    assert found["root.0.weight"].tensor.nd() == pytest.approx(expected, abs=1e-6)
