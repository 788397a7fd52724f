"""Reading a file of patterns, line by line; whatever is wrong is told with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.match.mapping.patterns import (
    Pattern,
    hidden,
    read_pattern,
    shown_again,
    stars,
    variables,
)
from ait_llm.match.mapping.relations import Word, read_word

ALLOW_MISSING = "allow missing"
SAME = "="
_MOST_STEPS = 100_000  # of one range; more is a slip of the finger, and a set of them fills memory
_EXAMPLE = "Write it like: model.layers.{i}.self_attn.{q,k,v}_proj -> h.{i}.attn.qkv[columns]"
_WHEN = re.compile(r"when\s+(?:(any)|steps?\s+([\d,\s-]+)|models?\s+(\S+)\s*->\s*(\S+))")
_TERM = re.compile(
    r"(?P<op>[^\[\]:@\s]+)(?:@(?P<call>[^\[\]:@\s]+))?(?::(?P<tensor>[^\[\]:@\s]+))?"
    r"(?P<words>(?:\s*\[[^\[\]]*\])*)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor of one side.

    Attributes:
        ops: patterns of its operation, one for each alternative.
        call: pattern of the number of its call; None if the line names none.
        tensors: patterns of the tensor's name, one for each alternative; None for the outputs.
        words: what is done to it.
    """

    ops: tuple[Pattern, ...]
    call: Pattern | None = None
    tensors: tuple[Pattern, ...] | None = None
    words: tuple[Word, ...] = ()

    @property
    def joins(self) -> bool:
        """True if the parts on the other side are joined in it."""
        return any(word.joins for word in self.words)

    def patterns(self) -> Iterator[Pattern]:
        """All of them."""
        yield self.ops[0]
        if self.call is not None:
            yield self.call
        if self.tensors is not None:
            yield self.tensors[0]


@dataclass(frozen=True, slots=True)
class When:
    """The passes that a line speaks of; of all without any of these.

    Attributes:
        models: names of the golden and of my ATB model, ``*`` for any; None for any.
        steps: numbers of golden passes; None for any.
    """

    models: tuple[str, str] | None = None
    steps: frozenset[int] | None = None

    def holds(self, models: tuple[str, str], step: int) -> bool:
        """True if a pair of passes is one of them."""
        if self.steps is not None and step not in self.steps:
            return False
        if models == ("", ""):
            return True  # neither run has reported what it ran
        wanted = self.models or ("*", "*")
        return all(want in ("*", has) for want, has in zip(wanted, models, strict=True))


@dataclass(frozen=True, slots=True)
class Line:
    """One line: tensors of golden and those of mine that answer them.

    Attributes:
        golden, mine: a term, or several that are added.
        place: ``file:line``.
        confidence: in [0, 1].
        reason: what made the pair, for reports.
        when: the passes it speaks of.
        first_only: of several lines about the same tensors only the first that fits holds.
    """

    golden: tuple[Term, ...]
    mine: tuple[Term, ...]
    place: str
    confidence: float = 1.0
    reason: str = "given"
    when: When = When()
    first_only: bool = False

    @property
    def alternatives(self) -> int:
        """Number of alternatives of the operations."""
        return max(len(term.ops) for term in (*self.golden, *self.mine))

    @property
    def tensor_alternatives(self) -> int:
        """Number of alternatives of the tensors."""
        return max(len(term.tensors or ((),)) for term in (*self.golden, *self.mine))


@dataclass(frozen=True, slots=True)
class UserMapping:
    """The lines of a file.

    Attributes:
        path: the file.
        lines: in its order.
        allow_missing: lines may name what a dump does not have.
    """

    path: str
    lines: tuple[Line, ...]
    allow_missing: bool = False


def read_text(path: Path, text: str) -> UserMapping:
    """The lines of a file of patterns.

    Raises:
        FormatError: a line is none; the reason names it.
    """
    lines: list[Line] = []
    when = When()
    allow_missing = False
    for number, raw in enumerate(text.splitlines(), 1):
        place = f"{path}:{number}"
        try:
            bare = _bare(raw)
            if bare == ALLOW_MISSING:
                allow_missing = True
            elif bare.startswith("when "):
                when = _when(bare)
            elif bare:
                lines.append(line_of(bare, place, when, is_hidden=True))
        except ValueError as error:
            raise FormatError(place, str(error), _EXAMPLE) from None
    if not lines and not allow_missing:  # an empty saved mapping is one
        raise FormatError(path, "maps nothing", _EXAMPLE)
    return UserMapping(str(path), tuple(lines), allow_missing)


def _bare(raw: str) -> str:
    """The line without its comment, and without what makes it an item of a YAML list."""
    text = re.sub(r"(^|\s)#.*", "", hidden(raw)).strip()
    if text.startswith("- "):
        text = text[2:].strip()
        if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
            text = text[1:-1]
    return text


def _when(text: str) -> When:
    match = _WHEN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is none of 'when any', 'when steps 0,2-5' and 'when models GOLDEN -> MINE'"
        )
    if match[2] is not None:
        return When(steps=frozenset(_steps(match[2])))
    if match[3] is not None:
        return When(models=(_model(match[3]), _model(match[4])))
    return When()


def _model(text: str) -> str:
    return "" if text == "-" else shown_again(text)


def _steps(text: str) -> Iterator[int]:
    for each in text.split(","):
        first, dash, last = each.strip().partition("-")
        if not first.isdecimal() or not (last.isdecimal() or not dash):
            raise ValueError(f"{each.strip()!r} is no step, such as 3, and no range of them, 2-5")
        steps = range(int(first), int(last or first) + 1)
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"{each.strip()!r} has more than {_MOST_STEPS} steps")
        yield from steps


def line_of(text: str, place: str, when: When, *, is_hidden: bool = False) -> Line:
    """A single line.

    Args:
        text: without comment.
        place: where it is, for messages.
        when: the passes it speaks of.
        is_hidden: ``text`` went through :func:`hidden` already.

    Raises:
        ValueError: it is none; the message says why.
    """
    text = text if is_hidden else hidden(text)
    body, tilde, number = text.partition(" ~")
    sides = re.split(r"\s->\s", f" {body} ")
    if len(sides) != 2:
        raise ValueError("is not 'GOLDEN -> MINE' with one arrow between blanks")
    if sides[1].strip() == SAME:
        sides[1] = sides[0]
    golden, mine = (
        tuple(_term(each.strip()) for each in re.split(r"\s\+\s", side.strip())) for side in sides
    )
    line = Line(golden, mine, place, _confidence(number) if tilde else 1.0, when=when)
    _check(line)
    return line


def _confidence(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError(f"its confidence {text.strip()!r} is no number from 0 to 1")
    return value


def _term(text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{shown_again(text)!r} is not the name of an operation, perhaps with "
            "'@CALL', ':TENSOR' and '[relation]' behind it"
        )
    calls = read_pattern(match["call"]) if match["call"] else None
    if calls is not None and len(calls) > 1:
        raise ValueError("has alternatives of calls; write a line for each")
    return Term(
        tuple(_rooted(each) for each in read_pattern(match["op"])),
        calls[0] if calls is not None else None,
        read_pattern(match["tensor"]) if match["tensor"] else None,
        tuple(read_word(each) for each in re.findall(r"\[([^\]]*)\]", match["words"])),
    )


def _rooted(pattern: Pattern) -> Pattern:
    """The name as it is matched: without the ``root.`` that captures put before it."""
    first, *rest = pattern
    return (first.removeprefix("root."), *rest) if isinstance(first, str) else pattern


def _check(line: Line) -> None:
    """Refuse what no run could make sense of."""
    sides = line.golden, line.mine
    terms = [*line.golden, *line.mine]
    for counts, what in (
        ({len(term.ops) for term in terms}, "operations"),
        ({len(term.tensors or ((),)) for term in terms}, "tensors"),
    ):
        if len(counts - {1}) > 1:
            raise ValueError(
                f"has {max(counts)} {what} on one side and {min(counts - {1})} on the other"
            )
    bound = [{name for each in side[0].patterns() for name in variables(each)} for side in sides]
    free = [sorted(bound[0] - bound[1]), sorted(bound[1] - bound[0])]
    if free[0] and free[1]:
        raise ValueError(
            f"has {{{free[0][0]}}} on the left alone and {{{free[1][0]}}} on the right alone; "
            "use one name for the number that they have in common"
        )
    counts_of_stars = {sum(stars(each) for each in term.patterns()) for term in terms}
    if len(counts_of_stars) > 1:
        raise ValueError("has stars that do not correspond; both sides need equally many")
    for side, names in zip(sides, bound, strict=True):
        for term in side[1:]:
            unknown = {n for each in term.patterns() for n in variables(each)} - names
            if unknown:
                raise ValueError(f"has {{{min(unknown)}}} in a summand but not in the first one")
            if term.joins:
                raise ValueError("joins parts in a summand; give the columns, [columns 0:64]")
        if side[0].joins and len(side[0].ops) > 1:
            raise ValueError("joins parts in several tensors; one side must be a single tensor")
    if line.golden[0].joins and line.mine[0].joins:
        raise ValueError("joins parts on both sides")
    if (line.golden[0].joins or line.mine[0].joins) and line.alternatives < 2:
        raise ValueError(
            "joins parts, but the other side has only one; give the columns, [columns 0:64]"
        )
