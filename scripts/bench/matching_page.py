"""Results of matching on record, and as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from matching_truth import Score, floor_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matching-results.md"
RECORD = Path(__file__).resolve().with_name("matching.json")
Counts = Mapping[str, int]
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


def publish(found: Mapping[str, Score]) -> None:
    """Put results on record, in the place of older ones of the same pairs, and write the page."""
    record = recorded()
    for name, each in found.items():
        record[name] = {"right": each.right, "wrong": each.wrong, "missed": each.missed}
    # also of pairs that need what is not installed here
    lines = [f"  {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    PAGE.write_text(as_page(recorded()), encoding="utf-8")


def recorded() -> dict[str, Counts]:
    """Results by the name of the pair, pairs of one kind together."""
    if not RECORD.exists():
        return {}
    found: dict[str, Counts] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def as_page(record: Mapping[str, Counts]) -> str:
    """The whole page, of what is on record."""
    met = sum(_is_met(name, counts) for name, counts in record.items())
    wrong = sum(counts["wrong"] for counts in record.values())
    lines = [_HEAD, f"{met} of {len(record)} pairs are as wanted; {wrong} wrong pairs in all."]
    for kind, names in groupby(record, key=lambda name: name.partition("/")[0]):
        rows = [_row(name, record[name]) for name in names]
        lines += ["", f"## {KINDS[kind]}", ""]
        lines.append("| pair | both | right | wrong | missed | recall | |")
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        lines += rows
    return "\n".join(lines) + "\n"


def _recall(counts: Counts) -> float:
    return counts["right"] / (counts["right"] + counts["missed"])


def _is_met(name: str, counts: Counts) -> bool:
    return counts["wrong"] == 0 and _recall(counts) >= floor_of(name)


def _row(name: str, counts: Counts) -> str:
    verdict = "met" if _is_met(name, counts) else "**missed**"
    right, wrong, missed = counts["right"], counts["wrong"], counts["missed"]
    cells = f"{right + missed} | {right} | {wrong} | {missed} | {_recall(counts):.3f}"
    return f"| {name.partition('/')[2]} | {cells} | {verdict} |"
