"""From the differences of a run to those that matter for its answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ait_llm.dump.patches import Patch
from ait_llm.errors import AitError
from ait_llm.transplanting.answer import Damage
from ait_llm.transplanting.result import Suspect, TransplantResult
from ait_llm.transplanting.sets import smallest_set

LEFT = 0.02
"""Share of the damage beyond the floor that a set may leave and still heal the answer."""
CHANCE = 1.5
"""How many times the floor is no more than it: rounding of each run falls out otherwise."""
_EXPLAINED = 0.5
"""Share of the damage that all suspects together take away, or what differs is none of them."""
_HARMS = 2
"""Of how many suspects that are not needed the harm is measured, too; with the other runs for one
culprit, that of mine as it is among them, these are ``2 log2(n) + 8``."""


class ProgramFailedError(AitError):
    """A program did not end well; the text says how.

    Attributes:
        program_code: what it ended with.
    """

    def __init__(self, text: str, program_code: int) -> None:
        super().__init__(text)
        self.program_code = program_code


class OtherPassesError(Exception):
    """Mine makes other passes when it runs again, as an engine that batches requests by time."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"mine has other passes each time it runs: {key} has another size; have it make the "
            "same ones"
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A suspect with what heals it.

    Attributes:
        suspect: it.
        patches: by place.
    """

    suspect: Suspect
    patches: Mapping[str, Patch] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from others."""
        return self.suspect.op, self.suspect.call, self.suspect.name


class Side(Protocol):
    """The program under suspicion, and a way to heal some of its differences.

    Attributes:
        places: values of mine that golden has, too.
        notes: what else must be known, a sentence each.
        differs: something differs by more than rounding; known after :meth:`before`.
    """

    notes: list[str]
    differs: bool

    @property
    def places(self) -> int: ...

    def before(self) -> Damage | str:
        """The damage as it is; or a sentence why there is none, or it cannot be told."""
        ...

    def suspects(self, tell: Callable[[str], None]) -> Sequence[Found]:
        """What introduces an error of its own, the largest first.

        Raises:
            OtherPassesError: the program makes other passes each time.
        """
        ...

    def damage(self, healed: Sequence[Found], number: int) -> Damage:
        """What is left where these have golden's value, in the run of that number.

        Raises:
            OtherPassesError: the program makes other passes each time.
        """
        ...


class _TooManyRunsError(Exception):
    """The search would go beyond its limit."""


def search(
    side: Side,
    folder: Path,
    most: int,
    tell: Callable[[str], None] = lambda _text: None,
) -> TransplantResult:
    """Find the differences that change the answer.

    Args:
        side: the program.
        folder: where its runs are.
        most: runs, at most.
        tell: is told before each run what it is.

    Raises:
        ProgramFailedError: the program ends otherwise when it runs again.
    """
    started = time.monotonic()
    runs = _Runs(side, most, tell, TransplantResult("undecided", "", folder))
    try:
        result = _found(side, runs)
    except _TooManyRunsError:
        result = replace(runs.so_far, reason="its suspects are not known in so few runs")
    except OtherPassesError as error:
        result = replace(runs.so_far, reason=str(error))
    except KeyboardInterrupt:
        result = replace(runs.so_far, status="interrupted", reason="it was interrupted")
    return replace(
        result,
        places=side.places,
        notes=tuple(side.notes),
        runs=runs.count,
        seconds=time.monotonic() - started,
    )


class _Runs:
    """Counts runs, and knows what each has shown.

    Attributes:
        count: runs so far.
        so_far: what is known of the result, should somebody end the search now.
    """

    def __init__(
        self, side: Side, most: int, tell: Callable[[str], None], so_far: TransplantResult
    ) -> None:
        self.count, self.so_far = 0, so_far
        self._side, self._most, self._tell = side, most, tell
        self._known: dict[frozenset[tuple[str, int, str]], Damage] = {}

    def tell(self, what: str) -> None:
        """Begin a run."""
        self.count += 1
        self._tell(f"run {self.count}: {what}")

    def known(self, healed: Sequence[Found]) -> Damage | None:
        """What a run has shown already."""
        return self._known.get(frozenset(each.key for each in healed))

    def damage(self, healed: Sequence[Found], what: str) -> Damage:
        """What is left where these have golden's value."""
        known = self.known(healed)
        if known is not None:
            return known
        if self.count >= self._most:
            raise _TooManyRunsError
        self.tell(what)
        damage = self._side.damage(healed, self.count)
        self._known[frozenset(each.key for each in healed)] = damage
        return damage


def _found(side: Side, runs: _Runs) -> TransplantResult:
    before = side.before()
    if isinstance(before, str):
        return replace(runs.so_far, reason=before)
    runs.so_far = replace(runs.so_far, before=before)
    if not side.differs:
        return replace(runs.so_far, status="equal", reason="nothing differs beyond rounding")
    suspects = side.suspects(runs.tell)
    if not suspects:
        reason = "with golden's values before it, every operator of mine gives golden's"
        return replace(runs.so_far, reason=reason)
    runs.so_far = replace(runs.so_far, suspects=tuple(each.suspect for each in suspects))
    floor = runs.damage(suspects, f"golden's values at all {len(suspects)} suspects")
    runs.so_far = replace(runs.so_far, floor=floor)
    if before.error <= CHANCE * floor.error:
        reason = "what differs changes the answer no more than rounding does"
        return replace(runs.so_far, status="equal", reason=reason)
    if not floor.error < (1 - _EXPLAINED) * before.error:
        return replace(runs.so_far, reason=_not_healed(side.places, before, floor))
    return _ranked(runs, suspects, before, floor)


def _ranked(
    runs: _Runs, suspects: Sequence[Found], before: Damage, floor: Damage
) -> TransplantResult:
    enough = CHANCE * floor.error + LEFT * (before.error - floor.error)

    def heals(some: Sequence[Found]) -> bool:
        what = some[0].suspect.op if len(some) == 1 else f"{len(some)} suspects"
        return runs.damage(some, f"golden's values at {what}").error <= enough

    needed: list[Found] = []
    reason, after = "", None
    try:
        needed = smallest_set(suspects, heals)
        after = runs.damage(needed, "golden's values at the needed ones")
    except _TooManyRunsError:
        reason = f"the smallest set that heals is not found in {runs.count} runs"
    others = [each for each in suspects if each not in needed]
    measured = [
        _measured(runs, each, suspects, before, floor, needed=each in needed)
        for each in [*needed, *others[:_HARMS]]
    ]
    return replace(
        runs.so_far,
        status="undecided" if reason else "found",
        reason=reason,
        after=after,
        suspects=(
            *sorted(measured, key=_by_share),
            *(each.suspect for each in others[_HARMS:]),
        ),
    )


def _measured(
    runs: _Runs,
    one: Found,
    suspects: Sequence[Found],
    before: Damage,
    floor: Damage,
    *,
    needed: bool,
) -> Suspect:
    """What one suspect does alone, of what has been measured or still may be."""
    whole = before.error - floor.error
    heals = harms = None
    op = one.suspect.op
    rest = [each for each in suspects if each is not one]
    alone = runs.known([one])
    try:
        if alone is None and needed:
            alone = runs.damage([one], f"golden's values at {op}")
        left = runs.damage(rest, f"golden's values at all suspects but {op}") if rest else before
        harms = _share(left.error - floor.error, whole)
    except _TooManyRunsError:
        pass
    if alone is not None:
        heals = _share(before.error - alone.error, whole)
    return replace(one.suspect, heals=heals, harms=harms, needed=needed)


def _share(part: float, whole: float) -> float:
    """A part of the whole; of an answer without numbers all of it or nothing."""
    if part == whole:
        return 1.0
    return part / whole if math.isfinite(part) else math.copysign(1.0, part)


def _by_share(suspect: Suspect) -> tuple[bool, float]:
    share = suspect.share
    return share is None, -(share or 0.0)


def _not_healed(places: int, before: Damage, floor: Damage) -> str:
    return (
        f"golden's values at all {places} places leave an error of {floor.error:.3g} of the "
        f"answer, where mine has {before.error:.3g}: what differs is in no value that both "
        "capture, or mine does not repeat itself"
    )
