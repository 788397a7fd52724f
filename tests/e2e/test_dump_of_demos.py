"""``ait llm dump`` around the demo programs: what lies on disk is what the models computed."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import ait_llm
from ait_llm.core import OpId
from ait_llm.dumps import Dump, Operation, open_dump
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import BERT_PRESETS, LLAMA_PRESETS
from ait_llm.hostatb.models.generate import follow, generate, make_llama, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights
from ait_llm.probe.library import find_packaged

pytestmark = pytest.mark.native
TINY = LLAMA_PRESETS["tiny"]
LENGTHS = (7, 4)  # the demo's own
LIMIT = tolerance(TINY.dtype, TINY.num_layers, TINY.hidden_size)
DEMO = "ait_llm.hostatb.demo"


def _dump(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    # The checkout need not be installed, and the traced program starts in another folder.
    source = str(Path(ait_llm.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("ATB_")}
    environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", *arguments, "-o", str(folder)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def _program(name: str, *arguments: str) -> str:
    return shlex.join([sys.executable, "-m", f"{DEMO}.{name}", *arguments])


@dataclass(frozen=True)
class Capture:
    """A finished run under the probe."""

    folder: Path
    ran: subprocess.CompletedProcess[str]

    @property
    def root(self) -> Path:
        return self.folder / "ait_dump"

    @property
    def dump(self) -> Dump:
        return open_dump(self.root)

    def one(self, pattern: str) -> Path:
        """The only file of that pattern."""
        (path,) = self.root.glob(pattern)
        return path

    def outputs(self, op: str, step: int) -> list[Tensor]:
        """Output tensors of one operation at one step."""
        (operation,) = (o for o in self.dump.operations(step=step) if o.op_id == OpId.parse(op))
        return [tensor.torch() for tensor in operation.outputs]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = tmp_path_factory.mktemp("llama")
    program = _program(
        "llama", "--preset", "tiny", "--tokens", "3", "--save-outputs", "out.safetensors"
    )
    types = ["tensor", "layer", "model", "op", "kernel", "onnx"]
    ran = _dump(["--exec", program, "--type", *types, "-er", "0,1"], folder)
    assert ran.returncode == 0, ran.stderr
    return Capture(folder, ran)


def _twin_outputs(modules: Sequence[str], tokens: Tensor) -> dict[str, list[Tensor]]:
    """Outputs of modules of the twin per token, padding removed: ``[tokens, features]`` each."""
    twin = llama_twin(TINY, llama_weights(TINY, 0))
    real = torch.arange(LENGTHS[0]) < torch.tensor(LENGTHS).unsqueeze(1)
    seen: dict[str, list[Tensor]] = {name: [] for name in modules}

    def keep(name: str, _module: Any, _inputs: Any, out: Tensor) -> None:
        if out.dim() == 3:
            out = out[real] if out.shape[1] > 1 else out[:, 0]
        seen[name].append(out)

    for name in modules:
        twin.get_submodule(name).register_forward_hook(partial(keep, name))
    follow(twin, TINY, random_prompts(TINY, LENGTHS, 0), tokens)
    return seen


def test_the_probe_does_not_change_what_the_program_computes(llama: Capture) -> None:
    saved = load_file(llama.folder / "out.safetensors")
    model = make_llama(TINY, llama_weights(TINY, 0), LENGTHS, 3, 16)
    alone = generate(model, random_prompts(TINY, LENGTHS, 0), 3)
    assert torch.equal(saved["logits"], alone.logits)
    assert llama.ran.stdout.startswith("llama tiny: 106,816 weights")


def test_prefill_runs_once_and_decode_once_per_further_token(llama: Capture) -> None:
    steps: dict[str, set[int]] = {}
    for operation in llama.dump.operations():
        if operation.op_id.parent is None:
            steps.setdefault(f"{operation.op_id}_{operation.type}", set()).add(operation.step)
    prefill, decode = {0}, {0, 1}
    assert steps == {
        "0_WordEmbedding": prefill,
        "1_PositionalEmbeddingGather": prefill,
        "2_Prefill_layer": prefill,
        "3_Prefill_layer": prefill,
        "4_RmsNormOperation": prefill,
        "5_LmHead": prefill,
        "6_WordEmbedding": decode,
        "7_PositionalEmbeddingGather": decode,
        "8_Decoder_layer": decode,
        "9_Decoder_layer": decode,
        "10_RmsNormOperation": decode,
        "11_LmHead": decode,
    }


# Per module of the twin: id of the operation in prefill and decode, and which of its outputs.
OPERATIONS = {
    "model.embed_tokens": ("0", "6", 0),
    "model.layers.0.input_layernorm": ("2_0_0_0_0", "8_0_0_0_0", 0),
    "model.layers.0.self_attn.q_proj": ("2_0_0_1", "8_0_0_1", 0),
    "model.layers.0.self_attn.k_proj": ("2_0_0_1", "8_0_0_1", 1),
    "model.layers.0.self_attn.v_proj": ("2_0_0_1", "8_0_0_1", 2),
    "model.layers.0.self_attn.o_proj": ("2_0_3", "8_0_3", 0),
    "model.layers.1.post_attention_layernorm": ("3_2_0_0", "9_2_0_0", 0),
    "model.layers.1.mlp.down_proj": ("3_2_2", "9_2_2", 0),
    "model.layers.1": ("3", "9", 0),
    "model.norm": ("4", "10", 0),
    "lm_head": ("5", "11", 0),
}


@pytest.mark.parametrize("module", OPERATIONS)
def test_dumped_values_are_those_of_the_twin(llama: Capture, module: str) -> None:
    tokens = load_file(llama.folder / "out.safetensors")["tokens"]
    golden = _twin_outputs([module], tokens)[module]
    prefill, decode, index = OPERATIONS[module]
    for expected, op, step in zip(golden, (prefill, decode, decode), (0, 0, 1), strict=True):
        mine = llama.outputs(op, step)[index]
        assert mine.shape == expected.shape
        assert agree(expected, mine, LIMIT).passed


def test_input_files_hold_the_weights_and_tokens_of_the_model(llama: Capture) -> None:
    (gather,) = (o for o in llama.dump.operations(step=0) if o.op_id == OpId.parse("0_0"))
    table, ids = (tensor.torch() for tensor in gather.inputs)
    assert torch.equal(table, llama_weights(TINY, 0)["model.embed_tokens.weight"])
    assert torch.equal(ids, torch.cat(random_prompts(TINY, LENGTHS, 0)))


def test_the_ledger_is_sealed_and_its_totals_are_what_lies_on_disk(llama: Capture) -> None:
    lines = [json.loads(line) for line in llama.one("ledger/0_*.jsonl").read_text().splitlines()]
    header, *entries, seal = lines
    assert (header["kind"], seal["kind"], seal["end"]) == ("header", "seal", "exit")
    files = list(llama.root.glob("tensors/**/*.bin"))
    assert seal["tensors"] == len(files) == sum(entry["tensors"] for entry in entries)
    assert {entry["state"] for entry in entries} == {"saved"}
    assert not [loss for process in llama.dump.processes for loss in process.losses]


def test_the_operation_table_lists_every_leaf_of_a_step(llama: Capture) -> None:
    for step in (0, 1):
        path = llama.one(f"operation_io_tensors/*/operation_tensors_{step}.csv")
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE))
        leaves = [o for o in llama.dump.operations(step=step) if not o.is_graph]
        assert sorted(row["OpName"] for row in rows) == sorted(
            f"{leaf.type}_{leaf.op_id}" for leaf in leaves
        )


def _leaves(node: dict[str, Any]) -> list[str]:
    children = node.get("nodes")
    return [leaf for child in children for leaf in _leaves(child)] if children else [node["opName"]]


def test_model_topology_holds_the_graphs_of_its_layers(llama: Capture) -> None:
    for phase, first in (("Prefill", 0), ("Decoder", 6)):
        model = json.loads(llama.one(f"model/*/DecoderModel_{phase}.json").read_text())
        numbers = [node["opName"].rpartition("_")[2] for node in model["nodes"]]
        assert numbers == [str(first + place) for place in range(6)]
        leaves = {name.partition("_")[2] for name in _leaves(model)}
        dumped = {str(o.op_id) for o in llama.dump.operations(step=0) if not o.is_graph}
        assert leaves == {op for op in dumped if first <= OpId.parse(op).parts[0] < first + 6}


def test_every_topology_is_converted_to_a_valid_onnx_model(llama: Capture) -> None:
    models = [*llama.root.glob("layer/*/*.onnx"), *llama.root.glob("model/*/*.onnx")]
    assert len(models) == 14  # six operations and one model in each phase
    for path in models:
        onnx.checker.check_model(str(path))


def test_a_fault_shows_up_in_its_layer_and_not_before(llama: Capture, tmp_path: Path) -> None:
    program = _program("llama", "--tokens", "1", "--fault", "missing_mask:layer=1")
    ran = _dump(["--exec", program, "-ids", "2,3", "-child", "False"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    faulty = Capture(tmp_path, ran)
    assert torch.equal(faulty.outputs("2", 0)[0], llama.outputs("2", 0)[0])
    assert not agree(llama.outputs("3", 0)[0], faulty.outputs("3", 0)[0], LIMIT).passed


def _types(operations: Sequence[Operation]) -> set[str]:
    return {operation.type for operation in operations}


def test_bert_is_dumped_from_a_shell_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"set -e\n{_program('bert', '--weights', 'random')} | cat\n")
    ran = _dump(["--exec", f"bash {script}", "-opname", "selfattention,layernorm"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    capture = Capture(tmp_path, ran)
    operations = list(capture.dump.operations())
    assert _types(operations) == {"SelfAttentionOperation", "LayerNormOperation"}
    config = BERT_PRESETS["tiny"]
    attention = [o for o in operations if o.type == "SelfAttentionOperation"]
    assert len(attention) == config.num_layers
    assert attention[0].outputs[0].shape == (25, config.hidden_size)
    assert attention[0].params["headNum"] == config.num_heads


def test_two_processes_on_two_devices_are_kept_apart(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [*launcher, "--nproc-per-node", "2", "-m", f"{DEMO}.llama", "--tokens", "1"]
    ran = _dump(["--exec", shlex.join(program), "--type", "tensor", "model", "-ids", "5"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    first, second = Capture(tmp_path, ran).dump.processes
    assert (first.device, second.device) == (0, 1)
    assert first.pid != second.pid
    assert first.sealed
    assert second.sealed
    dump = Capture(tmp_path, ran).dump
    logits = [
        operation.outputs[0].torch()
        for process in (first, second)
        for operation in dump.operations(device=process.device, pid=process.pid)
        if operation.type == "LmHead"
    ]
    assert torch.equal(*logits)
    assert {model.pid for model in dump.models} == {first.pid, second.pid}
