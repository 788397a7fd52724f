"""Modules of an engine that packed its weights, recomputed with those of the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import engine_model
import pytest
import torch
from engine_program import PROMPTS, capture_golden, capture_server, golden_model
from torch import Tensor

from ait_llm import compare
from ait_llm.core.comparison import Verdict
from ait_llm.dumps import open_dump
from ait_llm.match.checkpoint import with_parameters
from ait_llm.program.passes import passes_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    model = golden_model()
    model.save_pretrained(place / "model")
    golden_model(torch.bfloat16).save_pretrained(place / "narrow")
    capture_golden(place / "golden", model, PROMPTS, 3)
    with torch.no_grad():
        capture_server(place / "mine", model)
    return place


def given(folder: Path, model: str) -> dict[str, set[str]]:
    """The parameters of the modules of the first pass."""
    dump = open_dump(folder / "mine")
    run = with_parameters(passes_of(dump, dump.processes[0])[0], folder / model)
    return {
        each.name: {name.rpartition(".")[2] for name in each.parameters}
        for each in run.operations
        if not each.is_graph
    }


def test_modules_get_the_weights_of_the_checkpoint_joined_as_they_compute(folder: Path) -> None:
    found = given(folder, "model")
    without = {name for name, parameters in found.items() if parameters != {"weight"}}
    assert {name.rpartition(".")[2] for name in without} == {"rotary_emb", "attn", "act_fn"}


def test_weights_of_another_type_are_no_parameters_of_a_module(folder: Path) -> None:
    assert set().union(*given(folder, "narrow").values()) == set()


@pytest.mark.parametrize(
    ("kind", "op"),
    [
        ("QKVParallelLinear", "root.model.layers.0.self_attn.qkv_proj"),
        ("MergedColumnParallelLinear", "root.model.layers.0.mlp.gate_up_proj"),
        ("RMSNorm", "root.model.layers.0.input_layernorm"),
    ],
)
def test_a_module_that_computes_wrongly_is_certain_by_the_weights_of_the_checkpoint(
    kind: str, op: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: Any = getattr(engine_model, kind)
    right = chosen.forward

    def wrong(self: Any, x: Tensor, *rest: Any) -> Any:
        found = right(self, x, *rest)
        (found[0] if isinstance(found, tuple) else found).mul_(1.25)
        return found

    monkeypatch.setattr(chosen, "forward", wrong)
    with torch.no_grad():
        capture_server(tmp_path, golden_model())
    weights_from = [f"mine={folder / 'model'}"]
    report = compare(folder / "golden", tmp_path, weights_from=weights_from, jobs=1)
    assert report.verdict is Verdict.FAIL
    first = report.origins[0]
    assert (first.op, first.certain) == (op, True)
    assert "from its own inputs recomputed" in first.evidence


def test_a_healthy_engine_passes_with_the_weights_of_its_checkpoint(folder: Path) -> None:
    weights_from = [f"mine={folder / 'model'}"]
    report = compare(folder / "golden", folder / "mine", weights_from=weights_from, jobs=1)
    assert (report.verdict, report.origins) == (Verdict.PASS, ())
