"""Estimates for PyTorch programs are what captures then write."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ait_llm.core import StepRange
from ait_llm.dump.inject.root_finder import capture_options
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch.session import CaptureSession
from ait_llm.errors import UsageError
from ait_llm.plan.disk import Disk
from ait_llm.plan.meta_program import MetaRequest, run_request
from ait_llm.plan.pipeline import make_plan
from ait_llm.plan.proposals import proposals
from ait_llm.plan.survey import Surveyed, survey_model
from ait_llm.plan.torch_sizes import TorchSizes
from ait_llm.plan.torch_survey import read_torch_survey

Written = Callable[[Path], tuple[Counter[str], Counter[str]]]
STEPS = StepRange.parse("0,7")
LOOKED_AT = StepRange.parse("0,2,4,4,6,7")
DISK = Disk(1 << 40)
BOTH = ("torch", "torch-op")
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
}

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig.from_dict(CONFIG)).eval()


def generate(model: Any, settings: TorchSettings) -> Path:
    """Generate nine tokens under a capture."""
    ids = torch.arange(14).reshape(2, 7)
    session = CaptureSession(capture_options(settings), torch.device("cpu"))
    capture = session.capture(model)
    try:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=9,
            min_new_tokens=9,
            do_sample=False,
            pad_token_id=0,
        )
    finally:
        session.release(capture)
    return settings.output


@pytest.fixture(scope="module")
def sizes(model: Any, tmp_path_factory: pytest.TempPathFactory) -> TorchSizes:
    folder = tmp_path_factory.mktemp("survey")
    settings = TorchSettings(folder, types=BOTH, weights=True, survey=True, steps=LOOKED_AT)
    return TorchSizes(read_torch_survey(generate(model, settings)))


@pytest.mark.parametrize(
    "options",
    [
        {"types": ("torch",)},
        {"types": ("torch-op",)},
        {"types": BOTH, "steps": StepRange.parse("0,0,3,5")},
        {"types": ("torch",), "inputs": False, "layers": ((1, 2),), "weights": True},
        {"types": BOTH, "outputs": False, "module_names": ("*.self_attn",)},
        {"types": ("torch",), "type_prefixes": ("llamamlp", "linear")},
        {"types": ("torch",), "queue_bytes": 2000},
    ],
)
def test_tensors_are_told_to_the_byte(
    sizes: TorchSizes, model: Any, written: Written, tmp_path: Path, options: dict[str, Any]
) -> None:
    settings = TorchSettings(tmp_path, **{"steps": STEPS, **options})
    estimate = sizes.estimate(settings)
    real, files = written(generate(model, settings))
    told = {name: round(part.bytes) for name, part in estimate.parts.items()}
    assert told["tensors"] == real["tensors"]
    assert told.get("weights", 0) == real["weights"]
    assert estimate.files == files.total()
    assert estimate.bytes == pytest.approx(real.total(), rel=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {"types": ("torch-stats",)},
        {"types": ("torch-stats", "torch-op")},
        {"types": ("torch",), "description_only": True},
    ],
)
def test_statistics_and_descriptions_are_told(
    sizes: TorchSizes, model: Any, written: Written, tmp_path: Path, options: dict[str, Any]
) -> None:
    settings = TorchSettings(tmp_path, **{"steps": STEPS, **options})
    estimate = sizes.estimate(settings)
    real, files = written(generate(model, settings))
    assert estimate.parts["statistics"].bytes == pytest.approx(real["statistics"], rel=0.05)
    assert estimate.bytes == pytest.approx(real.total(), rel=0.05)
    assert estimate.files == files.total()


def test_every_proposal_writes_what_was_said(
    sizes: TorchSizes, model: Any, written: Written, tmp_path: Path
) -> None:
    asked = TorchSettings(tmp_path, types=BOTH, steps=STEPS)
    full = sizes.estimate(asked).bytes
    found, smallest = proposals(sizes, asked, full // 2)
    assert len(found) > 2
    for number, proposal in enumerate((*found, smallest)):
        assert isinstance(proposal.options, TorchSettings)
        output = tmp_path / str(number)
        real, _ = written(generate(model, replace(proposal.options, output=output)))
        assert proposal.estimate.bytes == pytest.approx(real.total(), rel=0.05), proposal.options
        assert smallest.estimate.bytes <= proposal.estimate.bytes <= full // 2


def test_a_model_is_told_from_its_config_without_weights(
    model: Any, sizes: TorchSizes, tmp_path: Path
) -> None:
    request = MetaRequest(CONFIG, batch=2, prompt=7, steps=9)
    asked = TorchSettings(tmp_path, types=BOTH, steps=STEPS)
    told = survey_model(request, asked, os.environ, DISK).sizes
    assert isinstance(told, TorchSizes)
    for types in (("torch",), ("torch-op",)):
        settings = replace(asked, types=types)
        estimate, exact = told.estimate(settings), sizes.estimate(settings)
        assert round(estimate.parts["tensors"].bytes) == round(exact.parts["tensors"].bytes)
        assert estimate.bytes == pytest.approx(exact.bytes, rel=0.02)
        assert estimate.files == exact.files
    assert not list(tmp_path.iterdir())


def test_a_model_that_transformers_does_not_know_is_refused() -> None:
    with pytest.raises(SystemExit, match="knows no model_type 'nonsense'"):
        run_request(MetaRequest({"model_type": "nonsense"}))


def test_sizes_that_make_no_model_are_told_in_a_sentence() -> None:
    with pytest.raises(SystemExit, match="ait llm plan: it cannot be run: "):
        run_request(MetaRequest({**CONFIG, "num_attention_heads": 5}))


def test_code_that_comes_with_a_model_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    run_request(MetaRequest({**CONFIG, "auto_map": auto_map}, steps=1))
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4},
        {"model_type": "bert", **SMALL, "architectures": ["BertForMaskedLM"]},
        {"model_type": "mixtral", **SMALL, "num_local_experts": 4},
        {"model_type": "qwen3_moe", **SMALL, "num_experts": 9, "moe_intermediate_size": 16},
        {
            "model_type": "deepseek_v3",
            **SMALL,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "quantization_config": {"quant_method": "fp8"},
        },
    ],
)
def test_architectures_run_on_shapes_alone(config: dict[str, Any]) -> None:
    run_request(MetaRequest({**config, "vocab_size": 99}, prompt=5, steps=2))


def test_where_transformers_is_missing_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "transformers.py").write_text("raise ImportError('not here')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(UsageError, match="needs torch and transformers"):
        survey_model(MetaRequest(CONFIG), TorchSettings(tmp_path / "out"), environ, DISK)


def test_commands_are_those_that_capture_so(sizes: TorchSizes, tmp_path: Path) -> None:
    settings = TorchSettings(
        tmp_path,
        types=("torch", "torch-op"),
        steps=StepRange.parse("all"),
        inputs=False,
        module_names=("re:a b$",),
        layers=((0, 1),),
        type_prefixes=("linear",),
        weights=True,
    )
    plan = make_plan(f"{sys.executable} x.py", settings, Surveyed(sizes), DISK)
    words = shlex.split(plan.command_of(settings))
    assert words == [
        *("ait", "llm", "dump", "--exec", f"{sys.executable} x.py", "--type", "torch", "torch-op"),
        *("--module-name", "re:a b$", "--layers", "0,1", "-opname", "linear", "-stp", "1"),
        *("--weights", "-er", "all", "-o", str(tmp_path)),
    ]
    assert json.loads(json.dumps(plan.as_dict()))["asked"]["command"] == shlex.join(words)
