"""Attention between captured modules: proved by golden's values, and what mine make of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bugs.places import Numbering, Place, Places
from matching_truth import families
from matching_truth.drives import DRIVES, Generation, once
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

ATTENTION = "model.layers.0.self_attn"
Drive = Callable[[nn.Module], None]


class _Narrow(TorchFunctionMode):
    """Rounds the result of one call of a function in the code of one module.

    What is of float32 has so few digits nowhere within its tolerance, and is scaled instead.
    """

    def __init__(self, places: Places, module: str, what: str, call: int, step: int) -> None:
        super().__init__()
        self._numbering = Numbering(places)
        self._place = Place(step, module, what, call)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if self._numbering.next(func.__name__.strip("_")) == self._place:
            assert isinstance(found, Tensor)
            if found.dtype == torch.float32:
                return found * (1 + 2e-4)
            return found.to(torch.bfloat16).to(found.dtype)
        return found


def _captured(
    folder: Path,
    family: str,
    attention: str = "eager",
    dtype: torch.dtype = torch.float16,
    *,
    drive: Drive | None = None,
    narrow: tuple[str, int, int] | None = None,
    module: str = ATTENTION,
    scaling: float = 1.0,
) -> Path:
    torch.manual_seed(7)
    model = families.make(family, "distinct", attention).to(dtype).eval()
    if scaling != 1:
        model.get_submodule(ATTENTION).scaling *= scaling  # type: ignore[operator]
    run = drive or DRIVES.get(family, once)
    config = DumpConfig(dump_path=folder, token_range=range(4), weights=True)
    with torch.no_grad(), register_hook(model, config):
        if narrow is None:
            run(model)
        else:
            places = Places(model)
            with places, _Narrow(places, module, *narrow):
                run(model)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _captured(tmp_path_factory.mktemp("golden"), "llama")


def _tells_attention(report: Report, step: int = 0) -> bool:
    if not report.origins:
        return False
    (origin,) = report.origins
    assert (origin.op, origin.step) == (f"root.{ATTENTION}", step)
    assert "between `v_proj` and `o_proj`: golden's intensor0 of o_proj is the" in origin.evidence
    return True


def _compared(folder: Path, golden: Path, **more: Any) -> Report:
    return compare(golden, _captured(folder / "mine", "llama", **more), jobs=1)


def test_a_rotation_of_fewer_digits_is_told_within_every_tolerance(
    golden: Path, tmp_path: Path
) -> None:
    report = _compared(tmp_path, golden, narrow=("add", 0, 0))
    assert _tells_attention(report)
    (origin,) = report.origins
    assert origin.certain
    assert origin.kind == "code between modules"
    assert "mine is not: its errors are" in origin.evidence
    assert "this is within the tolerance" in origin.evidence


@pytest.mark.parametrize("family", ["llama", "gpt-neox", "qwen3-moe"])
def test_another_implementation_of_float32_is_not_told(family: str, tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", family, dtype=torch.float32, drive=Generation())
    mine = _captured(tmp_path / "mine", family, "sdpa", torch.float32, drive=Generation())
    report = compare(golden, mine, jobs=1)
    assert (report.origins, report.exit_code()) == ((), 0)


def test_a_rotation_that_is_off_in_float32_is_told_within_every_tolerance(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "llama", dtype=torch.float32)
    report = _compared(tmp_path, golden, dtype=torch.float32, narrow=("mul", 0, 0))
    assert _tells_attention(report)
    assert "this is within the tolerance" in report.origins[0].evidence


def test_another_implementation_is_not_told(golden: Path, tmp_path: Path) -> None:
    report = _compared(tmp_path, golden, attention="sdpa")
    assert not report.origins


def test_golden_of_more_digits_proves_it_too(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "llama", dtype=torch.float32)
    assert not _compared(tmp_path, golden).origins
    assert _tells_attention(_compared(tmp_path, golden, narrow=("add", 0, 0)))


def test_a_step_that_reads_a_cache_is_told(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "llama", drive=Generation())
    assert not _compared(tmp_path, golden, drive=Generation(), attention="sdpa").origins
    report = _compared(tmp_path, golden, drive=Generation(), narrow=("add", 0, 1))
    assert _tells_attention(report, step=1)


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_what_becomes_of_padding_is_up_to_the_implementation(family: str, tmp_path: Path) -> None:
    """Caches hold it, and experts get it."""
    drive = Generation(batch=4, steps=2)
    golden = _captured(tmp_path / "golden", family, drive=drive)
    mine = _captured(tmp_path / "mine", family, "sdpa", drive=drive)
    report = compare(golden, mine, jobs=1)
    assert not report.counts[Verdict.FAIL]
    assert not report.origins


def test_requests_with_padding_are_looked_at(tmp_path: Path) -> None:
    drive = Generation(batch=4)
    golden = _captured(tmp_path / "golden", "llama", drive=drive)
    assert _tells_attention(_compared(tmp_path, golden, drive=drive, narrow=("add", 0, 0)))


def test_another_number_is_told_and_not_the_code(golden: Path, tmp_path: Path) -> None:
    (origin,) = _compared(tmp_path, golden, scaling=1.01).origins
    assert "scaling" in origin.evidence
    assert "is the attention of its own" not in origin.evidence


def test_code_that_golden_does_not_prove_is_nobody_s_fault(tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "llama", narrow=("add", 0, 0))
    assert not _compared(tmp_path, golden, narrow=("add", 1, 0)).origins


@pytest.mark.parametrize(
    ("family", "module", "what", "call"),
    [
        ("gemma2", ATTENTION, "add", 0),
        ("gpt-oss", ATTENTION, "cat", 0),
        ("qwen3", ATTENTION, "add", 1),
        ("phi3", ATTENTION, "matmul", 0),
        ("deepseek-v3", ATTENTION, "matmul", 1),
        ("gpt-neox", "gpt_neox.layers.0.attention", "matmul", 0),
        ("gpt2", "transformer.h.1.attn", "matmul", 0),
        ("bert", "bert.encoder.layer.1.attention.self", "matmul", 1),
        ("t5", "decoder.block.0.layer.0.SelfAttention", "matmul", 1),
        ("whisper", "model.decoder.layers.1.encoder_attn", "matmul", 1),
    ],
)
def test_the_attention_of_a_family_is_proved_by_its_own_values(
    family: str, module: str, what: str, call: int, tmp_path: Path
) -> None:
    golden = _captured(tmp_path / "golden", family)
    mine = _captured(tmp_path / "mine", family, narrow=(what, call, 0), module=module)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op == f"root.{module}"
    assert "is the attention of its own queries, keys and values" in origin.evidence
