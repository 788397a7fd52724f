"""Calls judged by what rounding permits: right devices pass, small errors do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.dump.api import PrecisionDebugger


def check(dump: Path, out: Path, *words: str) -> Result:
    given = ["llm", "api-check", "-api_info", dump, "-o", out, "--device", "cpu", *words]
    return CliRunner().invoke(ait, [*map(str, given)])


def training_step(dtype: torch.dtype) -> None:
    """A step of a small decoder with attention, norms, convolution, activations and losses."""
    torch.manual_seed(3)

    def param(*size: int) -> torch.Tensor:
        return (torch.randn(*size) / 4).to(dtype).requires_grad_()

    table, gain, bias = param(50, 64), param(64), param(64)
    up, down, filters = param(128, 64), param(64, 128), param(64, 64, 3)
    ids = torch.randint(0, 50, (2, 11))
    x = F.embedding(ids, table)
    normed = F.layer_norm(x, (64,), gain, bias)
    heads = [F.linear(normed, param(64, 64)).view(2, 11, 4, 16).transpose(1, 2) for _ in range(3)]
    scores = torch.matmul(heads[0], heads[1].transpose(-1, -2)) * 0.25
    scores = scores.masked_fill(torch.ones(11, 11, dtype=torch.bool).triu(1), float("-inf"))
    mixed = torch.matmul(F.softmax(scores, -1), heads[2])
    x = x + mixed.transpose(1, 2).reshape(2, 11, 64)
    x = x + F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(
        2, 11, 64
    )
    x = x + F.linear(F.silu(F.linear(F.rms_norm(x, (64,), gain), up)), down)
    c = F.gelu(F.conv1d(x.transpose(1, 2), filters, bias, padding=1), approximate="tanh")
    c = F.group_norm(c, 4, gain, bias)
    spread = F.normalize(torch.cat([c, c * c], 1).cumsum(-1).std(-1), dim=-1)
    loss = F.cross_entropy(F.linear(x, table).flatten(0, 1).float(), ids.flatten())
    loss = loss + F.kl_div(F.log_softmax(x, -1), F.softmax(normed, -1), reduction="batchmean")
    loss = loss + spread.float().pow(3).mean() + F.mse_loss(x, torch.zeros_like(x))
    loss.backward()


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Captures of the step, one for each type that is asked for."""
    folder = tmp_path_factory.mktemp("steps")
    found: dict[torch.dtype, Path] = {}

    def capture(dtype: torch.dtype) -> Path:
        if dtype not in found:
            found[dtype] = folder / str(dtype)
            settings = {"task": "tensor", "level": "L1", "rank": [], "step": []}
            config = folder / "config.json"
            tensor = {"list": [], "scope": [], "data_mode": ["all"]}
            where = {"dump_path": str(found[dtype]), "tensor": tensor}
            config.write_text(json.dumps({**settings, **where}))
            PrecisionDebugger._reset()
            debugger = PrecisionDebugger(str(config))
            debugger.start()
            training_step(dtype)
            debugger.stop()
            debugger.step()
            PrecisionDebugger._reset()
        return found[dtype]

    return capture


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_device_passes_a_training_step(
    dtype: torch.dtype, captured: Any, tmp_path: Path
) -> None:
    result = check(captured(dtype), tmp_path)
    assert result.exit_code == 0, result.output
    assert "warning" not in result.output


def test_the_rule_of_msprobe_blames_the_same_device(captured: Any, tmp_path: Path) -> None:
    result = check(captured(torch.bfloat16), tmp_path, "--standard", "default")
    assert result.exit_code == 1, result.output
    assert "  warning " in result.output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_output_that_is_half_a_percent_too_large_is_an_error(
    dtype: torch.dtype, captured: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dump, right = captured(dtype), F.silu

    def wrong(x: torch.Tensor, **named: Any) -> torch.Tensor:
        made = right(x, **named)
        return (made.float() * 1.005).to(dtype) if x.dtype == dtype else made

    monkeypatch.setattr(F, "silu", wrong)
    result = check(dump, tmp_path)
    assert result.exit_code == 1, result.output
    assert [line.split()[1] for line in result.output.splitlines() if "  error" in line] == [
        "Functional.silu.0:"
    ]


def test_a_gradient_that_is_two_percent_too_large_is_an_error(
    captured: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dump, right = captured(torch.float32), F.silu

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return right(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            share = torch.sigmoid(x)
            factor = 1.02 if x.dtype == torch.float32 else 1.0
            return factor * gradient * share * (1 + x * (1 - share))

    monkeypatch.setattr(F, "silu", lambda x, **_: Wrong.apply(x))
    result = check(dump, tmp_path)
    assert result.exit_code == 1, result.output
    assert "Functional.silu.0: backward:" in result.output
