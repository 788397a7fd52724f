"""The same models in litgpt, with weights that its own functions converted.

litgpt is no dependency of the tests: ``scripts/engines/record_litgpt`` records what these programs
leave, and the recordings are used where litgpt is not installed.
"""

from __future__ import annotations

import importlib.util
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from matching_truth import families
from matching_truth.drives import PROMPT
from matching_truth.program import Program

_SHARED = {
    "n_layer": 2,
    "n_head": 4,
    "padded_vocab_size": families.WORDS,
    "block_size": 64,
    "norm_eps": 1e-6,
    "rope_base": 10000,
    "sliding_window_size": None,
}
# Name of a configuration that litgpt knows, and what is smaller here.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama-3-8B", {}),
    "gpt-neox": (
        "pythia-70m",
        {"rotary_percentage": 0.5, "norm_eps": 1e-5, "n_query_groups": 4},
    ),
    "mistral": ("Mistral-7B-v0.1", {}),
    "phi3": ("Phi-3-mini-4k-instruct", {"norm_eps": 1e-5}),
    "gemma2": (
        "Gemma-2-2b",
        {
            "attention_scores_scalar": 16,
            "sliding_window_size": 4,
            "sliding_window_indices": [1, 0],
        },
    ),
    "mixtral": ("Mixtral-8x7B-v0.1", {"n_expert": 4, "norm_eps": 1e-5, "rope_base": 1000000}),
    "qwen3": ("Qwen3-0.6B", {}),
}

RECORDED = [
    *((family, sizes, False) for family in CONFIGS for sizes in ("distinct", "equal")),
    *((family, "distinct", True) for family in ("llama", "gpt-neox")),
]
"""Family, sizes, and whether operators are in it."""


def is_installed() -> bool:
    """True where litgpt can be imported."""
    return importlib.util.find_spec("litgpt") is not None


def _config(family: str, sizes: str) -> Any:
    from litgpt.config import Config

    name, changes = CONFIGS[family]
    equal = sizes == "equal"
    widths = {
        "n_embd": 64 if equal else 48,
        "intermediate_size": 64 if equal else 80,
        "n_query_groups": 4 if equal else 2,
        "head_size": 16,
    }
    if family == "gpt-neox":
        widths["head_size"] = widths["n_embd"] // 4
    return Config.from_name(name, **_SHARED | widths | changes)


def _converted(model: nn.Module, config: Any) -> dict[str, torch.Tensor]:
    """Weights under litgpt's names, read from a checkpoint as its command does."""
    from litgpt.scripts import convert_hf_checkpoint as convert
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = load_file(Path(folder) / "model.safetensors")
    found: dict[str, torch.Tensor] = {}
    name = config.name.lower()
    if name.startswith("pythia"):
        convert.copy_weights_gpt_neox(config, found, weights)
    elif name.startswith("gemma-2"):
        convert.copy_weights_gemma_2({}, found, weights)
    elif name.startswith("phi"):
        convert.copy_weights_phi(config, {}, found, weights)
    elif name.startswith("qwen3"):
        convert.copy_weights_qwen_3(config, {}, found, weights)
    else:
        convert.copy_weights_hf_llama(config, {}, found, weights)
    return found


def make(family: str, sizes: str = "distinct") -> nn.Module:
    """A litgpt model with the weights of :func:`families.make`."""
    from litgpt.model import GPT

    config = _config(family, sizes)
    model: nn.Module = GPT(config)
    if torch.get_default_dtype() is torch.float64:
        return model  # in the exact run the weights are loaded by the caller
    model.load_state_dict(_converted(families.make(family, sizes), config))
    return model


def once(model: nn.Module) -> None:
    """One pass over the prompt."""
    model(torch.tensor([PROMPT]))


def program(family: str, sizes: str = "distinct", *, operators: bool = False) -> Program:
    """One pass of a litgpt model."""
    words = ["litgpt", family, sizes, *(["op"] * operators)]
    return Program("-".join(words), partial(make, family, sizes), once, operators=operators)
