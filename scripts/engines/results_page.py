"""The page that ``live.py`` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBERS = re.compile(r"process \d+")

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
expert, chosen by equal scores.

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


def page(results: list[dict[str, Any]], missing: list[str]) -> str:
    """Markdown of what live.py found, and of what it did not run."""
    healthy = [each for each in results if "right" not in each]
    faulty = [each for each in results if "right" in each]
    lines = [
        _HEAD,
        "## Healthy runs\n",
        "| family | run | verdict | exit code | compared | same bits |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for each in healthy:
        same = _yes(each["same"]) if "same" in each else ""
        cells = (each["family"], each["case"], each["verdict"], each["compare"], _share(each), same)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "## Faults\n",
        "| family | fault | verdict | first origin | certain | right | among candidates | others |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in faulty:
        first = f"`{each['origins'][0]}`" if each["origins"] else ""
        others = ", ".join(f"`{op}`" for op in each["innocent"])
        told = [_yes(each[name]) for name in ("certain", "right", "among")]
        cells = (each["family"], each["case"], each["verdict"], first, *told, others)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    right = sum(each["right"] for each in faulty)
    among = sum(each["among"] for each in faulty)
    wrong = sum(bool(each["accused"]) for each in faulty)
    passed = sum(each["compare"] == 0 and each["verdict"] == "PASS" for each in healthy)
    lines += [
        "",
        f"Healthy: {passed} of {len(healthy)} pass with exit code 0. Faults: the first origin is "
        f"right in {right} of {len(faulty)}, what is wrong is it or one of its candidates in "
        f"{among}, and an innocent one is called certain in {wrong}.",
    ]
    if missing:
        lines += ["", f"Not run: {', '.join(missing)}."]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


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
