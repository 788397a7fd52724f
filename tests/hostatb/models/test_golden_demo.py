"""The golden demo programs: the PyTorch twins as a user starts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file
from torch import Tensor

from ait_llm.hostatb.demo import bert, bert_torch, llama, llama_torch
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import LLAMA_PRESETS, LlamaConfig
from ait_llm.hostatb.models.generate import follow, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights

TINY = LLAMA_PRESETS["tiny"]


def _run(arguments: Sequence[str], path: Path) -> dict[str, Tensor]:
    result = CliRunner().invoke(llama_torch.main, [*arguments, "--save-outputs", str(path)])
    assert result.exit_code == 0, result.output
    return load_file(path)


def test_the_twin_chooses_its_own_tokens_from_its_logits(tmp_path: Path) -> None:
    saved = _run(["--tokens", "4", "--seed", "3"], tmp_path / "out.safetensors")
    assert torch.equal(saved["logits"].argmax(-1), saved["tokens"])
    prompts = random_prompts(TINY, (7, 4), 3)
    again = follow(llama_twin(TINY, llama_weights(TINY, 3)), TINY, prompts, saved["tokens"])
    assert torch.equal(again, saved["logits"])


def test_it_follows_the_tokens_of_another_run(tmp_path: Path) -> None:
    tokens = torch.tensor([[9, 8], [7, 6], [5, 4]])
    save_file({"tokens": tokens}, tmp_path / "other.safetensors")
    arguments = ["--follow", str(tmp_path / "other.safetensors")]
    saved = _run(arguments, tmp_path / "out.safetensors")
    golden = llama_twin(TINY, llama_weights(TINY, 0))
    assert torch.equal(saved["tokens"], tokens)
    assert torch.equal(
        saved["logits"], follow(golden, TINY, random_prompts(TINY, (7, 4), 0), tokens)
    )
    first = _run([*arguments, "--tokens", "1"], tmp_path / "first.safetensors")
    assert torch.equal(first["tokens"], tokens[:1])


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_it_agrees_with_the_demo_that_it_follows(tmp_path: Path) -> None:
    shape = ["--layers", "3", "--prompt-lengths", "5,2,3", "--seed", "1", "--dtype", "bfloat16"]
    mine = tmp_path / "mine.safetensors"
    ran = CliRunner().invoke(llama.main, [*shape, "--save-outputs", str(mine)])
    assert ran.exit_code == 0, ran.output
    golden = _run([*shape, "--follow", str(mine)], tmp_path / "golden.safetensors")
    limit = tolerance(torch.bfloat16, 3, TINY.hidden_size)
    for expected, got in zip(golden["logits"], load_file(mine)["logits"], strict=True):
        assert agree(expected, got, limit).passed


def test_float32_computes_wider_from_the_same_weights(tmp_path: Path) -> None:
    saved = _run(["--dtype", "float32", "--tokens", "1"], tmp_path / "out.safetensors")
    assert saved["logits"].dtype is torch.float32
    wide = LlamaConfig(64, 2, 4, 2, 128, 256, dtype=torch.float32)
    weights = {name: tensor.float() for name, tensor in llama_weights(TINY, 0).items()}
    prompts = random_prompts(TINY, (7, 4), 0)
    assert torch.equal(
        saved["logits"], follow(llama_twin(wide, weights), wide, prompts, saved["tokens"])
    )


def test_weights_are_rounded_to_the_type_of_the_other_side(tmp_path: Path) -> None:
    arguments = ["--dtype", "float32", "--tokens", "1"]
    kinds = ("float16", "bfloat16", "float32")
    logits = [
        _run([*arguments, "--weights-dtype", kind], tmp_path / f"{kind}.safetensors")["logits"]
        for kind in kinds
    ]
    default = _run(arguments, tmp_path / "default.safetensors")["logits"]
    assert [torch.equal(default, other) for other in logits] == [True, False, False]


def _fail(arguments: Sequence[str]) -> Result:
    result = CliRunner().invoke(llama_torch.main, list(arguments))
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([[1, 2, 3]]), r"tokens are torch.int64 [1, 3] instead of int64 [steps, 2]"),
        (torch.tensor([[1.0, 2.0]]), "tokens are torch.float32"),
        (torch.tensor([[1, 256], [0, 0]]), "tokens outside the vocabulary of 256"),
        (torch.tensor([[1, 2]]), "holds 1 tokens per prompt, not 2"),
    ],
)
def test_tokens_that_cannot_be_followed_are_refused(
    tokens: Tensor, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"tokens": tokens}, path)
    assert message in _fail(["--follow", str(path), "--tokens", "2"]).stderr


def test_a_file_without_tokens_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"logits": torch.zeros(1)}, path)
    assert "holds no tensor called 'tokens'" in _fail(["--follow", str(path)]).stderr


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_the_bert_twin_embeds_what_the_demo_embeds(tmp_path: Path) -> None:
    saved = []
    for name, program in (("mine", bert.main), ("golden", bert_torch.main)):
        path = tmp_path / f"{name}.safetensors"
        arguments = ["--weights", "random", "--seed", "2", "--save-outputs", str(path)]
        result = CliRunner().invoke(program, arguments)
        assert result.exit_code == 0, result.output
        saved.append(load_file(path)["hidden_states"])
    mine, golden = saved
    assert agree(golden, mine, tolerance(torch.float16, 2, 64)).passed
