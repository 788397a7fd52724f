"""Patterns of names: ``model.layers.{i}.self_attn.{q,k,v}_proj``.

``{i}`` is a number that has one value throughout a line, ``{i+1}`` the next one. ``{a,b,c}`` are
alternatives that correspond in order. ``*`` stands for anything within a component, ``**`` for
anything. Every other character stands for itself, after a backslash those above as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_SPECIAL = "{}*[]:@#\\ "
_VARIABLE = re.compile(r"([a-z]\w*?)([+-]\d{1,6})?")
_MOST_DEEP = 3  # each one more multiplies the time that a long name takes by its length
# A character after a backslash stands for itself: it is moved out of the way of the grammar.
_AWAY = 0xE000


@dataclass(frozen=True, slots=True)
class Number:
    """A number that has one value throughout a line, plus ``offset``."""

    name: str
    offset: int = 0

    def __str__(self) -> str:
        return "{" + self.name + (f"{self.offset:+d}" if self.offset else "") + "}"


@dataclass(frozen=True, slots=True)
class Star:
    """Any text; without dots unless ``deep``."""

    deep: bool = False

    def __str__(self) -> str:
        return "**" if self.deep else "*"


Piece = str | Number | Star
Pattern = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Captured:
    """What a name has in the places of a pattern.

    Attributes:
        numbers: by name of the variable.
        stars: texts, in order.
    """

    numbers: tuple[tuple[str, int], ...] = ()
    stars: tuple[str, ...] = ()

    def joined(self, other: Captured) -> Captured | None:
        """Both together; None if they give a number two values."""
        known = dict(self.numbers)
        if any(known.setdefault(name, value) != value for name, value in other.numbers):
            return None
        return Captured(tuple(sorted(known.items())), self.stars + other.stars)


def hidden(text: str) -> str:
    """Characters after a backslash as ones that the grammar does not know.

    Raises:
        ValueError: the last character is a backslash.
    """
    pieces = re.split(r"\\(.)", text)
    if any("\\" in each for each in pieces[::2]):
        raise ValueError("ends with a backslash, which is to stand before a character")
    pieces[1::2] = [chr(_AWAY + ord(each)) if ord(each) < 128 else each for each in pieces[1::2]]
    return "".join(pieces)


def shown_again(text: str) -> str:
    """The inverse of :func:`hidden`, without the backslashes."""
    return "".join(chr(ord(c) - _AWAY) if _AWAY <= ord(c) < _AWAY + 128 else c for c in text)


def escaped(name: str) -> str:
    """A name as a pattern that stands for it alone."""
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in name)


def read_pattern(text: str) -> tuple[Pattern, ...]:
    """The alternatives of a pattern, one if it has none; ``text`` went through :func:`hidden`.

    Raises:
        ValueError: it is none; the message says why.
    """
    pieces: list[Piece | tuple[str, ...]] = []
    for token in re.findall(r"\{[^{}]*\}|\*+|[{}]|[^{}*]+", text):
        if token in ("{", "}"):
            raise ValueError(f"has a {token!r} without its partner")
        if token.startswith("*"):
            if len(token) > 2:
                raise ValueError(f"{token!r} is neither '*' nor '**'")
            pieces.append(Star(token == "**"))
        elif token.startswith("{"):
            pieces.append(_in_braces(token))
        else:
            pieces.append(shown_again(token))
    if pieces.count(Star(deep=True)) > _MOST_DEEP:
        raise ValueError(f"has more than {_MOST_DEEP} '**'")
    counts = {len(each) for each in pieces if isinstance(each, tuple)}
    if len(counts) > 1:
        raise ValueError(f"has alternatives of different numbers: {sorted(counts)}")
    return tuple(
        _merged([each[place] if isinstance(each, tuple) else each for each in pieces])
        for place in range(next(iter(counts), 1))
    )


def _in_braces(token: str) -> Number | tuple[str, ...]:
    inner = token[1:-1]
    if "," in inner:
        return tuple(shown_again(each.strip()) for each in inner.split(","))
    match = _VARIABLE.fullmatch(inner)
    if match is None:
        raise ValueError(
            f"{token!r} is neither a number such as {{i}} or {{i+1}} nor a list such as {{q,k,v}}"
        )
    return Number(match[1], int(match[2] or 0))


def _merged(pieces: list[Piece]) -> Pattern:
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def variables(pattern: Pattern) -> set[str]:
    """Names of the numbers in a pattern."""
    return {each.name for each in pattern if isinstance(each, Number)}


def stars(pattern: Pattern) -> int:
    """How many stars a pattern has."""
    return sum(isinstance(each, Star) for each in pattern)


def as_text(pattern: Pattern) -> str:
    """A pattern as the user writes it."""
    return "".join(escaped(each) if isinstance(each, str) else str(each) for each in pattern)


def skeleton(name: str) -> str:
    """A name with every number as one ``#``: what a pattern without stars can be looked up by."""
    return re.sub(r"[0-9#]+", "#", name)


def skeleton_of(pattern: Pattern) -> str | None:
    """The skeleton of all names that fit a pattern; None if it has stars."""
    if stars(pattern):
        return None
    return skeleton("".join("#" if isinstance(each, Number) else str(each) for each in pattern))


def capture(pattern: Pattern, name: str) -> Captured | None:
    """What a name has in the places of a pattern; None if it does not fit."""
    expression, numbers = _expression(pattern)
    match = expression.fullmatch(name)
    if match is None:
        return None
    found: dict[str, int] = {}
    for place, number in numbers:
        value = int(match[place]) - number.offset
        if found.setdefault(number.name, value) != value or value < 0:
            return None
    taken = {place for place, _ in numbers}
    texts = [match[place] for place in range(1, expression.groups + 1) if place not in taken]
    return Captured(tuple(sorted(found.items())), tuple(texts))


@lru_cache(maxsize=4096)
def _expression(pattern: Pattern) -> tuple[re.Pattern[str], tuple[tuple[int, Number], ...]]:
    text, numbers, group = "", [], 0
    for piece in pattern:
        if isinstance(piece, str):
            text += re.escape(piece)
            continue
        group += 1
        if isinstance(piece, Number):
            numbers.append((group, piece))
            text += r"([0-9]{1,9})"
        else:
            text += "(.*)" if piece.deep else "([^.]*)"
    return re.compile(text, re.DOTALL), tuple(numbers)


def filled(pattern: Pattern, captured: Captured) -> str:
    """The name that a pattern stands for once its places are known.

    Raises:
        KeyError: a number of the pattern is not among them.
        ValueError: a number would be negative, or there are not enough stars.
    """
    numbers, texts = dict(captured.numbers), list(captured.stars)
    name = ""
    for piece in pattern:
        if isinstance(piece, str):
            name += piece
        elif isinstance(piece, Number):
            value = numbers[piece.name] + piece.offset
            if value < 0:
                raise ValueError("there is no negative number in a name")
            name += str(value)
        else:
            if not texts:
                raise ValueError("there are fewer stars before it")
            name += texts.pop(0)
    return name
