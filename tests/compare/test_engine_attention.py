"""Faults between the projections of an engine: in its rotary embedding, and in its attention.

Golden has no module that rotates, and none that attends: both are judged by their own arguments,
attention by those of earlier passes too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_model
import pytest
import torch
from engine_program import PROMPTS, capture_golden, capture_server, golden_model
from torch import Tensor

from ait_llm import compare
from ait_llm.core.comparison import Origin, Verdict
from ait_llm.opcheck.pipeline import opcheck

ATTENTION = "root.model.layers.0.self_attn.attn"
ROTARY = "root.model.layers.0.self_attn.rotary_emb"
Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden")
    capture_golden(place, golden_model(), PROMPTS, 3)
    return place


def captured(folder: Path, **config: Any) -> Path:
    model = golden_model()
    for name, value in config.items():
        setattr(model.config, name, value)
    with torch.no_grad():
        capture_server(folder, model)
    return folder


def scale(patch: pytest.MonkeyPatch) -> None:
    right = engine_model.Attention.__init__

    def wrong(self: Any, heads: int, shared: int, size: int, number: float, *rest: Any) -> None:
        right(self, heads, shared, size, number * 1.25, *rest)

    patch.setattr(engine_model.Attention, "__init__", wrong)


def scale_that_nobody_states(patch: pytest.MonkeyPatch) -> None:
    right = engine_model.Attention.forward
    patch.setattr(engine_model.Attention, "forward", lambda s, q, k, v: right(s, q * 1.25, k, v))


def heads(patch: pytest.MonkeyPatch) -> None:
    right = engine_model.Attention.forward

    def wrong(self: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        turned = query.view(len(query), -1, self.head_size).roll(1, 1).reshape(query.shape)
        return right(self, turned, key, value)

    patch.setattr(engine_model.Attention, "forward", wrong)


def positions(patch: pytest.MonkeyPatch) -> None:
    right = engine_model.RotaryEmbedding.forward

    def wrong(self: Any, places: Tensor, query: Tensor, key: Tensor) -> Any:
        return right(self, torch.arange(len(places)), query, key)

    patch.setattr(engine_model.RotaryEmbedding, "forward", wrong)


def positions_of_prompts(patch: pytest.MonkeyPatch) -> None:
    """Later passes are right but for the keys that they read."""
    right = engine_model.RotaryEmbedding.forward

    def wrong(self: Any, places: Tensor, query: Tensor, key: Tensor) -> Any:
        return right(self, places if len(places) < 5 else places // 2, query, key)

    patch.setattr(engine_model.RotaryEmbedding, "forward", wrong)


def not_rotated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_model.RotaryEmbedding, "forward", lambda self, _, q, k: (q, k))


def origins(golden: Path, mine: Path) -> list[Origin]:
    report = compare(golden, mine, jobs=1)
    assert report.verdict is Verdict.FAIL
    return list(report.origins)


@pytest.mark.parametrize(
    ("fault", "op"),
    [
        (scale, ATTENTION),
        (scale_that_nobody_states, ATTENTION),
        (heads, ATTENTION),
        (positions, ROTARY),
        (positions_of_prompts, ROTARY),
        (not_rotated, ROTARY),
    ],
)
def test_a_fault_between_projections_is_in_the_module_that_has_it(
    fault: Fault, op: str, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = origins(golden, captured(tmp_path))
    assert {each.op for each in found} == {op}
    assert found[0].certain


def test_attention_that_reads_wrong_keys_of_an_earlier_pass_is_no_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = captured(tmp_path / "golden")  # an engine too: what is rotated is compared
    positions_of_prompts(monkeypatch)
    found = origins(right, captured(tmp_path / "mine"))
    assert {each.op for each in found if each.certain} == {ROTARY}
    assert found[0].op == ROTARY


def test_another_scale_is_told_with_that_of_golden(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale(monkeypatch)
    first = origins(golden, captured(tmp_path))[0]
    assert "`impl.scale`" in first.evidence
    assert "0.3125 instead of 0.25 (golden has it as `scaling`" in first.evidence


def test_another_base_of_the_configuration_is_told_of_the_module_that_rotates(
    golden: Path, tmp_path: Path
) -> None:
    other = {"rope_theta": 50.0, "rope_type": "default"}
    first = origins(golden, captured(tmp_path, rope_parameters=other))[0]
    assert first.op == ROTARY
    assert first.certain
    assert "`base`" in first.evidence
    assert "is 50.0 instead of 10000.0 (golden has it as `config.rope_" in first.evidence


def test_every_row_of_a_healthy_engine_is_judged_right(tmp_path: Path) -> None:
    report = opcheck(captured(tmp_path), jobs=1)
    found = [item for item in report.items if item.op_type in ("Attention", "RotaryEmbedding")]
    assert {item.verdict for item in found} == {Verdict.PASS}
    assert len(found) == 2 * 2 * 6  # in two layers and six passes
