"""Files that a user writes: mappings, settings, lists; and those of demo models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from engine import Target
from mutations import mutate_json, mutate_text

from ait_llm.apicheck.config import read_check_file
from ait_llm.compare.api.merge import read_merge_settings
from ait_llm.compare.api.settings import read_compare_file, read_data_mapping
from ait_llm.compare.api.shards.saved import read_layouts
from ait_llm.dump.api.settings import read_graph_settings, read_settings
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.ptdbg.kernels import checked_config
from ait_llm.dump.torchair_dump import _checked_switches
from ait_llm.errors import UsageError
from ait_llm.formats.api_list import combined_apis, read_sections
from ait_llm.hostatb.models import minilm
from ait_llm.hostatb.models.wordpiece import WordPiece
from ait_llm.match.file_runs import runs_of_metadata
from ait_llm.match.saved_mapping import read_either
from ait_llm.plan.model_config import read_model_config

_OP_MAPPING = {
    "CommonLayer_outtensor0": ["BertLayer_output_0", "GLMBlock"],
    "LinearOperation": "Linear",
}
_SAVED = {
    "schema": "ait-llm-mapping",
    "version": 1,
    "pairs": [
        {
            "golden": {
                "op": "root.layers.0",
                "tensor": "output",
                "call": 1,
                "views": [
                    {"view": "part", "axis": 0, "start": 0, "stop": 4},
                    {"view": "firstuse"},
                    {"view": "dequantise", "scale": [0.5], "offset": [0], "axis": -1},
                ],
            },
            "mine": {"op": "LinearOperation_0_1", "tensor": "outtensor0"},
            "rule": "programs",
            "confidence": 0.9,
            "reason": "same shape",
            "alternatives": ["a"],
            "models": ["A", "B"],
        }
    ],
}
_COMPARE_FILE = b"""{
  "npu_path": "./mine/dump.json",   // mine
  "bench_path": "./golden/dump.json",  # golden
  /* with stacks */ "stack_path": "./stack.json", "is_print_compare_log": true
}"""
_CONFIG = {
    "task": "statistics",
    "dump_path": "./out",
    "rank": [0, "1-3"],
    "step": [0, "2-4"],
    "level": "L1",
    "statistics": {
        "scope": ["Functional.linear.0.forward", "Torch.matmul.0.forward"],
        "list": ["linear"],
        "data_mode": ["forward", "input"],
        "summary_mode": "md5",
        "tensor_list": ["relu"],
    },
    "tensor": {"slice": [{"step": 0}]},
    "acc_check": {"white_list": ["add"], "black_list": []},
    "overflow_check": {"overflow_nums": 2},
    "risk_level": "FOCUS",
    "async_dump": False,
    "wrap_ops": None,
    "custom_op_namespaces": ["mine"],
}
_YAML = (
    b'"Functional.linear.0.forward": Functional.linear.1.forward\nTensor.add.0: "Tensor.x"\n',
    b"a: &b [1, 2]\nc: *b\n? k\n: {d: 2001-01-01, e: !!binary aGk=, f: 1_000, g: 0o17}\n",
)
_MERGE = b"api:\n  - Distributed.all_reduce\n  - 'Distributed.x'\ncompare_index:\n  - Max diff\n"
_LIST = (
    b"torch: [relu, 'add']\n# comment\ntensor:\n  - add_\n  - \"mul\"  # two\n---\ndistributed:\n"
)
_BERT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}
_LAYOUTS = b"""Module.q_proj.0.forward.output.0: transposed shard 0 blocks 4+2x2
Module.*.o_proj.*: replicate | sum groups 2
"Functional.embedding.0.forward.input.1": ids 3+4
"""
_METADATA = "golden_tensor/metadata.json"


def _read_capture_config(path: Path) -> None:
    for task in (None, "tensor", "structure"):
        read_settings(path, task=task)
    read_graph_settings(path)


def _read_torch_settings(path: Path) -> None:
    """An environment variable, not a file: its name stands for the file's."""
    try:
        settings = TorchSettings.from_json(path.read_bytes().decode("utf-8", "replace"))
    except UsageError as error:
        raise UsageError(f"{path.name}: {error}") from error
    settings.to_json()


def _torch_settings() -> list[bytes]:
    given = {"output": "/tmp/out", "steps": [[0, 3]], "layers": [[1, 2]], "types": ["torch"]}
    given |= {"follow": "/tmp/golden", "tokens": None, "control": None}
    given |= {"requests": [], "passes": None}
    return [json.dumps(given | {"type_prefixes": [], "module_names": ["a.b"]}).encode()]


def _read_metadata(path: Path) -> None:
    folder = path.parents[1]
    for pair in runs_of_metadata(folder, folder)[0]:
        for run in pair:
            for operation in run.operations:
                for tensor in operation.tensors:
                    _ = tensor.shape


def _beside_metadata(folder: Path) -> None:
    np.save(folder / "a.npy", np.zeros(2, np.float32))
    (folder / "golden_tensor" / "0").mkdir(parents=True)
    np.save(folder / "golden_tensor" / "0" / "b.npy", np.zeros(2, np.float32))


def _read_vocabulary(path: Path) -> None:
    WordPiece.from_file(path).encode("A quick brown fox, straße 中文!", 64)


_VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n!\n,\na\nqu\n##ick\nbrown\n\xe4\xb8\xad\n"

_PATTERNS = b"""# golden -> mine
allow missing
model.layers.{i}.self_attn.{q,k,v}_proj -> transformer.h.{i}.attn.qkv[columns]
h.{i}@{i+1}:{input_0,output} -> b:{x,y}[pick 0 0:7,9][transposed] + b:z ~0.4
when steps 0,2-5
**:* -> =
when models - -> Decoder_Prefill
a\\{b[dequantised 0.5 0.0 -1] -> b[rotary halves heads=8]
"""

TARGETS = (
    Target(
        "op_mapping",
        "op_mapping_file.json",
        lambda: [json.dumps(_OP_MAPPING).encode(), json.dumps(_SAVED).encode()],
        read_either,
        mutate_json,
    ),
    Target("patterns", "mapping.txt", lambda: [_PATTERNS], read_either, mutate_text),
    Target(
        "dump_data_files",
        _METADATA,
        lambda: [b'{"x": {"0": ["a.npy", "golden_tensor/0/b.npy"]}}'],
        _read_metadata,
        mutate_json,
        _beside_metadata,
    ),
    Target("compare_file", "compare.json", lambda: [_COMPARE_FILE], read_compare_file, mutate_text),
    Target("data_mapping", "mapping.yaml", lambda: list(_YAML), read_data_mapping, mutate_text),
    Target("layouts", "layouts.yaml", lambda: [_LAYOUTS], read_layouts, mutate_text),
    Target("merge_settings", "config.yaml", lambda: [_MERGE], read_merge_settings, mutate_text),
    Target(
        "check_config",
        "config.json",
        lambda: [json.dumps(_CONFIG).encode()],
        read_check_file,
        mutate_json,
    ),
    Target(
        "capture_config",
        "config.json",
        lambda: [json.dumps(_CONFIG).encode()],
        _read_capture_config,
        mutate_json,
    ),
    Target("torch_settings", "AIT_TORCH", _torch_settings, _read_torch_settings, mutate_json),
    Target(
        "kernel_config",
        "dump.json",
        lambda: [b'{"dump": {"dump_list": [], "dump_path": "./output", "dump_mode": "all"}}'],
        checked_config,
        mutate_json,
    ),
    Target(
        "fusion_switches",
        "switch.json",
        lambda: [b'{"Switch": {"GraphFusion": {"ALL": "off"}}}'],
        _checked_switches,
        mutate_json,
    ),
    Target(
        "api_sections",
        "ops.yaml",
        lambda: [_LIST],
        lambda path: (read_sections(path), combined_apis(path)),
        mutate_text,
    ),
    Target("vocabulary", "vocab.txt", lambda: [_VOCABULARY], _read_vocabulary, mutate_text),
    Target(
        "model_config",
        "config.json",
        lambda: [json.dumps(_BERT).encode()],
        minilm._read_config,
        mutate_json,
    ),
    Target(
        "planned_model",
        "config.json",
        lambda: [json.dumps(_BERT | {"model_type": "bert", "rope": {"heads": 4}}).encode()],
        read_model_config,
        mutate_json,
    ),
)
