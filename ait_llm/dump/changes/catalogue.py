"""Names of the changes, what each of them tests, and how it gets into a program; free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VARIABLE = "AIT_INVARIANT_CHANGE"
"""Environment variable with the name of the change, for programs that make it themselves."""

PERTURBED = {"MALLOC_PERTURB_": "127"}
"""The C library fills new memory with bytes of 128, and freed memory with bytes of 127."""


class NotPossibleError(Exception):
    """A change cannot be made of a call or a program; the text is the reason, as a clause."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a run.

    Attributes:
        name: of it.
        title: what it does, as a heading.
        breaks: what is wrong where the answer changes with it.
        environment: variables that the program gets with it.
        warmup: generations at the start of the changed run that are not captured.
        rows: it changes rows or places of tensors, which sampled answers depend on.
        modules_only: operators cannot be captured with it: what runs them one by one is no change.
    """

    name: str
    title: str
    breaks: str
    environment: Mapping[str, str] = field(default_factory=dict)
    warmup: int = 0
    rows: bool = False
    modules_only: bool = False


_ALL = (
    Change("again", "the same again", "something is not deterministic"),
    Change(
        "after",
        "after another request",
        "something is kept from one request to the next",
        warmup=1,
    ),
    Change("batch", "in a batch with other rows", "rows of a batch touch each other", rows=True),
    Change(
        "place",
        "at another place in the batch",
        "a result depends on the place in the batch",
        rows=True,
    ),
    Change(
        "padding-left", "padded on the left", "padding is not hidden, or moves positions", rows=True
    ),
    Change(
        "padding-right",
        "padded on the right",
        "padding is not hidden, or moves positions",
        rows=True,
    ),
    Change("chunks", "the prompt in chunks", "a chunk does not go on where the last one ended"),
    Change("prefix", "the prompt behind a cached prefix", "a prefix that was kept is not the same"),
    Change("no-cache", "without a cache", "what the cache holds is not what was computed"),
    Change("attention", "with another attention", "an attention computes something else"),
    Change(
        "compile", "compiled, or not", "compiled code computes something else", modules_only=True
    ),
    Change("threads", "with another number of threads", "a result depends on threads"),
    Change(
        "memory", "with other bytes in new memory", "memory is read before it is written", PERTURBED
    ),
    Change("ranks", "on another number of ranks", "shards do not add up to the whole"),
)
CHANGES: Mapping[str, Change] = {each.name: each for each in _ALL}
"""All changes, in the order in which they are made."""
