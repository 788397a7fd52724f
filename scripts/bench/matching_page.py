"""Results of matching as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from matching_truth import PAIRS, Score

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matching-results.md"
KINDS = {
    "a": "Programs against themselves",
    "b": "The other attention implementation",
    "c": "Batch, padding, cache and data type",
    "d": "transformers against litgpt, converted weights",
    "e": "transformers against vLLM, recorded",
    "f": "One process against two ranks of tensor parallelism",
    "g": "LoRA merged against LoRA beside the weights",
    "h": "Weights in int8 against the same in floating point",
}
_HEAD = """# Results of matching

Written by `scripts/bench/matching.py --write`; do not edit it. Two programs of one model are run
and captured, each value is labelled by a second run in float64, and what
[the matcher](matching.md) pairs is held against the labels; `tests/support/matching_truth` says
how. All models have two or three layers and random weights. *Both* are the tensors of either side
that the other side holds in some form: equal, a part, other rows, another order. *Right* are those
of them in a pair whose true values are equal, *wrong* are pairs whose true values are not, and
*missed* is the rest. `distinct` sizes have widths that differ, in `equal` ones queries, keys,
hidden states and inner layers are equally wide and all norms are ones; `module` captures have what
modules take and return, `op` captures every aten operator too.

Wanted are no wrong pair, and a recall of at least 0.95, 0.99 within one library.
"""


def as_page(found: Mapping[str, Score]) -> str:
    """The whole page.

    Args:
        found: results by the name of the pair, pairs of one kind together.
    """
    met = sum(PAIRS[name].is_met(each) for name, each in found.items())
    wrong = sum(each.wrong for each in found.values())
    lines = [_HEAD, f"{met} of {len(found)} pairs are as wanted; {wrong} wrong pairs in all."]
    for kind, names in groupby(found, key=lambda name: name.partition("/")[0]):
        rows = [(name, found[name]) for name in names]
        lines += ["", f"## {KINDS[kind]}", ""]
        lines.append("| pair | both | right | wrong | missed | recall | |")
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        lines += [_row(name, each) for name, each in rows]
    return "\n".join(lines) + "\n"


def _row(name: str, each: Score) -> str:
    verdict = "met" if PAIRS[name].is_met(each) else "**missed**"
    counts = f"{each.total} | {each.right} | {each.wrong} | {each.missed} | {each.recall:.3f}"
    return f"| {name.partition('/')[2]} | {counts} | {verdict} |"
