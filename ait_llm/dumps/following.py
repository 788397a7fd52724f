"""What a ledger says of a run that took the tokens of another one, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Followed:
    """How a process followed golden's tokens.

    Attributes:
        done: what it followed, and where it would have chosen otherwise; None if it never did.
        refused: why generations did not follow, each in a sentence.
    """

    done: str | None = None
    refused: tuple[str, ...] = ()


def followed(lines: Sequence[Mapping[str, Any]]) -> Followed | None:
    """Add up the lines of kind ``follow`` of one ledger; None if there are none."""
    if not lines:
        return None
    golden = str(lines[0].get("golden"))
    states: dict[object, list[Mapping[str, Any]]] = {}
    for line in lines:
        states.setdefault(line.get("state"), []).append(line)
    reasons = dict.fromkeys(str(line.get("reason")) for line in states.get("refused", ()))
    refused = tuple(f"did not follow {golden}: {reason}" for reason in reasons)
    if "begun" not in states:
        return Followed(None, refused)
    text = f"followed the tokens of {golden}{_own(states)}"
    for line in states.get("ended", ())[:1]:
        text += f"; golden has none for the choice {_step(line)}, which was its own"
    return Followed(text, refused)


def _own(states: Mapping[object, Sequence[Mapping[str, Any]]]) -> str:
    differs = states.get("differs", ())
    if differs:
        first = differs[0]
        request = f" of request {first.get('request')}" if first.get("request") else ""
        more = f", and others at {len(differs) - 1} more places" if len(differs) > 1 else ""
        return (
            f"; its own choice would have been {first.get('own')} instead of {first.get('taken')} "
            f"{_step(first)}{request}{_margin(first)}{more}"
        )
    if "sampled" in states or any(line.get("sampled") for line in states["begun"]):
        return "; it samples, so what it would have chosen is not known"
    return "; its own choices would have been the same"


def _step(line: Mapping[str, Any]) -> str:
    """When a choice was made; a model that drafts for another one chooses before that has run."""
    step = line.get("step")
    return "before step 0" if isinstance(step, int) and step < 0 else f"at step {step}"


def _margin(line: Mapping[str, Any]) -> str:
    margin = line.get("margin")
    return f" (margin {margin:.3g})" if isinstance(margin, float) else ""
