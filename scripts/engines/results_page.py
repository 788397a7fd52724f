"""The page that ``live.py`` writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_NUMBERS = re.compile(r"process \d+")
_HEALTHY = ("family", "run", "verdict", "exit code", "compared", "same bits", "on")
_FAULTY = (
    *("family", "fault", "verdict", "first origin", "certain", "right"),
    *("among candidates", "others", "on"),
)
_CERTAIN = " (certain)"

_HEAD = """# What was run on inference engines

Written by `scripts/engines/run`: vLLM 0.32.0 for CPUs, captured as it is, against `ait llm golden`
on the same checkpoint. The checkpoints are tiny and have random weights, in bfloat16. Four requests
of different lengths are answered at once; long prompts are read in several passes, and the last
request finds the beginning of the first in the prefix cache. `offline` is a script that uses
`LLM(...)`, `serve` is `vllm serve` with four clients, `ranks` is `LLM(...)` on two ranks of tensor
parallelism, `compiled` is `LLM(...)` without `enforce_eager`, and `compiled-ranks` the same on two
ranks; faults are put into an offline run (`scripts/engines/bugs.py`), and where their name begins
so, into a compiled one. `same bits`: a run without a capture chose the same tokens with the same
bits of their log-probabilities. Values are not compared all of whose rows follow from another
expert, chosen by equal scores. Each row has the day on which it was run; the script keeps those
that it does not run again.

"""


HEADING = "## Broken off"
_BROKEN_OFF = """

`vllm serve` in eager mode under `ait llm dump --type torch`, and beside it alone. Four requests are
answered; then, while one more is, its client leaves, a process is killed with SIGKILL, or the
server is asked to end. The small disk was full before. A server that lives on answers the four
again and is then asked to end. `same`: captured and alone, all answers. `left`: processes 20 s
after the end, which is that of `ait llm dump` or of the server alone.

| what happens | same | exit code (alone) | seconds (alone) | left (alone) | said of the capture |
| --- | --- | --- | --- | --- | --- |
"""


def page(results: list[dict[str, Any]], missing: list[str], before: str = "") -> str:
    """Markdown of what live.py found, of what it found before, and of what it did not run.

    Args:
        results: of the cases that were run.
        missing: families and names of those that were not.
        before: the page as it was. Its rows stay, each with its day, where nothing newer is there.
    """
    rows = _rows_of(before) | {(each["family"], each["case"]): _row(each) for each in results}
    ordered = [rows[key] for key in sorted(rows)]
    healthy = [each for each in ordered if len(each) == len(_HEALTHY)]
    faulty = [each for each in ordered if len(each) == len(_FAULTY)]
    passed = sum(each[2:4] == ("PASS", "0") for each in healthy)
    right, among = (sum(each[place] == "yes" for each in faulty) for place in (5, 6))
    wrong = sum(_CERTAIN in each[7] for each in faulty)
    days = Counter(each[-1] for each in ordered)
    told = ", ".join(f"{days[day]} on {day}" for day in sorted(days, reverse=True))
    lines = [_HEAD, "## Healthy runs\n", *_table(_HEALTHY, healthy)]
    lines += ["", "## Faults\n", *_table(_FAULTY, faulty)]
    lines += [
        "",
        f"Healthy: {passed} of {len(healthy)} pass with exit code 0. Faults: the first origin is "
        f"right in {right} of {len(faulty)}, what is wrong is it or one of its candidates in "
        f"{among}, and an innocent one is called certain in {wrong}. Run: {told}.",
    ]
    left = [each for each in missing if tuple(each.split()) not in rows]
    if left:
        lines += ["", f"Not run: {', '.join(left)}."]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = (head, ("---",) * len(head), *rows)
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _rows_of(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Rows of a page by family and case."""
    found = {}
    for line in text.partition(HEADING)[0].splitlines():
        cells = tuple(each.strip() for each in line.strip("|").split("|"))
        is_row = line.startswith("| ") and len(cells) in (len(_HEALTHY), len(_FAULTY))
        if is_row and cells not in (_HEALTHY, _FAULTY) and set(cells) != {"---"}:
            found[cells[0], cells[1]] = cells
    return found


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a case."""
    if "right" not in each:
        same = _yes(each["same"]) if "same" in each else ""
        about = each["family"], each["case"], each["verdict"], each["compare"], _share(each), same
        return (*map(str, about), each["day"])
    first = f"`{each['origins'][0]}`" if each["origins"] else ""
    sure = set(each["accused"])
    others = ", ".join(f"`{op}`{_CERTAIN if op in sure else ''}" for op in each["innocent"])
    told = [_yes(each[name]) for name in ("certain", "right", "among")]
    return (each["family"], each["case"], each["verdict"], first, *told, others, each["day"])


def broken_off(found: Mapping[str, Any]) -> str:
    """The section of what robust.py found."""
    lines = []
    for name, each in found.items():
        told = "; ".join(_NUMBERS.sub("process N", text) for text in each["said"])
        pairs = [f"{each[key]} ({each['plain'][key]})" for key in ("code", "seconds", "left")]
        lines.append(f"| {' | '.join((name, _yes(each['same']), *pairs, told))} |\n")
    return f"{HEADING}{_BROKEN_OFF}{''.join(lines)}"


def _share(each: dict[str, Any]) -> str:
    """Compared values of those that have a counterpart, left out or not."""
    counts = each.get("counts") or {}
    compared = counts.get("PASS", 0) + counts.get("FAIL", 0)
    alone = (each.get("not_comparable") or 0) - (each.get("left_out") or 0)
    total = sum(counts.values()) - alone
    return f"{compared} of {total}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
