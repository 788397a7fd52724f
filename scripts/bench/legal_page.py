"""The page on legal and faulty kernels at random shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "legal-results.md"


@dataclass(frozen=True)
class Row:
    """Draws of one kernel.

    Attributes:
        name: of the kernel.
        draws: of it.
        alarms: how many were accused.
        hidden: not accused, and not further off than a legal kernel.
        closest: the worst element in units of its bound.
    """

    name: str
    draws: int
    alarms: int
    hidden: int
    closest: float


@dataclass(frozen=True)
class Said:
    """One draw.

    Attributes:
        name, seed, shape: which.
        error, bound, legal: its relative error, the permitted one, and a legal kernel's.
        reason: of the accusation; empty without one.
        agree: quick looks change no verdict.
    """

    name: str
    seed: int
    shape: str
    error: float
    bound: float
    legal: float
    reason: str
    agree: bool


_HEAD = """# Legal and faulty kernels at random shapes

Written by `scripts/bench/legal.py --write`; do not edit it. `contract` judges what other kernels
make of inputs of random shapes, types and values: kernels of torch, emulations of the device's
kernels after its public sources, and a flash attention in float32. None of them shares code with
the golden operators. Faulty ones have one thing wrong. A fault is *hidden* where it is not found,
and a kernel that keeps all that is on the way in 16 bits, as the default one for float16 and eager
programs do, is further off at the same inputs. *Worst* is the element that is furthest off, in
units of its bound. Each draw is judged twice, by the whole contract and with the quick looks that
the command takes first; accused is who fails either way. Errors are Euclidean norms relative to
that of the result.
"""


def write_page(
    seed: int, legal: Sequence[Row], faulty: Sequence[Row], alarms: Sequence[Said],
    missed: Sequence[Said], apart: Sequence[Said],
) -> None:  # fmt: skip
    """Write the page."""
    drawn, faults = sum(row.draws for row in legal), sum(row.draws for row in faulty)
    hidden = sum(row.hidden for row in faulty)
    lines = [_HEAD, f"Seed {seed}: **{len(alarms)} of {drawn} legal kernels accused**,"]
    lines += [f"**{faults - len(missed)} of {faults - hidden} faults found**, {hidden} hidden,"]
    lines += [f"**{len(apart)} of {drawn + faults} verdicts changed by quick looks**.", ""]
    lines += ["| legal kernel | draws | accused | worst |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.draws} | {row.alarms} | {row.closest:.2f} |" for row in legal]
    lines += ["", "| fault | draws | found | hidden | missed |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.name} | {row.draws} | {row.alarms} | {row.hidden} "
        f"| {row.draws - row.alarms - row.hidden} |"
        for row in faulty
    ]
    if alarms:
        lines += ["", "## Accused", ""]
        lines += [f"- {one.name}, seed {one.seed}, {one.shape}: {one.reason}" for one in alarms]
    if apart:
        lines += ["", "## Verdicts that quick looks change", ""]
        lines += [f"- {one.name}, seed {one.seed}, {one.shape}" for one in apart]
    lines += _listed("Hidden: no further off than a legal kernel",
                     [one for one in missed if one.error <= one.legal])  # fmt: skip
    lines += _listed("Missed", [one for one in missed if one.error > one.legal])
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _listed(title: str, missed: Sequence[Said]) -> list[str]:
    """The draw of each fault that comes closest to what hides it."""
    lines = ["", f"## {title}", ""] if missed else []
    for name, group in groupby(sorted(missed, key=lambda one: one.name), lambda one: one.name):
        own = list(group)
        worst = max(own, key=lambda one: one.error / max(one.bound, 1e-30))
        legal = f", a legal kernel is off by {worst.legal:.2g}" if worst.legal else ""
        lines.append(
            f"- {name}: {len(own)}, the largest error {worst.error:.2g} where rounding permits "
            f"{worst.bound:.2g}{legal} (seed {worst.seed}, {worst.shape})"
        )
    return lines
