"""Recorded dumps of the graph engine against the modules of another program of the same model.

The engine's model joins query, key and value in one projection; that of ``transformers`` does not.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from engine_twin import capture_twin, engine_twin, requests
from ge_faults import Fault, FaultyDump, scaled, swapped_rows
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm import compare
from ait_llm.core import Verdict
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.programs import match_programs
from ait_llm.match.scenario import find_scenario
from tests.match.programs.atb_program import AtbProgram, float16
from tests.match.programs.checking import matches_of, wrong_numbers
from tests.match.programs.decoder import Decoder, Shape, rotary_tables
from tests.match.programs.families import _llama_layer, read_atb

# Modules of which the engine has the result, whole or as columns, and the operator of it.
_LAYER = {
    0: {
        "input_layernorm": "Mul_1Cast_3",
        "self_attn.q_proj": "MatMulV2",
        "self_attn.k_proj": "MatMulV2",
        "self_attn.v_proj": "MatMulV2",
        "self_attn.o_proj": "MatMul",
        "post_attention_layernorm": "Mul_7Cast_16",
        "mlp.gate_proj": "MatMul_1",
        "mlp.up_proj": "MatMul_2",
        "mlp.down_proj": "MatMul_3",
    },
    1: {
        "input_layernorm": "Mul_10Cast_21",
        "self_attn.q_proj": "MatMulV2_1",
        "self_attn.k_proj": "MatMulV2_1",
        "self_attn.v_proj": "MatMulV2_1",
        "self_attn.o_proj": "MatMul_4",
        "post_attention_layernorm": "Mul_16Cast_34",
        "mlp.gate_proj": "MatMul_5",
        "mlp.up_proj": "MatMul_6",
        "mlp.down_proj": "MatMul_7",
    },
}
_TRUTH = {
    "root.model.embed_tokens": "GatherV2",
    "root.lm_head": "MatMul_8",
    "root": "MatMul_8",
    **{
        f"root.model.layers.{layer}.{module}": op
        for layer, table in _LAYER.items()
        for module, op in table.items()
    },
}


@pytest.fixture(scope="module")
def folders(
    recorded_decoder: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The recorded dumps, and the capture of the twin's modules."""
    found = {**recorded_decoder, "modules": tmp_path_factory.mktemp("modules")}
    capture_twin(found["modules"], engine_twin(found["fx"]), requests(found["fx"]))
    return found


def _matches(golden: Path, mine: Path) -> list[list[Match]]:
    pairing = pair_runs(find_scenario(golden, mine))
    assert not pairing.problems
    return [
        matches_of(match_programs(pair.golden, pair.mine, MatchOptions())) for pair in pairing.pairs
    ]


@pytest.mark.parametrize("engine", ["fused", "unfused", "fx"])
def test_prefill_and_decode_steps_hold_the_same_numbers(
    folders: dict[str, Path], engine: str
) -> None:
    passes = _matches(folders["modules"], folders[engine])
    assert len(passes) == 5
    for found in passes:
        assert len(found) > 70
        assert wrong_numbers(found) == []


def test_every_module_is_found_at_its_operator(folders: dict[str, Path]) -> None:
    for found in _matches(folders["modules"], folders["fused"])[:1]:
        results = {
            (each.golden.record.op, each.mine.record.op)
            for each in found
            if each.golden.record.role == each.mine.record.role == "out"
        }
        assert set(_TRUTH.items()) <= results
        leaves = {op: {m for m, o in _TRUTH.items() if o == op} for op in _TRUTH.values()}
        for module, op in results:
            if op in leaves and module in _TRUTH:
                assert module in leaves[op]


def test_layers_are_the_sums_behind_their_projections(folders: dict[str, Path]) -> None:
    found = _matches(folders["modules"], folders["fused"])[0]
    layers = {
        each.mine.record.op
        for each in found
        if each.golden.record.op == "root.model.layers.0" and each.golden.record.role == "out"
    }
    assert "Add_6" in layers


def test_a_whole_run_has_no_failure(folders: dict[str, Path]) -> None:
    report = compare(folders["modules"], folders["fused"])
    assert report.counts[Verdict.FAIL] == report.counts[Verdict.ERROR] == 0
    assert report.counts[Verdict.PASS] > 400
    assert not report.origins


def test_nodes_of_other_names(folders: dict[str, Path], tmp_path: Path) -> None:
    """Another version of torch calls nodes differently, so that no graph tells which they are."""
    for file in folders["fx"].rglob("*.npy"):
        copy = tmp_path / file.relative_to(folders["fx"]).parent / f"my_{file.name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.hardlink_to(file)
    pairing = pair_runs(find_scenario(tmp_path, folders["fused"]))
    assert len(pairing.pairs) == 5
    for pair in pairing.pairs:
        found = matches_of(match_programs(pair.golden, pair.mine, MatchOptions()))
        assert wrong_numbers(found) == []
        results = {each.mine.record.op for each in found if each.mine.record.role == "out"}
        assert results >= set(_TRUTH.values())


def test_calls_of_functions(folders: dict[str, Path], tmp_path: Path) -> None:
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(task="tensor", level="L1", dump_path=str(tmp_path))
    model, cache = engine_twin(folders["fx"]), transformers.DynamicCache()
    with torch.no_grad():
        for ids in requests(folders["fx"]):
            debugger.start(model)
            model(input_ids=ids, past_key_values=cache, use_cache=True)
            debugger.stop()
            debugger.step()
    PrecisionDebugger._reset()
    passes = _matches(tmp_path, folders["fused"])
    assert len(passes) == 5
    for found in passes:
        assert len(found) > 30
        assert wrong_numbers(found) == []
    products = {
        each.mine.record.op
        for each in passes[0]
        if each.golden.record.op_type == "linear" and each.mine.record.role == "out"
    }
    assert products >= {op for op in _TRUTH.values() if op.startswith("MatMul")}


class _SmallHeads(AtbProgram):
    """A program whose heads are smaller than the library turns; a plugin does it instead."""

    def run(self, param: Any, *inputs: Tensor) -> Any:
        if not isinstance(param, torch_atb.RopeParam):
            return super().run(param, *inputs)
        query, key, cos, sin, _ = inputs
        results = [self._turned(each, cos, sin) for each in (query, key)]
        self.plugin("RopeOperation", inputs, results, rotaryCoeff=2)
        return results

    @staticmethod
    def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.float().reshape(len(x), -1, cos.shape[-1])
        first, second = heads.chunk(2, -1)
        turned = heads * cos[:, None].float()
        turned += torch.cat([-second, first], -1) * sin[:, None].float()
        return turned.half().reshape(x.shape)


def test_operations_of_atb(folders: dict[str, Path], tmp_path: Path) -> None:
    """The prefill of the same model on ATB, which packs tokens and joins gate and up as well."""
    model, ids = engine_twin(folders["fx"]), requests(folders["fx"])[0]
    state = {name: float16(tensor) for name, tensor in model.state_dict().items()}
    decoder = Decoder(
        _SmallHeads(tmp_path), Shape(4, 2, 8, eps=1e-6), rotary_tables(8, 32, interleaved=False)
    )
    decoder.prefill(
        [ids.reshape(-1)],
        state["model.embed_tokens.weight"],
        [_llama_layer(state, number) for number in range(2)],
        (state["model.norm.weight"],),
        state["lm_head.weight"],
    )
    pairing = pair_runs(find_scenario(tmp_path, folders["fused"]))
    found = matches_of(match_programs(read_atb(tmp_path), pairing.pairs[0].mine, MatchOptions()))
    assert len(found) > 60
    assert wrong_numbers(found) == []
    results = {
        (each.golden.record.op_type, each.mine.record.op)
        for each in found
        if each.golden.record.role == each.mine.record.role == "out"
    }
    products = {op for kind, op in results if kind == "LinearOperation"}
    assert products >= {f"MatMul_{n}" for n in range(1, 9)} | {"MatMul", "MatMulV2", "MatMulV2_1"}
    norms = {op for kind, op in results if kind == "RmsNormOperation"}
    assert norms >= {table[name] for table in _LAYER.values() for name in table if "norm" in name}
    assert ("GatherOperation", "GatherV2") in results


@pytest.mark.parametrize(
    ("operator", "fault", "module"),
    [("MatMul_1", scaled, "gate_proj"), ("MatMul_4", swapped_rows, "o_proj")],
)
def test_a_faulty_operator_fails_first_at_its_module(
    folders: dict[str, Path], tmp_path: Path, operator: str, fault: Fault, module: str
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(folders["fused"], mine)
    FaultyDump(mine).inject(0, operator, fault)
    report = compare(folders["modules"], mine)
    first = next(each for each in report.comparisons if each.verdict is Verdict.FAIL)
    assert first.golden is not None
    assert first.record.op == operator
    assert first.golden.op.rpartition(".")[2] == module
    assert operator in {name for each in report.origins for name in (each.op, *each.candidates)}
