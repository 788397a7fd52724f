"""How many tokens a pass works on, and what that says about warm-up passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

from ait_llm.errors import FormatError
from ait_llm.program.one_pass import Pass

_LOOKED_AT = 24  # operations; headers cost a file each
_MAX_WARM_UPS = 8
_LOOKS_UP = "aten.embedding"  # where hidden states begin in a pass of operators
_EMBEDDED = "inputs_embeds"  # what a pass is given in place of tokens, looked up before it


def token_count(run: Pass) -> int | None:
    """Tokens of a pass: rows of most hidden states at the top of the run; None if unknown.

    ``[tokens, hidden]`` and ``[batch, sequence, hidden]`` count alike; padding counts too.
    """
    counts: Counter[int] = Counter()
    given = [t for each in run.operations[:1] for t in each.inputs if t.stem.endswith(_EMBEDDED)]
    looked_up = [each for each in run.operations if each.type.startswith(_LOOKS_UP)]
    depth = min((len(operation.op_id.parts) for operation in run.operations), default=0)
    tops = [operation for operation in run.operations if len(operation.op_id.parts) <= depth + 3]
    made = (t for operation in looked_up[:1] or tops[:_LOOKED_AT] for t in operation.outputs[:1])
    for tensor in given or made:
        try:
            if tensor.dtype.is_floating and len(tensor.shape) in (2, 3):
                counts[prod(tensor.shape[:-1])] += 1
        except FormatError:
            continue  # comparing it says why
    return counts.most_common(1)[0][0] if counts else None


def find_offset(golden: Sequence[Pass], mine: Sequence[Pass]) -> tuple[int, str]:
    """By how much the numbers of my passes are ahead of the golden ones.

    A warm-up pass shows in its number of tokens: without it the passes of both sides stand in one
    ratio (that of the batch sizes), with it they do not. Where token counts are unknown, or agree
    as they are, nothing is ahead.

    Returns:
        What to add to a golden pass's number, and why; no reason for 0.
    """
    counts = [{run.step: token_count(run) for run in side} for side in (golden, mine)]
    if any(None in side.values() or not side for side in counts):
        return 0, ""
    first = {step: count for step, count in counts[0].items() if count}
    second = {step: count for step, count in counts[1].items() if count}
    if _recomputes(first, second) or _recomputes(second, first):
        return 0, ""
    fitting = []
    for offset in range(-_MAX_WARM_UPS, _MAX_WARM_UPS + 1):
        pairs = [
            (count, second[step + offset])
            for step, count in first.items()
            if step + offset in second
        ]
        ratios = {Fraction(mine, golden) for golden, mine in pairs}
        same = ratios == {Fraction(1)}
        enough = len(pairs) >= min(2, len(first), len(second)) and (same or len(pairs) > 1)
        if pairs and _agree(ratios) and (enough or offset == 0):
            fitting.append((not same, abs(offset), offset))
    for _, _, offset in sorted(fitting)[:1]:
        if offset == 0:
            return 0, ""
        ahead, behind = (second, first) if offset > 0 else (first, second)
        side, other = ("my", "golden's") if offset > 0 else ("golden's", "mine")
        start = min(ahead)
        return offset, (
            f"{side} run began with {ahead[start]} tokens, {other} with {behind[min(behind)]}"
        )
    return 0, ""


def _recomputes(cached: Mapping[int, int], full: Mapping[int, int]) -> bool:
    """True if one side computes only the newest token where the other computes all again."""
    steps = sorted(cached.keys() & full.keys())
    if len(steps) < 2 or cached[steps[0]] != full[steps[0]]:
        return False
    new = cached[steps[1]]
    return all(
        cached[step] == new and full[step] == full[steps[0]] + new * place
        for place, step in enumerate(steps[1:], start=1)
    )


def _agree(ratios: set[Fraction]) -> bool:
    """True if all counts may be those of the same tokens: one batch ratio, or padding.

    Padding makes a prefill larger by less than it makes a batch; both sides then still agree in
    their decode steps.
    """
    if len(ratios) == 1:
        ratio = next(iter(ratios))
        return ratio.numerator == 1 or ratio.denominator == 1 or Fraction(1, 2) < ratio < 2
    return max(ratios) / min(ratios) < 2
