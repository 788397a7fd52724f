"""The demo models, captured by the probe, against their PyTorch twins.

Which operation computes which module is written down here as ``docs/demos.md`` has it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

import ait_llm
from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.dumps import AtbDump, TorchDump
from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded
from ait_llm.hostatb.models.config import BERT_PRESETS, LLAMA_PRESETS
from ait_llm.hostatb.models.generate import follow, generate, make_llama, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import bert_weights, llama_weights
from ait_llm.probe.library import find_packaged
from ait_llm.program.one_pass import Pass
from ait_llm.topology import read_topology
from tests.match.programs.checking import (
    Found,
    matched,
    matches_of,
    outputs,
    unmatched_of,
    wrong_numbers,
)

pytestmark = pytest.mark.skipif(
    find_packaged("libatb_probe_abi1.so", os.environ) is None, reason="needs the compiled libraries"
)
_LENGTHS = [7, 4]
_LAYERS = 2

# Within a layer; {i} is the number of the layer's operation.
_LLAMA_LAYER = {
    "": "{layer}_{i}",
    ".self_attn": "Attention_{i}_0",
    ".input_layernorm": "RmsNormOperation_{i}_0_0_0_0",
    ".self_attn.q_proj": "LinearOperation_{i}_0_0_0_1",
    ".self_attn.k_proj": "LinearOperation_{i}_0_0_0_1",
    ".self_attn.v_proj": "LinearOperation_{i}_0_0_0_1",
    ".self_attn.o_proj": "LinearOperation_{i}_0_3",
    ".post_attention_layernorm": "RmsNormOperation_{i}_2_0_0",
    ".mlp": "Mlp_{i}_2",
    ".mlp.gate_proj": "LinearOperation_{i}_2_0_1",
    ".mlp.up_proj": "LinearOperation_{i}_2_0_1",
    ".mlp.down_proj": "LinearOperation_{i}_2_2",
}
# Of these the other side has an operation, too, but not one for the module alone.
_PARTS = {
    ".self_attn.q_proj": ("SplitOperation_{i}_0_0_1", 0),
    ".self_attn.k_proj": ("SplitOperation_{i}_0_0_1", 1),
    ".self_attn.v_proj": ("SplitOperation_{i}_0_0_1", 2),
}
_BERT_LAYER = {
    "": "Bert_layer_{i}",
    ".attention": "LayerNormOperation_{i}_2",
    ".attention.self": "SelfAttentionOperation_{i}_0_1",
    ".attention.self.query": "LinearOperation_{i}_0_0_0",
    ".attention.self.key": "LinearOperation_{i}_0_0_0",
    ".attention.self.value": "LinearOperation_{i}_0_0_0",
    ".attention.output": "LayerNormOperation_{i}_2",
    ".attention.output.dense": "LinearOperation_{i}_0_2",
    ".attention.output.LayerNorm": "LayerNormOperation_{i}_2",
    ".intermediate": "ActivationOperation_{i}_3_1",
    ".intermediate.dense": "LinearOperation_{i}_3_0",
    ".intermediate.intermediate_act_fn": "ActivationOperation_{i}_3_1",
    ".output": "LayerNormOperation_{i}_5",
    ".output.dense": "LinearOperation_{i}_3_2",
    ".output.LayerNorm": "LayerNormOperation_{i}_5",
}


def _llama_truth(first: int, layer: str, head: str) -> Mapping[str, str]:
    table = {
        "root.model.embed_tokens": f"GatherOperation_{first}_0",
        "root.model.norm": f"RmsNormOperation_{first + 2 + _LAYERS}",
        "root.lm_head": f"LinearOperation_{first + 3 + _LAYERS}_{head}",
    }
    for number in range(_LAYERS):
        for module, op in _LLAMA_LAYER.items():
            name = f"root.model.layers.{number}{module}"
            table[name] = op.format(i=first + 2 + number, layer=layer)
    return table


def _bert_truth() -> Mapping[str, str]:
    table = {
        "root.embeddings": "BertEmbeddings_0",
        "root.embeddings.word_embeddings": "GatherOperation_0_0",
        "root.embeddings.position_embeddings": "GatherOperation_0_1",
        "root.embeddings.token_type_embeddings": "GatherOperation_0_2",
        "root.embeddings.LayerNorm": "LayerNormOperation_0_5",
    }
    for number in range(_LAYERS):
        for module, op in _BERT_LAYER.items():
            table[f"root.encoder.layer.{number}{module}"] = op.format(i=1 + number)
    return table


def _capture_atb(folder: Path, program: str, *options: str) -> Path:
    source = str(Path(ait_llm.__file__).parent.parent)
    environ = {name: text for name, text in os.environ.items() if not name.startswith("ATB_")}
    command = shlex.join([sys.executable, "-m", "ait_llm.hostatb.demo." + program])
    command += " --weights random" if program == "bert" else ""
    dump = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", command, "-o", str(folder)]
    subprocess.run(
        [*dump, "--type", "tensor", "layer", "model", "-time", "2", *options],
        cwd=folder,
        env=environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    return folder


def _atb_run(folder: Path, model: str, step: int) -> Pass:
    dump = open_dump(folder)
    (graph,) = (read_topology(file.path) for file in dump.models if file.name == model)
    tops = {node.op_id.parts[0] for node in graph.root.children if node.op_id is not None}
    operations = [o for o in dump.operations(step=step) if o.op_id.parts[0] in tops]
    graphs = {file.name: read_topology(file.path) for file in dump.layers}
    return Pass(
        "atb", 0, operations[0].pid, step, operations, 0, graphs, graph, traits=AtbDump.traits
    )


def _torch_run(folder: Path, step: int) -> Pass:
    operations = list(open_dump(folder).operations(step=step))
    return Pass("torch", -1, operations[0].pid, step, operations, traits=TorchDump.traits)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both sides of the Llama demo; the twin follows the tokens of the demo."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "mine").mkdir()
    _capture_atb(folder / "mine", "llama", "-er", "0,1")
    config = LLAMA_PRESETS["tiny"]
    weights = llama_weights(config, 0)
    prompts = random_prompts(config, _LENGTHS, 0)
    generation = generate(make_llama(config, weights, _LENGTHS, 3, 16), prompts, 3)
    twin = llama_twin(config, weights)
    with register_hook(twin, DumpConfig(str(folder / "golden"), token_range=[0, 1, 2])):
        follow(twin, config, prompts, generation.tokens)
    return folder


@dataclass(frozen=True)
class Labelled:
    """A forward pass, its truth, and what the matcher says."""

    truth: Mapping[str, str]
    found: Found
    torch: Pass


_PASSES = {
    "prefill": ("DecoderModel_Prefill", 0, 0, (0, "Prefill_layer", "1")),
    "first decode": ("DecoderModel_Decoder", 0, 1, (6, "Decoder_layer", "0")),
    "second decode": ("DecoderModel_Decoder", 1, 2, (6, "Decoder_layer", "0")),
}


@cache
def _llama_pass(folder: Path, name: str) -> Labelled:
    model, execution, token, (first, layer, head) = _PASSES[name]
    golden = _torch_run(folder / "golden", token)
    found = matched(golden, _atb_run(folder / "mine", model, execution))
    return Labelled(_llama_truth(first, layer, head), found, golden)


@pytest.fixture(params=[*_PASSES, "bert"])
def each(request: pytest.FixtureRequest, llama: Path, bert: Labelled) -> Labelled:
    return bert if request.param == "bert" else _llama_pass(llama, request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Labelled:
    folder = tmp_path_factory.mktemp("bert")
    (folder / "mine").mkdir()
    _capture_atb(folder / "mine", "bert")
    config = BERT_PRESETS["tiny"].with_dtype(torch.float16)
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(config.vocab_size, (n,), generator=generator) for n in (8, 9, 8)]
    twin = bert_twin(config, bert_weights(config, 0))
    with register_hook(twin, DumpConfig(str(folder / "golden"))):
        encode_padded(twin, ids)
    golden = _torch_run(folder / "golden", 0)
    return Labelled(
        _bert_truth(), matched(golden, _atb_run(folder / "mine", "BertModel_Encoder", 0)), golden
    )


def test_every_module_with_a_counterpart_is_matched(each: Labelled) -> None:
    assert set(each.truth.items()) <= outputs(each.found)


def test_no_module_is_matched_with_another_operation(each: Labelled) -> None:
    kinds = ("LinearOperation", "RmsNormOperation", "LayerNormOperation", "GatherOperation")
    modules = {op: {m for m, o in each.truth.items() if o == op} for op in each.truth.values()}
    leaves = {o.name for o in each.torch.operations if not o.is_graph}
    for module, op in outputs(each.found):
        if op in modules and module in leaves and op.startswith(kinds):
            assert module in modules[op]


def test_every_match_holds_the_same_numbers(each: Labelled) -> None:
    assert len(matches_of(each.found)) > 100
    assert wrong_numbers(each.found) == []


def test_every_match_is_certain(each: Labelled) -> None:
    assert all(match.confidence >= 0.8 for match in matches_of(each.found))
    assert not any(match.alternatives for match in matches_of(each.found))


def test_what_has_no_counterpart_says_why(each: Labelled) -> None:
    reasons = {item.reason for item in unmatched_of(each.found)}
    assert any(reason.startswith("it is a weight") for reason in reasons)
    assert all(item.reason for item in unmatched_of(each.found))


@pytest.mark.parametrize("module", _PARTS)
def test_pieces_of_the_packed_projection_answer_the_projections(llama: Path, module: str) -> None:
    found = _llama_pass(llama, "prefill").found
    op, index = _PARTS[module]
    (match,) = (
        match
        for match in matches_of(found)
        if match.mine.record.title == f"{op.format(i=2)} outtensor{index}"
    )
    assert match.golden.record.op == f"root.model.layers.0{module}"
    assert match.mine.views == ()


def test_the_cache_has_no_counterpart_and_says_so(llama: Path) -> None:
    found = _llama_pass(llama, "prefill").found
    reasons = {
        item.reason
        for item in unmatched_of(found)
        if item.record.op == "ReshapeAndCacheOperation_2_0_2_0" and item.record.role == "out"
    }
    assert reasons == {"the golden dump has no operator for the key/value cache"}
