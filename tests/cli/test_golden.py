"""``ait llm golden`` and ``ait llm check``."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from choosing_runs import atb
from click.testing import CliRunner, Result
from generating import PROMPT, captured, model
from transformers import LlamaForCausalLM, T5Config

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait
from ait_llm.dump import torch_run
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dump.golden.checkpoint import check_likeness, open_checkpoint
from ait_llm.dump.golden.likeness import Likeness, read_likeness
from ait_llm.dump.torch_ledger import read_torch_ledger
from ait_llm.dump.torch_run import TorchDumpPlan
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.errors import UsageError
from ait_llm.program.row_plan import RowPlan


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and a healthy capture of it."""
    folder = tmp_path_factory.mktemp("cli")
    made = model()
    made.save_pretrained(folder / "checkpoint")
    captured(made, folder / "mine")
    return folder


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def golden(place: Path, output: Path, *more: str | Path, like: Path | None = None) -> Result:
    like = place / "mine" if like is None else like
    return run("golden", "--model", place / "checkpoint", "--like", like, "-o", output, *more)


def other_config(place: Path, folder: Path, **changes: Any) -> Path:
    """A folder with a checkpoint whose configuration says otherwise."""
    shutil.copytree(place / "checkpoint", folder / "checkpoint")
    path = folder / "checkpoint" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def refused(result: Result, *words: str) -> None:
    """One sentence that says so, and exit code 2."""
    assert result.exit_code == 2, result.output
    errors = [line for line in result.output.splitlines() if line.startswith("ait: error:")]
    assert len(errors) == 1
    for word in words:
        assert word in errors[0]


def test_it_says_what_it_runs_and_what_comes_next(place: Path, tmp_path: Path) -> None:
    result = golden(place, tmp_path)
    assert result.exit_code == 0, result.output
    assert "9 tokens of 1 request in 6 steps" in result.output
    assert "loaded all at once" in result.output
    assert f"ait llm compare -gp {tmp_path}/ait_dump -mp {place}/mine" in result.output


def test_json_says_what_was_written(place: Path, tmp_path: Path) -> None:
    result = golden(place, tmp_path, "--json", "--steps", "0,1", "-q")
    found = json.loads(result.stdout.splitlines()[-1])
    assert (found["complete"], found["steps"], found["problems"]) == (True, [0, 1], [])


def test_layer_by_layer_is_said(place: Path, tmp_path: Path) -> None:
    assert "loaded layer by layer" in golden(place, tmp_path, "--layer-by-layer").output


def test_weights_of_golden_are_those_of_its_checkpoint(place: Path, tmp_path: Path) -> None:
    made = model()
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight[3] *= 1.2
    with register_hook(made, DumpConfig(tmp_path / "mine", token_range=[0], weights=True)):
        made.generate(PROMPT, max_new_tokens=1, do_sample=False, attention_mask=PROMPT.ne(0))
    golden(place, tmp_path / "golden", like=tmp_path / "mine")
    result = run("compare", "-gp", tmp_path / "golden", "-mp", tmp_path / "mine", "-o", tmp_path)
    assert result.exit_code == 1
    assert "root.model.layers.1.mlp.down_proj" in result.output
    assert "other weight" in result.output


class TestRefused:
    """What cannot be, told in one sentence before anything runs."""

    def test_no_checkpoint(self, place: Path, tmp_path: Path) -> None:
        result = run("golden", "--model", tmp_path, "--like", place / "mine", "-o", tmp_path)
        refused(result, "holds no checkpoint (config.json)")

    def test_a_configuration_without_weights(self, place: Path, tmp_path: Path) -> None:
        shutil.copy(place / "checkpoint" / "config.json", tmp_path)
        result = run("golden", "--model", tmp_path, "--like", place / "mine", "-o", tmp_path)
        refused(result, "no weights")

    def test_another_vocabulary(self, place: Path, tmp_path: Path) -> None:
        other = other_config(place, tmp_path, vocab_size=20)
        refused(golden(other, tmp_path / "o", like=place / "mine"), "token", "has 20 tokens")

    def test_another_width(self, place: Path, tmp_path: Path) -> None:
        other = other_config(place, tmp_path, hidden_size=64)
        words = "hidden states of the capture are 32 wide, those of the checkpoint 64"
        refused(golden(other, tmp_path / "o", like=place / "mine"), words)

    def test_a_family_that_transformers_does_not_know(self, place: Path, tmp_path: Path) -> None:
        other = other_config(place, tmp_path, model_type="gaggle")
        result = golden(other, tmp_path / "o", like=place / "mine")
        refused(result, "does not know the family 'gaggle'", "--trust-remote-code")

    def test_a_package_that_breaks_the_import_of_transformers_is_named(
        self, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: object, **kwargs: object) -> None:
            raise ImportError("Could not import module 'x': torchvision::nms does not exist")

        monkeypatch.setattr("transformers.AutoConfig.from_pretrained", broken)
        result = golden(place, tmp_path / "o")
        refused(result, "cannot import what it needs", "torchvision::nms does not exist")

    def test_code_beside_the_checkpoint_does_not_run_unasked(
        self, place: Path, tmp_path: Path
    ) -> None:
        names = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
        other = other_config(place, tmp_path, model_type="gaggle", auto_map=names)
        code = tmp_path / "checkpoint" / "own.py"
        code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
        refused(golden(other, tmp_path / "o", like=place / "mine"), "gaggle")
        assert not (tmp_path / "ran").exists()

    def test_a_model_with_an_encoder(self, place: Path, tmp_path: Path) -> None:
        T5Config(d_model=32).save_pretrained(tmp_path / "checkpoint")
        shutil.copy(place / "checkpoint" / "model.safetensors", tmp_path / "checkpoint")
        refused(golden(tmp_path, tmp_path / "o", like=place / "mine"), "encoder and a decoder")

    def test_a_capture_without_tokens(self, place: Path, tmp_path: Path) -> None:
        inner = torch.nn.Sequential(torch.nn.Linear(4, 4))
        with register_hook(inner, DumpConfig(tmp_path / "mine")):
            inner(torch.ones(2, 4))
        refused(golden(place, tmp_path / "o", like=tmp_path / "mine"), "holds no tokens")

    def test_steps_that_were_not_captured(self, place: Path, tmp_path: Path) -> None:
        refused(golden(place, tmp_path, "--steps", "70,80"), "has none of these passes")

    def test_a_device_that_is_not_there(self, place: Path, tmp_path: Path) -> None:
        refused(golden(place, tmp_path, "--device", "npu:7"), "--device npu:7 cannot be used here")

    def test_transformers_is_not_installed(
        self, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        refused(golden(place, tmp_path), "'transformers', which is not installed", "pip install")


def test_tokens_of_the_acceleration_library_are_read(tmp_path: Path) -> None:
    atb(tmp_path / "mine", [[1, 2, 3], [4]])
    like = read_likeness(tmp_path / "mine")
    assert like.rows.requests == ((1, 2, 3, 4),)
    assert (like.hidden, like.table) == (4, 8)
    assert [each.shape for each in like.rows.passes] == [(3,), (1,)]


def test_tokens_of_api_calls_are_read_without_their_padding(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="tensor", level="L1")
    ids = torch.tensor([[0, 0, 23, 5], [11, 23, 5, 42]])
    try:
        with torch.no_grad():
            debugger.start()
            model()(input_ids=ids, attention_mask=ids.ne(0).long(), use_cache=False)
            debugger.stop()
            debugger.step()
    finally:
        PrecisionDebugger._reset()  # there is one for a process, also for later tests
    like = read_likeness(tmp_path)
    assert like.rows.requests == ((23, 5), (11, 23, 5, 42))
    assert (like.hidden, like.table) == (32, 96)


def test_a_batch_that_may_be_padded_is_not_guessed(place: Path) -> None:
    rows = RowPlan(((0, 7), (4, 5)), (), unsure=frozenset({0, 1}))
    like = Likeness(Path("mine"), rows, 32, 96, "float")
    with pytest.raises(UsageError, match="has no mask"):
        check_likeness(open_checkpoint(place / "checkpoint"), like)


class TestCheck:
    """A program, its checkpoint and one report."""

    @staticmethod
    def check(place: Path, output: Path, command: str = "python generate.py") -> Result:
        words = ("--model", place / "checkpoint", "--exec", command, "-o", output)
        return run("check", *words, "-q", "--json")

    @pytest.fixture
    def programs(self, monkeypatch: pytest.MonkeyPatch) -> list[LlamaForCausalLM]:
        """The model that the program runs, here in this process."""
        made = [model()]

        def captured_here(plan: TorchDumpPlan, _environ: Mapping[str, str]) -> TorchSummary:
            captured(made[0], plan.settings.output)
            paths = [*(plan.settings.dump_dir / "ledger").iterdir()]
            found = [read_torch_ledger(path, "") for path in paths]
            return TorchSummary(0, plan.settings.dump_dir, tuple(filter(None, found)))

        monkeypatch.setattr(torch_run, "run_torch_dump", captured_here)
        return made

    @pytest.mark.usefixtures("programs")
    def test_a_healthy_program_passes(self, place: Path, tmp_path: Path) -> None:
        result = self.check(place, tmp_path)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout.splitlines()[-1])["verdict"] == "PASS"
        assert {"mine", "golden"} < {path.name for path in tmp_path.iterdir()}

    def test_the_operator_that_is_wrong_is_named(
        self, programs: list[LlamaForCausalLM], place: Path, tmp_path: Path
    ) -> None:
        with torch.no_grad():
            programs[0].model.layers[1].mlp.down_proj.weight[3] *= 1.2
        result = self.check(place, tmp_path)
        assert result.exit_code == 1
        found = json.loads(result.stdout.splitlines()[-1])
        assert "layers.1.mlp.down_proj" in json.dumps(found["origins"])

    def test_a_program_that_fails_is_no_verdict(self, place: Path, tmp_path: Path) -> None:
        command = shlex.join([sys.executable, "-S", "-c", "raise SystemExit(7)"])
        assert self.check(place, tmp_path, command).exit_code == 6

    def test_a_folder_without_a_checkpoint_is_told_before_the_program_runs(
        self, tmp_path: Path
    ) -> None:
        result = run("check", "--model", tmp_path, "--exec", "false", "-o", tmp_path / "out")
        refused(result, "holds no checkpoint")
        assert not (tmp_path / "out").exists()


def test_numbers_of_golden_are_float32_by_default(place: Path, tmp_path: Path) -> None:
    from ait_llm import open_dump

    golden(place, tmp_path)
    outputs = [
        tensor
        for operation in open_dump(tmp_path).operations(step=0)
        for tensor in operation.outputs
        if tensor.dtype.is_floating
    ]
    assert {np.asarray(tensor.nd()).dtype for tensor in outputs} == {np.dtype(np.float32)}
