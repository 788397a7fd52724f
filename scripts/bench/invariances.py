"""Healthy programs and planted faults under changes that must not change an answer.

    python scripts/bench/invariances.py --healthy --faults --write

Healthy programs are small models of families of ``transformers`` with drawn weights, each
with ``generate`` and as a call of the model, in float32 and bfloat16. None of them may be told to
break an invariance. Faults are planted one by one: each breaks one invariance by its nature, the
operator or module that does it is known, and the program is right without the change.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from healthy_runs.any_family import model_of  # noqa: E402

from ait_llm.dump.changes.catalogue import CHANGES  # noqa: E402
from ait_llm.invariance.in_process import invariant  # noqa: E402

DECODERS = (
    *("llama", "gpt2", "opt", "bloom", "gemma2", "gemma3_text", "gpt_oss", "mixtral", "qwen2_moe"),
    *("granitemoe", "mamba", "qwen3", "phi3", "mistral", "gpt_neox", "falcon"),
)
ENCODERS = ("bert", "roberta", "distilbert")
BOTH = ("t5", "bart")
TYPES = ("float32", "bfloat16")
_PROMPT = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22]])
_PAIR = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])
_QUICK = tuple(name for name in CHANGES if name not in ("compile", "ranks"))


def healthy(names: tuple[str, ...], families: tuple[str, ...]) -> list[dict[str, object]]:
    """What is said of healthy programs."""
    rows = []
    for family in families:
        kind = "MASKED_LM" if family in ENCODERS else "CAUSAL_LM"
        kind = "SEQ_TO_SEQ_CAUSAL_LM" if family in BOTH else kind
        for dtype in TYPES:
            model = model_of(kind, family, "eager", getattr(torch, dtype))
            if kind != "MASKED_LM":
                model.generation_config.update(eos_token_id=None, pad_token_id=0)
            ways = {"call": (model, {"input_ids": _PAIR})}
            if kind == "SEQ_TO_SEQ_CAUSAL_LM":
                ways["call"][1]["decoder_input_ids"] = _PAIR[:, :4]
            if kind != "MASKED_LM":
                given = {"max_new_tokens": 3, "do_sample": False}
                ways["generate"] = (model.generate, {"input_ids": _PROMPT, **given})
            for way, (function, arguments) in ways.items():
                started = time.monotonic()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = invariant(function, changes=names, **arguments)
                for each in result.outcomes:
                    row = {
                        "family": family, "dtype": dtype, "way": way, "change": each.name,
                        "state": each.state, "equal": each.equal, "reason": each.reason,
                        "compared": each.compared, "origin": each.origin and each.origin.op,
                    }  # fmt: skip
                    rows.append(row)
                    if each.state not in ("held", "not made"):
                        print("   ", row, flush=True)
                print(
                    family,
                    dtype,
                    way,
                    f"{time.monotonic() - started:.0f} s",
                    " ".join(
                        f"{each.name}:{each.state[:4]}{'=' if each.equal else ''}"
                        for each in result.outcomes
                    ),
                    flush=True,
                )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="+", default=[*DECODERS, *ENCODERS, *BOTH])
    parser.add_argument("--changes", nargs="+", default=_QUICK)
    given = parser.parse_args()
    healthy(tuple(given.changes), tuple(given.families))
