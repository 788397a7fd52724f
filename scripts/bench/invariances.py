"""Healthy programs and planted faults under changes that must not change an answer.

    python scripts/bench/invariances.py --results rows.jsonl --write
    python scripts/bench/invariances.py --families llama gpt2 --changes batch chunks

Healthy programs are small models of families of ``transformers`` with drawn weights, each with
``generate`` and as a call of the model, in float32 and bfloat16. None of them may be told to
break an invariance. Faults are planted one by one: each breaks one invariance by its nature, and
the module whose code is wrong is known. Both are described in ``docs/invariant.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from healthy_runs.any_family import model_of  # noqa: E402
from invariance_faults import planted  # noqa: E402
from invariances_page import Row, publish, read  # noqa: E402

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


def main() -> int:
    """0 if no healthy program is accused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--families", nargs="*", default=[*DECODERS, *ENCODERS, *BOTH])
    parser.add_argument("--changes", nargs="+", default=_QUICK, choices=_QUICK)
    parser.add_argument("--no-faults", action="store_true", help="healthy programs only")
    parser.add_argument("--results", type=Path, help="a file that rows are added to")
    parser.add_argument("--write", action="store_true", help="write docs/invariant-results.md")
    given = parser.parse_args()
    rows = []
    for row in _rows(given):
        rows.append(row)
        print(row.line(), flush=True)
        if given.results is not None:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(row.record())
    if given.write:
        publish(rows if given.results is None else read(given.results))
    return int(any(row.is_accused for row in rows))


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    for family in given.families:
        yield from healthy(family, given.changes)
    if not given.no_faults:
        yield from faulty()


def healthy(family: str, changes: Sequence[str]) -> Iterator[Row]:
    """What is said of healthy programs of a family."""
    kind = "MASKED_LM" if family in ENCODERS else "CAUSAL_LM"
    kind = "SEQ_TO_SEQ_CAUSAL_LM" if family in BOTH else kind
    for dtype in TYPES:
        model: Any = model_of(kind, family, "eager", getattr(torch, dtype))
        ways: dict[str, tuple[Any, dict[str, Any]]] = {"call": (model, {"input_ids": _PAIR})}
        if kind == "SEQ_TO_SEQ_CAUSAL_LM":
            ways["call"][1]["decoder_input_ids"] = _PAIR[:, :4]
        if kind != "MASKED_LM":
            begins = {"decoder_start_token_id": 1} if family in BOTH else {}
            model.generation_config.update(eos_token_id=None, pad_token_id=0, **begins)
            few = {"max_new_tokens": 3, "do_sample": False}
            ways["generate"] = (model.generate, {"input_ids": _PROMPT, **few})
        for way, (function, arguments) in ways.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = invariant(function, changes=changes, **arguments)
            for each in result.outcomes:
                yield Row(
                    f"{family}/{dtype}/{way}",
                    each.name,
                    each.state,
                    "" if each.origin is None else each.origin.op,
                    each.reason,
                    equal=each.equal,
                )


def faulty() -> Iterator[Row]:
    """What is said of planted faults."""
    for fault in planted():
        started = time.monotonic()
        function, arguments = fault.call()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (each,) = invariant(function, changes=[fault.change], **arguments).outcomes
        yield Row(
            fault.name,
            fault.change,
            each.state,
            "" if each.origin is None else each.origin.op,
            each.reason,
            wanted=fault.where,
            seconds=round(time.monotonic() - started, 1),
        )


if __name__ == "__main__":
    sys.exit(main())
