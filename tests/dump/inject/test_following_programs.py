"""Unchanged programs that follow a golden run, through the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from generating import PROMPT, captured, generate, model

from ait_llm.cli.main import ait

PROGRAM = """
import sys
from transformers import LlamaConfig, LlamaForCausalLM
import torch

config = {config}
torch.manual_seed(5)
model = LlamaForCausalLM(LlamaConfig(**config)).eval()
ids = torch.tensor({prompt})
if "loop" in sys.argv:
    with torch.no_grad():
        for _ in range(3 if "short" in sys.argv else 6):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
else:
    ids = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample="sample" in sys.argv,
        num_beams=3 if "beams" in sys.argv else 1,
    )
print(ids[0, {length}:].tolist())
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(model(), tmp_path_factory.mktemp("golden"))


def run(tmp_path: Path, golden: Path, *words: str) -> tuple[int, list[int], dict[str, object]]:
    """Exit code, what the program prints, and the result of the command."""
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    names += ("num_attention_heads", "num_key_value_heads", "pad_token_id", "eos_token_id")
    config = {name: getattr(model().config, name) for name in names}
    program = tmp_path / "program.py"
    text = PROGRAM.format(config=config, prompt=PROMPT.tolist(), length=PROMPT.shape[1])
    program.write_text(text)
    command = " ".join([sys.executable, str(program), *words])
    dump = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", command, "--type", "torch"]
    dump += ["-er", "all", "-o", str(tmp_path / "mine"), "--follow", str(golden), "--json"]
    result = subprocess.run(dump, capture_output=True, text=True, check=False)
    said, *_, told = result.stdout.splitlines()
    return result.returncode, json.loads(said), json.loads(told)


def test_a_program_that_samples_prints_the_tokens_of_golden(golden: Path, tmp_path: Path) -> None:
    code, tokens, told = run(tmp_path, golden, "sample")
    assert code == 0, told
    assert tokens == generate(model())[0].tolist()
    [note] = [text for text in told["notes"] if "followed" in text]
    assert note.endswith("; it samples, so what it would have chosen is not known")


def test_a_golden_run_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    words = ["dump", "--exec", "python x.py", "--type", "torch", "-o", str(tmp_path)]
    result = CliRunner().invoke(ait, ["llm", *words, "--follow", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "nowhere: no such file or directory" in result.stderr


def test_a_program_with_a_loop_of_its_own_follows(golden: Path, tmp_path: Path) -> None:
    code, tokens, told = run(tmp_path, golden, "loop")
    expected = generate(model())[0].tolist()
    assert tokens[: len(expected) - 1] == expected[:-1]  # the last choice is read by no call
    assert code == 0, told
    [note] = [text for text in told["notes"] if "followed" in text]
    assert "its own choice would have been" in note


def test_a_program_that_ends_before_golden_ends_with_3(golden: Path, tmp_path: Path) -> None:
    code, _, told = run(tmp_path, golden, "loop", "short")
    assert code == 3
    [problem] = told["problems"]
    assert "the program ended request 0 by itself, 3 tokens before golden" in problem


def test_a_program_that_searches_with_beams_follows(tmp_path: Path) -> None:
    golden = captured(model(), tmp_path / "golden", num_beams=3)
    code, _, told = run(tmp_path, golden, "beams")
    assert code == 0, told
    [note] = [text for text in told["notes"] if "followed" in text]
    assert "its own choice would have been" in note
    ledgers = [next(each.rglob("ledger/*.jsonl")) for each in (golden, tmp_path / "mine")]
    lines = [map(json.loads, ledger.read_text().splitlines()) for ledger in ledgers]
    kept = [[line.get("kept") for line in each if line["kind"] == "beams"] for each in lines]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 6
