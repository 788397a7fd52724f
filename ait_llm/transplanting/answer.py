"""How far the answer of a run is from golden's."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.transplanting.places import Numbers, Place

_LOGITS = "logits"
_ROWS = 256  # of the vocabulary at a time, in float64
_MASK = -6e4  # no logit is so low: minus infinity, or the lowest number of a type, float16 at least


@dataclass(frozen=True, slots=True)
class Damage:
    """How far an answer is from golden's.

    Attributes:
        error: root mean square of the differences over that of golden's numbers, both without the
            mean of each row, which changes no probability.
        kl: Kullback-Leibler divergence of the next token from golden's distribution, in nats, mean
            over the rows; None where the answer is no logits.
        worst_kl: of the row where it is largest.
        rows: rows that were compared: positions of requests, over all steps.
        flipped: rows in which another token has the largest logit; None where it is no logits.
        margin: smallest distance of the largest logit from golden's token, over the rows that are
            flipped; 0 if none is.
    """

    error: float
    kl: float | None = None
    worst_kl: float | None = None
    rows: int = 0
    flipped: int | None = None
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the programs answer: the values of mine that are looked at, and golden's for them.

    Attributes:
        places: one or several of each step.
        numbers: golden's, of each place.
        width: numbers of a row.
        is_logits: they are logits, one for each token of the vocabulary.
    """

    places: Sequence[Place]
    numbers: Sequence[Numbers]
    width: int
    is_logits: bool

    @property
    def keys(self) -> frozenset[str]:
        """Of the values that a run must capture."""
        return frozenset(place.key for place in self.places)

    def damage(self, run: Path) -> Damage:
        """How far a run is from golden; infinitely far where it has no such answer."""
        rows = list(self.rows(run))
        if len(rows) < len(self.places):
            return Damage(math.inf, rows=0)
        return _damage([(golden, mine) for _, golden, mine in rows], is_logits=self.is_logits)

    def rows(self, run: Path) -> Iterator[tuple[int, Array, Array]]:
        """The answers of a run: number of the place, golden's rows and those of the run.

        What the run does not have is left out.
        """
        for number, (place, numbers) in enumerate(zip(self.places, self.numbers, strict=True)):
            mine = place.mine_at(run, numbers)
            if mine is not None:
                golden = numbers.values.reshape(-1, self.width)
                yield number, golden, mine.reshape(-1, self.width)


def find_answer(places: Sequence[Place], vocabularies: Container[int | None]) -> Answer | None:
    """What the outermost module returns: its logits, else the first floating numbers.

    Engines compute logits behind it, in a module that is called so.

    Args:
        places: of mine.
        vocabularies: how many tokens the programs know.

    Returns:
        The answer; None if none of the places is one.
    """
    outputs = [place for place in places if _is_answer(place)]
    named = [place for place in outputs if _LOGITS in place.matches[0].mine.tensor.stem]
    named = named or [place for place in outputs if _LOGITS in place.op.rpartition(".")[2]]
    chosen = named or [place for place in outputs if "." not in place.op]
    if not chosen:
        return None
    name, depth = chosen[0].name, min(place.op.count(".") for place in chosen)
    # a model around another one hands on the logits of that one
    chosen = [each for each in chosen if each.name == name and each.op.count(".") == depth]
    return _answer_of(chosen, vocabularies, is_logits=bool(named))


def find_last(
    passes: Sequence[Sequence[Place]], vocabularies: Container[int | None]
) -> Answer | None:
    """The last numbers of each pass that are as wide as the vocabulary, else the last ones.

    Args:
        passes: places of mine, where operators stand beside each other.
        vocabularies: how many tokens the programs know.
    """
    chosen: list[Place] = []
    for places in passes:
        outputs = [place for place in places if _is_answer(place)]
        wide = [each for each in outputs if each.matches[0].mine.tensor.shape[-1] in vocabularies]
        chosen += (wide or outputs)[-1:]
    return _answer_of(chosen, vocabularies) if chosen else None


def _answer_of(
    chosen: Sequence[Place], vocabularies: Container[int | None], *, is_logits: bool = False
) -> Answer | None:
    widths = {place.matches[0].mine.tensor.shape[-1] for place in chosen}
    numbers = []
    for place in chosen:
        try:
            numbers.append(place.numbers())
        except (AitError, ValueError):
            return None
    width = widths.pop()
    if widths or any(each.values.size % width for each in numbers):
        return None
    return Answer(chosen, numbers, width, is_logits or width in vocabularies)


def _is_answer(place: Place) -> bool:
    source = place.matches[0].mine
    try:
        is_number = source.tensor.dtype.is_floating and bool(source.tensor.shape)
    except AitError:
        return False
    return is_number and source.tensor.role == "out" and "cache" not in source.tensor.stem


def _damage(rows: Sequence[tuple[Array, Array]], *, is_logits: bool) -> Damage:
    square = golden_square = total = worst = margin = 0.0
    count = flipped = 0
    for golden, mine in rows:
        for first in range(0, len(golden), _ROWS):
            some = slice(first, first + _ROWS)
            theirs, ours, masked = without_masks(golden[some], mine[some], is_logits=is_logits)
            if not (np.isfinite(theirs).all() and np.isfinite(ours).all()):
                return Damage(math.inf, rows=sum(len(each) for each, _ in rows))
            square += _square(ours - theirs, ~masked)
            golden_square += _square(theirs, ~masked)
            count += len(theirs)
            if not is_logits:
                continue
            divergence = divergences(log_softmax(theirs), log_softmax(ours))
            total += float(divergence.sum())
            worst = max(worst, float(divergence.max(initial=0.0)))
            chosen = theirs.argmax(axis=1)
            lost = ours.max(axis=1) - np.take_along_axis(ours, chosen[:, None], 1)[:, 0]
            flipped += int((lost > 0).sum())
            if (lost > 0).any():
                smallest = float(lost[lost > 0].min())
                margin = smallest if not margin else min(margin, smallest)
    error = math.sqrt(square / golden_square) if golden_square else math.sqrt(square)
    if not is_logits or not count:
        return Damage(error, rows=count)
    return Damage(error, total / count, worst, count, flipped, margin)


def without_masks(
    golden: Array, mine: Array, *, is_logits: bool = True
) -> tuple[Array, Array, Array]:
    """Answers in float64, where the logits of tokens that both mask are equal and most unlikely.

    Returns:
        Golden's, mine's, and where they are masked.
    """
    theirs, ours = golden.astype(np.float64), mine.astype(np.float64)
    masked: Array = (theirs < _MASK) & (ours < _MASK) & is_logits
    masked &= ~masked.all(axis=1, keepdims=True)
    if masked.any():
        theirs[masked] = ours[masked] = -1e30
    return theirs, ours, masked


def _square(values: Array, where: Array) -> float:
    """Sum of the squares, without the mean of each row."""
    mean = values.mean(axis=1, keepdims=True, where=where)
    return float(((values - mean) ** 2).sum(where=where))


def divergences(golden: Array, mine: Array) -> Array:
    """Kullback-Leibler divergence of each row of logarithms of probabilities, in nats."""
    found: Array = np.maximum((np.exp(golden) * (golden - mine)).sum(axis=1), 0.0)
    return found


def log_softmax(logits: Array) -> Array:
    """Logarithms of the probabilities of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
