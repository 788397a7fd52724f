"""The code of Mamba mixers: what rounding permits of it, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM
from transformers.models.mamba import modeling_mamba

from ait_llm import DumpConfig, compare, open_dump, register_hook
from ait_llm.core import Verdict
from ait_llm.judge.scan import BIASES, WEIGHTS, Mixer, convolved, scanned

MIXER = "root.backbone.layers.1.mixer"
TOKENS = torch.arange(22).reshape(2, 11) * 7 % 96
Change = Callable[[torch.Tensor], torch.Tensor]


def _model(dtype: torch.dtype) -> MambaForCausalLM:
    torch.manual_seed(3)
    config = MambaConfig(
        vocab_size=96, hidden_size=48, state_size=8, num_hidden_layers=2, time_step_rank=4
    )
    model = MambaForCausalLM(config)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.05)
    return model.to(dtype).eval()


def _captured(
    folder: Path,
    dtype: torch.dtype,
    *,
    weights: bool = True,
    operators: bool = False,
    automatic: torch.dtype | None = None,
) -> Path:
    model = _model(dtype)
    config = DumpConfig(dump_path=folder, weights=weights, operators=operators)
    cast = torch.autocast("cpu", automatic, enabled=automatic is not None)
    with torch.no_grad(), register_hook(model, config), cast:
        model(TOKENS, use_cache=False)
    return folder


def _changed(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, change: Callable[..., Any]
) -> None:
    """Let the second call of a function of the library, that of layer 1, get another argument."""
    function, calls = getattr(modeling_mamba, name), []

    def changed(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        given = list(args)
        if len(calls) == 2:
            given[number] = change(given[number])
        return function(*given, **kwargs)

    monkeypatch.setattr(modeling_mamba, name, changed)


def _older(steps: torch.Tensor) -> torch.Tensor:
    """Halfway between those of a token and of the token before."""
    return (steps + steps.roll(1, -1)) / 2


def test_the_formulas_are_those_of_the_library(tmp_path: Path) -> None:
    folder = _captured(tmp_path, torch.float64)
    saved = {each.stem: each.nd() for each in open_dump(folder).weights()}
    known = {each.name: each for each in open_dump(folder).operations()}
    inner, parts, last = (known[f"{MIXER}.{name}"] for name in ("in_proj", "x_proj", "out_proj"))
    tensors = [inner.outputs[0], parts.inputs[0], parts.outputs[0], last.inputs[0]]
    weights = {each: saved[f"{MIXER}.{each}"] for each in (*WEIGHTS, *BIASES)}
    mixer = Mixer(*(each.nd() for each in tensors), weights, (tensors[0].dtype,) * 2)
    assert mixer.fits
    np.testing.assert_allclose(convolved(mixer, lambda it: it), mixer.source, rtol=1e-9, atol=1e-12)
    # the library takes A in float32
    np.testing.assert_allclose(scanned(mixer, lambda it: it), mixer.result, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("golden", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mine", [torch.float16, torch.bfloat16])
def test_a_scan_of_older_time_steps_is_found_within_the_tolerance(
    golden: torch.dtype,
    mine: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = _captured(tmp_path / "golden", golden)
    healthy = compare(right, _captured(tmp_path / "healthy", mine), jobs=1)
    assert (healthy.origins, healthy.exit_code()) == ((), 0)
    _changed(monkeypatch, "mamba_selective_scan", 1, _older)
    found = compare(right, _captured(tmp_path / "mine", mine), jobs=1)
    (origin,) = found.origins
    assert (origin.op, origin.kind, origin.certain) == (MIXER, "code between modules", True)
    assert "between `x_proj` and `out_proj`: golden's intensor0 of out_proj is the selective" in (
        origin.evidence
    )
    assert "this is within the tolerance" in origin.evidence
    assert [each.verdict for each in found.comparisons].count(Verdict.FAIL) == 1
    assert found.exit_code() == 1


def test_a_convolution_that_lacks_a_little_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = _captured(tmp_path / "golden", torch.bfloat16)
    _changed(monkeypatch, "causal_conv1d_fn", 1, lambda weight: weight * 1.015)
    found = compare(right, _captured(tmp_path / "mine", torch.bfloat16), jobs=1)
    (origin,) = found.origins
    assert (origin.op, origin.kind) == (MIXER, "code between modules")
    assert "golden's intensor0 of x_proj is the convolution of its own values" in origin.evidence


def test_without_weights_nothing_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = _captured(tmp_path / "golden", torch.bfloat16, weights=False)
    _changed(monkeypatch, "mamba_selective_scan", 1, _older)
    found = compare(right, _captured(tmp_path / "mine", torch.bfloat16, weights=False), jobs=1)
    assert found.origins == ()


@pytest.mark.parametrize(
    ("golden", "mine", "operators"),
    [
        (torch.float32, torch.bfloat16, True),
        (torch.float32, torch.float16, False),
        (torch.bfloat16, torch.bfloat16, False),
    ],
)
def test_a_convolution_that_autocast_takes_to_16_bits_is_no_other_one(
    golden: torch.dtype, mine: torch.dtype, operators: bool, tmp_path: Path
) -> None:
    right = _captured(tmp_path / "golden", golden, operators=operators)
    cast = _captured(tmp_path / "mine", torch.float32, operators=operators, automatic=mine)
    found = compare(right, cast, jobs=1)
    assert (found.origins, found.exit_code()) == ((), 0)


def test_a_wrong_convolution_is_found_under_autocast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = torch.bfloat16
    right = _captured(tmp_path / "golden", torch.float32, automatic=half)
    _changed(monkeypatch, "causal_conv1d_fn", 1, lambda weight: weight * 1.015)
    found = compare(right, _captured(tmp_path / "mine", torch.float32, automatic=half), jobs=1)
    assert [each.op for each in found.origins] == [MIXER]
