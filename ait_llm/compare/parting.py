"""What a report says where the runs chose different tokens: which, where, and how closely.

A choice between two tokens whose logits are nearly equal is decided by rounding. So a parting is no
failure in itself where the logits that it was made from agree; what comes behind was still not
compared, and is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.core.comparison import Comparison, Problem, Verdict
from ait_llm.dumps.model import Tensor
from ait_llm.match.partings import Parting
from ait_llm.program.logits import newest_logits

CHOSE = "chose token"
"""What problems say that are told of a parting."""
_WERE = {False: "was not compared", True: "were not compared"}


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one side chose between the two tokens.

    Attributes:
        tensor: the logits.
        margin: by how much its own token is ahead of the other side's; negative if it is behind.
        best: the token with the largest logit.
    """

    tensor: Tensor
    margin: float
    best: int


def parting_problems(
    partings: Sequence[Parting], comparisons: Sequence[Comparison]
) -> Iterator[Problem]:
    """One line for each parting, with what was not compared because of it.

    Args:
        partings: as they were found in the token ids.
        comparisons: of the whole report; the logits are among them, where they were captured.
    """
    for parting in partings:
        choices = _choice(parting, 0), _choice(parting, 1)
        agrees = _logits_agree(choices[1], comparisons)
        decides = not agrees or _is_odd(parting, choices)
        yield Problem("both", _sentence(parting, choices), decides)


def _is_odd(parting: Parting, choices: tuple[_Choice | None, _Choice | None]) -> bool:
    """True if golden took its largest logit and mine did not, so that more than rounding differs.

    Where golden does not either, tokens are sampled.
    """
    golden, mine = choices
    if golden is None or mine is None:
        return False
    return golden.best == parting.tokens[0] and mine.best != parting.tokens[1]


def _sentence(parting: Parting, choices: tuple[_Choice | None, _Choice | None]) -> str:
    golden, mine = parting.tokens
    step = f"step {parting.mine.step}: " if parting.mine is not None else ""
    where = _request(parting)
    texts = (
        f"golden {CHOSE} {golden}{_margin(choices[0], mine)}",
        f"mine {mine}{_margin(choices[1], golden)}",
    )
    return f"{step}{where}{', '.join(texts)}; {_left_out(parting)}{_advice(parting, choices)}"


def _request(parting: Parting) -> str:
    rows = parting.requests
    if rows == (0, 0):
        return ""
    return f"request {rows[1]}: " if rows[0] == rows[1] else f"request {rows[0]} of golden: "


def _margin(choice: _Choice | None, other: int) -> str:
    if choice is None:
        return ""
    if choice.margin >= 0:
        return f" (margin {choice.margin:.3g} over {other})"
    return f" (though its logits prefer {choice.best})"


def _left_out(parting: Parting) -> str:
    steps = parting.steps
    if parting.alone:
        rest = "and is not compared there; the others are"
        if len(steps) == 1:
            return f"it reads other tokens in step {steps[0]}, {rest}"
        return f"it reads other tokens in steps {steps[0]} to {steps[-1]}, {rest}"
    if parting.ended:
        text = f"{parting.ended} ended there"
        which = "step {0} of the other" if len(steps) == 1 else "steps {0} to {1} of the other"
        return f"{text}, and {which.format(steps[0], steps[-1])} {_WERE[len(steps) > 1]}"
    if len(steps) == 1:
        return f"step {steps[0]} reads other tokens and {_WERE[False]}"
    return f"steps {steps[0]} to {steps[-1]} read other tokens and {_WERE[True]}"


def _advice(parting: Parting, choices: tuple[_Choice | None, _Choice | None]) -> str:
    if _is_odd(parting, choices):
        return (
            ". Mine did not choose by its logits: sample in both runs or in none, and look at what "
            "its program does with them"
        )
    return ". To compare them, let one run follow the other: ait llm dump --follow"


def _logits_agree(choice: _Choice | None, comparisons: Sequence[Comparison]) -> bool:
    """True if the logits that mine chose from were compared and passed."""
    if choice is None:
        return False
    return any(
        item.mine is not None and item.golden is not None and item.mine.path == choice.tensor.file
        for item in comparisons
        if item.verdict is Verdict.PASS
    )


def _choice(parting: Parting, side: int) -> _Choice | None:
    """What the logits of one side say of the two tokens; None where they were not captured."""
    run = (parting.golden, parting.mine)[side]
    if run is None:
        return None
    own, other = parting.tokens[side], parting.tokens[1 - side]
    found = newest_logits(run, parting.requests[side], parting.counts[side])
    if found is None or max(own, other) >= len(found[1]):
        return None
    tensor, values = found
    return _Choice(tensor, float(values[own] - values[other]), int(np.argmax(values)))
