"""The figures of all benchmarks as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benches import BENCHES
from figures import Figure

_HEAD = """# Performance

Measured by `scripts/bench/run`, which also wrote this page; do not edit it. Every target that the
project has set itself stands here with what was measured, misses included. A ratio is to a peer or
to a limit that was measured in the same run: *msprobe* is release 26.2 of the PyPI package
`mindstudio-probe`, a *limit* is what the machine can do at all, such as reading these bytes once.
"""
_FACTS = """
## Machine

| | |
| --- | --- |
"""


def as_page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page, of ``results.json``."""
    known = [bench for bench in BENCHES if bench.name in results]
    lines = [_HEAD, *_summary(results)]
    machines = [results[bench.name]["machine"] for bench in known]
    if machines:
        lines.append(_FACTS.rstrip("\n"))
        lines += [f"| {name} | {value} |" for name, value in machines[-1].items()]
    for bench in known:
        result = results[bench.name]
        command = " ".join((f"scripts/bench/{bench.program}", *result["options"]))
        lines += ["", f"## {bench.title}", ""]
        lines.append(f"`{command}`, {result['when']}, {_minutes(result['seconds'])}{_load(result)}")
        if result["machine"] != machines[-1]:
            lines.append(f"\nOn another machine: {', '.join(result['machine'].values())}.")
        if result["failed"]:
            lines.append(f"\n**It failed** with {result['exit_code']}, after the figures below.")
        lines += ["", *_table(map(_figure, result["figures"]))]
    missing = [bench.title for bench in BENCHES if bench.name not in results]
    if missing:
        lines += ["", "## Not measured", "", *(f"- {title}" for title in missing)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    figures = [_figure(each) for result in results.values() for each in result["figures"]]
    judged = [figure for figure in figures if figure.met is not None]
    missed = [figure for figure in judged if not figure.met]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} targets are met."]
    if missed:
        lines += ["", "## Missed", "", *_table(missed)]
    return lines


def _figure(fields: Mapping[str, Any]) -> Figure:
    return Figure(**fields)


def _table(figures: Any) -> Iterator[str]:
    yield "| what | measured | target | |"
    yield "| --- | --- | --- | --- |"
    for figure in figures:
        note = f" ({figure.note})" if figure.note else ""
        target, verdict = "", ""
        if figure.target is not None:
            target = f"{'at least' if figure.at_least else 'at most'} {figure.target:g}"
            verdict = "met" if figure.met else "**missed**"
        what = figure.what.replace("|", "\\|")
        yield f"| {what} | {_number(figure.value)} {figure.unit}{note} | {target} | {verdict} |"


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _minutes(seconds: float) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _load(result: Mapping[str, Any]) -> str:
    """Said where something else was running when it began."""
    busy = result["load_before"]
    cores = float(result["machine"]["cores"])
    return "" if busy < cores else f", while other work ran (load {busy})"
