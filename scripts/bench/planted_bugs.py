"""Small models of families of ``transformers``, one with published weights, and bugs for them."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from healthy_runs.any_family import model_of  # noqa: E402

from ait_llm.hostatb.models.minilm import find_minilm  # noqa: E402

FAMILIES = (
    *("llama", "gpt2", "opt", "bloom", "gemma2", "mixtral", "qwen3", "phi3", "mistral"),
    *("gpt_neox", "falcon", "bert", "roberta"),
)
PUBLISHED = "minilm"
ENCODERS = ("bert", "roberta")
WITHOUT_SDPA = ("gemma2", "bloom")
TYPES = ("float32", "bfloat16")
_FIRST_WORD = 1996  # of the vocabulary of BERT; before it are marks, letters and unused places


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault of one module.

    Attributes:
        where: path of the module.
        kind: of the fault.
        strength: how large.
    """

    where: str
    kind: str
    strength: float

    def plant(self, model: nn.Module) -> None:
        """Put it into a model."""
        module: Any = model.get_submodule(self.where)
        if self.kind == "weight":
            module.weight.data *= 1 + self.strength
        elif self.kind == "rows":
            rows = max(1, int(len(module.weight) * self.strength))
            module.weight.data[:rows] = module.weight.data[:rows].roll(1, 0)
        else:
            forward = module.forward
            module.forward = lambda *args, **kwargs: _scaled(
                forward(*args, **kwargs), 1 + self.strength
            )


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, Tensor):
        return value * factor
    return (value[0] * factor, *value[1:])


class PredictsWords(nn.Module):
    """The sentence encoder all-MiniLM-L6-v2 as a model of words: its embeddings are the head.

    Args:
        attention: its implementation.
        dtype: of the weights.
    """

    def __init__(self, attention: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.encoder = transformers.BertModel.from_pretrained(
            find_minilm(), attn_implementation=attention, dtype=dtype, add_pooling_layer=False
        ).eval()
        words = self.encoder.get_input_embeddings().weight
        self.head = nn.Linear(words.shape[1], words.shape[0], bias=False, dtype=dtype)
        self.head.weight = nn.Parameter(words.detach().clone(), requires_grad=False)

    def forward(self, input_ids: Tensor) -> Any:
        """Logits of [B, T, V] for ids of [B, T], which count from the first common word."""
        hidden = self.encoder(input_ids=input_ids + _FIRST_WORD).last_hidden_state
        return MaskedLMOutput(logits=self.head(hidden))


def programs() -> Iterator[tuple[str, str, str]]:
    for family in FAMILIES if find_minilm() is None else (*FAMILIES, PUBLISHED):
        for dtype in TYPES:
            for attention in ("eager",) if family in WITHOUT_SDPA else ("eager", "sdpa"):
                yield family, dtype, attention


def made(family: str, dtype: str, attention: str) -> nn.Module:
    if family == PUBLISHED:
        return PredictsWords(attention, getattr(torch, dtype))
    kind = "MASKED_LM" if family in ENCODERS else "CAUSAL_LM"
    model: nn.Module = model_of(kind, family, attention, getattr(torch, dtype))
    return model


def drawn_bug(rng: random.Random, model: nn.Module) -> Bug:
    """Drawn from the modules with a weight of their own that no other module has."""
    weights = Counter(id(each.weight) for each in model.modules() if _has_weight(each))
    names = [
        name
        for name, each in model.named_modules()
        if name and _has_weight(each) and weights[id(each.weight)] == 1
    ]
    kind = rng.choice(("weight", "output", "rows"))
    strength = 10 ** rng.uniform(-2.5, -0.3)
    return Bug(rng.choice(names), kind, strength)


def _has_weight(module: Any) -> bool:
    return isinstance(getattr(module, "weight", None), nn.Parameter)


def with_bugs(family: str, dtype: str, attention: str, bugs: Sequence[Bug]) -> nn.Module:
    model = made(family, dtype, attention)
    for bug in bugs:
        bug.plant(model)
    return model


def effect(golden: nn.Module, mine: nn.Module, ids: Tensor) -> float:
    """What a model does to the logits, relative to golden's, both without the mean of each row."""
    with torch.no_grad():
        rows = [model(input_ids=ids).logits.double() for model in (golden, mine)]
    theirs, ours = (each - each.mean(-1, keepdim=True) for each in rows)
    return float((ours - theirs).norm() / theirs.norm())


def is_of(op: str, bug: Bug) -> bool:
    return f"{op}.".startswith(f"root.{bug.where}.")
