"""Models of ONNX with a cache of keys and values: a prompt and a token of one session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.cli.main import ait

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
DATA = Path(__file__).parents[1] / "data" / "onnx"
PROGRAM = Path(__file__).parent / "programs" / "onnx_cache_program.py"
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def dump(folder: Path, *words: str) -> Path:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    program = " ".join(map(str, (sys.executable, PROGRAM, DATA / "llama_with_past.onnx", *words)))
    options = ["--type", "onnx", "-er", "all", "-o", str(folder), "--exec", program]
    done = subprocess.run(
        [sys.executable, "-m", "ait_llm", "llm", "dump", *options],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


PROMPT = [7, 10, 23, 42, 12, 3, 17]


def generate(folder: Path, **given: Any) -> Path:
    """``generate`` of transformers, module by module."""
    config = LlamaConfig(**SIZES)  # type: ignore[arg-type]
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(load_file(DATA / "llama.safetensors"))
    settings = DumpConfig(dump_path=folder, weights=True, token_range=[0, 1])
    with torch.no_grad(), register_hook(model, settings):
        more = {"max_new_tokens": 2, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        model.generate(**given, **more)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("golden"), input_ids=torch.tensor([PROMPT]))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dump(tmp_path_factory.mktemp("mine"), "ENABLE_ALL")


def compared(golden: Path, mine: Path, output: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, summary and the rows of the report."""
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", output, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    rows = next(output.glob("*.csv")).read_text("utf-8")
    return result.exit_code, json.loads(result.stdout.splitlines()[-1]), rows


def test_prompt_and_token_pass_against_generate(
    golden: Path, captured: Path, tmp_path: Path
) -> None:
    code, summary, rows = compared(golden, captured, tmp_path)
    assert code == 0, summary
    assert summary["counts"]["PASS"] > 280
    caches = [
        line
        for line in rows.splitlines()
        if "root/output_past_key_values" in line and "SKIPPED" not in line
    ]
    assert len(caches) == 2 * 4  # steps, keys and values of two layers


def test_what_a_batch_holds_for_padding_is_not_compared(tmp_path: Path) -> None:
    ids = torch.tensor([PROMPT, [0, 0, 0, 9, 30, 5, 21]])
    golden = generate(tmp_path / "golden", input_ids=ids, attention_mask=(ids > 0).long())
    code, summary, _ = compared(golden, dump(tmp_path / "mine", "ENABLE_ALL", "padded"), tmp_path)
    assert code == 0, summary
    assert summary["counts"]["PASS"] > 270


def test_every_node_is_recomputed(captured: Path, tmp_path: Path) -> None:
    words = ["llm", "opcheck", "-i", captured, "-o", tmp_path, "--format", "csv", "--json"]
    result = CliRunner().invoke(ait, list(map(str, words)))
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout.splitlines()[-1])["counts"]
    nodes = sum(1 for _ in open_dump(captured).operations())
    assert counts["PASS"] > 0.98 * nodes


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("layers", ("model.layers.0.self_attn.Concat_5", "model.layers.0.self_attn.Concat_6")),
        ("positions", ("model.rotary_emb.Unsqueeze_1", "model.rotary_emb.Shape")),
    ],
)
def test_what_the_program_gives_wrongly_is_no_fault_of_attention(
    golden: Path, tmp_path: Path, fault: str, names: tuple[str, ...]
) -> None:
    mine = dump(tmp_path / "mine", "ENABLE_ALL", fault)
    code, summary, _ = compared(golden, mine, tmp_path)
    assert code == 1
    first = summary["origins"][0]
    assert first["op"] in names
    assert first["step"] == 1
    assert first["evidence"].startswith("inputs differ already")
