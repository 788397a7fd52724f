"""The golden run of a program of the acceleration library is made from its checkpoint alone."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from doc_pages import Ran, Shell, own_environment
from transformers import LlamaConfig, LlamaForCausalLM

from ait_llm import compare
from ait_llm.core.comparison import Report, Verdict
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.weights import llama_weights
from ait_llm.probe.library import find_packaged

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's weights, as transformers stores them."""
    config = LLAMA_PRESETS["tiny"]
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            vocab_size=config.vocab_size,
            max_position_embeddings=config.max_positions,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
        )
    ).to(config.dtype)
    assert not model.load_state_dict(llama_weights(config, 0), strict=True).missing_keys
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    model.save_pretrained(folder)
    return folder


def run(folder: Path, *words: object) -> Ran:
    return Shell(folder, own_environment()).run(shlex.join(map(str, words)))


def compared(folder: Path, checkpoint: Path, *options: str) -> Report:
    """Capture the demo, make its golden run, compare."""
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    program = shlex.join([sys.executable, "-m", "ait_llm.hostatb.demo.llama", *options])
    dump = ("ait", "llm", "dump", "--type", "model", "layer", "tensor", "-er", "all")
    ran = run(folder, *dump, "--exec", program, "-o", "mine")
    assert ran.exit_code == 0, ran.output
    golden = ("ait", "llm", "golden", "--model", checkpoint, "--like", "mine", "-o", "golden")
    ran = run(folder, *golden)
    assert ran.exit_code == 0, ran.output
    return compare(folder / "golden", folder / "mine", jobs=1)


def test_a_healthy_program_passes(checkpoint: Path, tmp_path: Path) -> None:
    report = compared(tmp_path, checkpoint)
    assert report.verdict is Verdict.PASS
    assert [each.text for each in report.problems if each.decides] == []
    assert sum(each.verdict is Verdict.PASS for each in report.comparisons) > 100


@pytest.mark.parametrize(
    ("fault", "operation"),
    [("wrong_epsilon:layer=0", "RmsNorm"), ("wrong_softmax_scale:layer=1", "Attention")],
)
def test_a_wrong_operation_is_the_first_origin(
    fault: str, operation: str, checkpoint: Path, tmp_path: Path
) -> None:
    report = compared(tmp_path, checkpoint, "--fault", fault)
    assert report.verdict is Verdict.FAIL
    assert operation in report.origins[0].op
