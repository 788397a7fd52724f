"""Compares graphs that ONNX Runtime optimised with the plain graph and with the PyTorch program.

    scripts/engines/onnx_fused.py [--work DIR] [--families llama,gpt2,…] [--types f32,f16]

Exports small models with both exporters of ``torch.onnx`` (needs onnxscript), captures each at the
levels of optimisation of ONNX Runtime and as its offline tool rewrites it, and prints a line for
each pair: the exit code, PASS/FAIL/ERROR/SKIPPED, and what was accused. All are healthy.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from click.testing import CliRunner

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "e2e" / "programs" / "onnx_program.py"
PROMPTS = ([7, 10, 23, 42, 12, 3, 17], [1, 2, 3, 4, 5, 6, 7, 8])
LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
TYPES = {"f32": torch.float32, "f16": torch.float16}
_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_GROUPS = {**_SIZES, "num_key_value_heads": 2}
_GEMMA = {**_GROUPS, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPS),
    "qwen3": ("Qwen3", {**_GROUPS, "head_dim": 8}),
    "gemma2": ("Gemma2", _GEMMA),
    "gpt2": ("GPT2", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "bert": ("Bert", {**_SIZES, "max_position_embeddings": 32}),
}


class Logits(torch.nn.Module):
    """What is exported: ids in, logits out, without a cache."""

    def __init__(self, model: torch.nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        # the older exporter has no operator for how a missing mask is looked into
        mask = torch.ones_like(input_ids) if torch.jit.is_tracing() else None
        return self.model(input_ids=input_ids, attention_mask=mask, **self.options).logits


def made(family: str, attention: str, dtype: torch.dtype) -> Logits:
    """A model of random weights, those of norms among them."""
    torch.manual_seed(0)
    name, sizes = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**sizes)
    kind = "AutoModelForMaskedLM" if family == "bert" else "AutoModelForCausalLM"
    model = getattr(transformers, kind).from_config(config, attn_implementation=attention)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            centre = 1.0 if name.endswith("weight") else 0.0
            torch.nn.init.uniform_(parameter.data, centre - 0.3, centre + 0.3)
        else:
            parameter.data.mul_(4)
    return Logits(model.eval().to(dtype), **({} if family == "bert" else {"use_cache": False}))


def exported(model: Logits, path: Path, exporter: str) -> None:
    ids = torch.tensor([PROMPTS[0]])
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        if exporter == "dynamo":
            sizes = ({1: torch.export.Dim.DYNAMIC},)
            torch.onnx.export(
                model, (ids,), path, dynamo=True, dynamic_shapes=sizes, external_data=False
            )
        else:
            names = {"input_names": ["input_ids"], "output_names": ["logits"]}
            axes = {"input_ids": {1: "tokens"}}
            torch.onnx.export(
                model, (ids,), path, dynamo=False, dynamic_axes=axes, opset_version=17, **names
            )


def golden(model: Logits, folder: Path) -> None:
    """Captures of modules and of operators."""
    for level in ("modules", "operators"):
        settings = DumpConfig(
            folder / level, operators=level == "operators", weights=True, token_range=[0, 1]
        )
        with torch.no_grad(), register_hook(model.model, settings) as handle:
            for prompt in PROMPTS:
                handle.begin_generation() if prompt is PROMPTS[0] else handle.mark_token()
                model(torch.tensor([prompt]))


def captured(model: Path, folder: Path, level: str) -> None:
    command = f"{sys.executable} {PROGRAM} {model} {level}"
    words = ["llm", "dump", "--type", "onnx", "-o", str(folder), "-er", "all", "--exec", command]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
    subprocess.run(
        [sys.executable, "-m", "ait_llm", *words],
        env={**kept, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )


def by_the_tool(model: Path) -> Path:
    """The model as the offline optimiser of ONNX Runtime rewrites it."""
    path = model.with_name("tool.onnx")
    program = (
        "import sys; from onnxruntime.transformers.optimizer import optimize_model as o;"
        "o(sys.argv[1], sys.argv[3], 4, 32, opt_level=0).save_model_to_file(sys.argv[2])"
    )
    kind = "bert" if "bert" in model.parent.name else "gpt2"
    subprocess.run(
        [sys.executable, "-c", program, str(model), str(path), kind],
        check=True,
        capture_output=True,
    )
    return path


def compared(folder: Path, one: str, other: str) -> str:
    report = str(folder / f"{one}-{other}")
    sides = ["-gp", str(folder / one), "-mp", str(folder / other), "-o", report]
    done = CliRunner().invoke(ait, ["llm", "compare", *sides, "-j", "1", "--json"])
    if not done.stdout.strip():
        return f"exit {done.exit_code} {done.output[-200:]}"
    summary = json.loads(done.stdout.splitlines()[-1])
    counts = "/".join(str(summary["counts"][each]) for each in ("PASS", "FAIL", "ERROR", "SKIPPED"))
    names = [origin["op"] for origin in summary["origins"]]
    return f"exit {done.exit_code} {counts} {' '.join([*names, *summary['problems']])}"


def pairs() -> Iterator[tuple[str, str]]:
    for level in (*LEVELS[1:], "tool"):
        yield LEVELS[0], level
    for level in (LEVELS[0], LEVELS[-1], "tool"):
        yield "modules", level
        yield "operators", level


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--types", default=",".join(TYPES))
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    for family in given.families.split(","):
        for exporter in ("dynamo", "older"):
            for attention in ("eager", "sdpa"):
                for dtype in given.types.split(","):
                    name = f"{family}-{exporter}-{attention}-{dtype}"
                    folder = work / name
                    folder.mkdir(parents=True, exist_ok=True)
                    try:
                        model = made(family, attention, TYPES[dtype])
                        exported(model, folder / "model.onnx", exporter)
                        golden(model, folder)
                        for level in LEVELS:
                            captured(folder / "model.onnx", folder / level, level)
                        tool = by_the_tool(folder / "model.onnx")
                        captured(tool, folder / "tool", LEVELS[0])
                    except Exception as error:  # noqa: BLE001  exporters do not know all models
                        print(name, "not made:", str(error).splitlines()[0][:120], flush=True)
                        continue
                    for one, other in pairs():
                        print(name, one, other, compared(folder, one, other), flush=True)


if __name__ == "__main__":
    main()
