"""Tokens that differ: whether rounding or a bug is told to be why, and whether the parts add up.

    python scripts/bench/decisions.py --healthy --draws 60 --results rows.jsonl --write

Programs and bugs are those of ``transplants.py``. Golden is the model in float32 or in the type of
mine. A token that differs in a pair without a bug must be told to be within rounding. One that also
differs between golden and the same model with the bug, in one type and implementation, must be told
to be a difference. ``docs/tokens.md`` has the table.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path[:0] = [str(Path(__file__).parent)]

from drawn_rows import draw_rows, write_table  # noqa: E402
from planted_bugs import Bug, drawn_bug, effect, is_of, made, programs, with_bugs  # noqa: E402

from ait_llm.decisions.result import TokensResult  # noqa: E402
from ait_llm.decisions.running import tokens  # noqa: E402

IDS = torch.arange(0, 48).reshape(2, 24) * 37 % 96
_LARGE = 0.02  # of the logits, relatively: what a bug changes at least


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one pair.

    Attributes:
        program: family, types of golden and mine, attention of mine.
        bug: its module, kind and strength; empty for none.
        flips: of each token that differs and was looked at by itself: cause, whether it differs
            with the bug alone, change of the margin, what the parts add up to, and whether the
            largest part is of the bug.
        runs: of mine.
    """

    program: str
    bug: str
    flips: tuple[tuple[str, bool, float, float, bool], ...]
    runs: int

    @property
    def is_accused(self) -> bool:
        """A difference is told, and there is none."""
        return not self.bug and any(cause == "difference" for cause, *_ in self.flips)

    def line(self) -> str:
        """For people."""
        said = ", ".join(
            f"{cause}{'' if not alone else ' (bug alone: too)'} {change:.3g} of parts {parts:.3g}"
            for cause, alone, change, parts, _ in self.flips
        )
        return f"{self.program} {self.bug}: {said or 'no token differs'} ({self.runs} runs)"


def main() -> int:
    """0 if no healthy pair is accused."""
    return draw_rows(__doc__ or "", Row, _healthy, _draw, publish)


def publish(rows: Sequence[Row]) -> None:
    """Write the table of the pages."""
    write_table("tokens", "tokens", Path(__file__).name, table(rows))


def _pairs() -> Iterator[tuple[str, str, str, str]]:
    for family, dtype, attention in programs():
        yield family, dtype, dtype, attention
        if dtype != "float32":
            yield family, "float32", dtype, attention


def _healthy() -> Iterator[Row]:
    for family, trusted, dtype, attention in _pairs():
        golden, mine = made(family, trusted, "eager"), made(family, dtype, attention)
        name = f"{family}/{trusted}/{dtype}/{attention}"
        yield _row(name, None, tokens(golden, mine, input_ids=IDS), set())


def _draw(rng: random.Random) -> Row | None:
    """What is said of a pair with a bug; None where the bug changes too little or too much."""
    family, trusted, dtype, attention = rng.choice(list(_pairs()))
    golden = made(family, trusted, "eager")
    fault = drawn_bug(rng, golden)
    alone = with_bugs(family, trusted, "eager", [fault])
    if not _LARGE < effect(golden, alone, IDS) < 1:
        return None
    mine = with_bugs(family, dtype, attention, [fault])
    result = tokens(golden, mine, input_ids=IDS)
    name = f"{family}/{trusted}/{dtype}/{attention}"
    return _row(name, fault, result, _differing(golden, alone))


def _differing(golden: nn.Module, mine: nn.Module) -> set[tuple[int, ...]]:
    """Places at which two models prefer different tokens."""
    with torch.no_grad():
        chosen = [model(input_ids=IDS).logits.argmax(-1) for model in (golden, mine)]
    return {tuple(place) for place in (chosen[0] != chosen[1]).nonzero().tolist()}


def _row(program: str, fault: Bug | None, result: TokensResult, alone: set[tuple[int, ...]]) -> Row:
    flips = []
    for each in result.flips:
        if each.explained is not None:
            first = each.contributions[0].op
            flips.append(
                (
                    each.cause,
                    each.place in alone,
                    each.change,
                    each.explained,
                    fault is not None and is_of(first, fault),
                )
            )
        elif each.cause == "rounding" and not result.runs:
            flips.append((each.cause, each.place in alone, each.change, each.change, False))
    text = "" if fault is None else f"{fault.where} {fault.kind} {fault.strength:.2g}"
    return Row(program, text, tuple(flips), result.runs)


def table(rows: Sequence[Row]) -> str:
    """What was said of healthy pairs and of bugs, by the type of mine."""
    healthy = [row for row in rows if not row.bug]
    lines = [
        f"Healthy pairs: {len(healthy)}, {sum(row.is_accused for row in healthy)} accused.",
        "",
        "| pairs | tokens that differ | by rounding | by a difference | "
        "differ with the bug alone | of them by a difference | largest part is the bug's | "
        "parts off the change, median and worst |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in ("healthy", "with a bug"):
        for dtype in ("float32", "bfloat16"):
            some = [r for r in rows if bool(r.bug) == (kind != "healthy")]
            some = [r for r in some if r.program.split("/")[2] == dtype]
            flips = [flip for row in some for flip in row.flips]
            alone = [flip for flip in flips if flip[1]]
            told = [flip for flip in alone if flip[0] == "difference"]
            off = sorted(abs(flip[3] - flip[2]) / abs(flip[2]) for flip in told if flip[2])
            middle = f"{off[len(off) // 2]:.1%}, {off[-1]:.1%}" if off else ""
            causes = [sum(f[0] == cause for f in flips) for cause in ("rounding", "difference")]
            lines.append(
                f"| {len(some)} {kind}, {dtype} | {len(flips)} | {causes[0]} | {causes[1]} | "
                f"{len(alone)} | {len(told)} | {sum(f[4] for f in told)} | {middle} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
