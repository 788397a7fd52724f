"""Numbers along a run as lines, drawn into a page that needs no script for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ait_llm.language.catalogue import translate

_WIDTH, _HEIGHT = 900, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 26
_COLOURS = ("var(--accent)", "var(--fail)")
_MOST = 2000  # points of a line; of more each takes the place of some


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over the same places.

    Attributes:
        title: in English; translated where there is a translation.
        lines: name and numbers of each, one for each place; what is not finite is left out.
    """

    title: str
    lines: Sequence[tuple[str, Sequence[float]]]


def curve(drawn: Curve) -> Iterator[str]:
    """The lines as SVG, with their range and a legend; nothing without finite numbers."""
    numbers = [each for _, line in drawn.lines for each in line if math.isfinite(each)]
    if not numbers:
        return
    low, high = min(*numbers, 0.0), max(*numbers, 0.0)
    spread = (high - low) or 1.0

    def down(value: float) -> float:
        return _TOP + (high - value) / spread * (_HEIGHT - _TOP - _BOTTOM)

    title = escape(translate(drawn.title))
    yield f'<div class="chart"><svg role="img" aria-label="{title}" '
    yield f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">'
    for value in sorted({low, 0.0, high}):
        y = f"{down(value):.1f}"
        yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{value:.3g}</text>'
    for number, (_, line) in enumerate(drawn.lines):
        points = " ".join(f"{x:.1f},{down(value):.1f}" for x, value in _points(line))
        colour = _COLOURS[number % len(_COLOURS)]
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{title}</text></svg><div class="legend">'
    for number, (name, _) in enumerate(drawn.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        yield '<span><svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" '
        yield f'y2="4" stroke="{colour}" stroke-width="2"/></svg>{escape(translate(name))}</span>'
    yield "</div></div>"


def _points(line: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Places on the page from left to right, with the numbers there."""
    every = max(1, math.ceil(len(line) / _MOST))
    last = max(1, len(line) - 1)
    for place in range(0, len(line), every):
        value = max(line[place : place + every], key=abs)
        if math.isfinite(value):
            yield _LEFT + place / last * (_WIDTH - _LEFT - _RIGHT), value
