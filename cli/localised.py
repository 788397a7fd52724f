"""Help in the language of the messages, wrapped by the width that its characters have."""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import click

from ait_llm.language import current, translate

C = TypeVar("C", bound=click.Command)

# What is added to the description of an option, and the blank that does not break a line.
_HELP = "Show this message and exit."
_ONE_OF = re.compile(r"\bOne of ([\w, ./|-]+)\.")
_FACTS = re.compile(r"\s*\[(required; |required|)(?:default:\s([^\]]*))?\]$")
_BLANK = "\u00a0"
_WIDE = ("W", "F")
_CLOSING = ("Po", "Pe", "Pf")  # categories of characters that never begin a line


def take_language(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Words of a command line without ``--lang VALUE``, which may stand anywhere, and its value."""
    rest: list[str] = []
    found = None
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*rest, word, *words], found
        if word == "--lang" and words:
            found = words.pop(0)
        elif word.startswith("--lang="):
            found = word.partition("=")[2]
        else:
            rest.append(word)
    return rest, found


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text)


def wrapped(text: str, width: int, first: str = "", following: str = "") -> str:
    """A text in lines of at most that many columns.

    Chinese may break between any two characters but before closing punctuation, words may not.
    """
    lines, line = [], first
    for piece in _pieces(text):
        if cells(line) + cells(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line, piece = following, piece.lstrip()
        line += piece
    return "\n".join([*lines, line.rstrip()])


def _pieces(text: str) -> Iterator[str]:
    """What stays together: a word with the blank before it, or a wide character with its stop."""
    piece = ""
    for each in " ".join(text.split()):
        wide = unicodedata.east_asian_width(each) in _WIDE
        after_wide = piece and unicodedata.east_asian_width(piece[-1]) in _WIDE
        closing = wide and unicodedata.category(each) in _CLOSING
        if piece and not closing and (each == " " or wide or after_wide):
            yield piece
            piece = ""
        piece += each
    if piece:
        yield piece


class WideFormatter(click.HelpFormatter):
    """Writes help that is not English."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The usage line."""
        super().write_usage(prog, args, translate("Usage:") if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """The title of a section."""
        super().write_heading(translate(heading))

    def write_text(self, text: str) -> None:
        """Paragraphs; one that begins with ``\\b`` keeps its lines."""
        for number, paragraph in enumerate(re.split(r"\n{2,}", text)):
            if number:
                self.write("\n")
            margin = " " * self.current_indent
            if paragraph.lstrip().startswith("\b"):
                for line in paragraph.split("\n")[1:]:
                    self.write(f"{margin}{line.strip()}\n")
            else:
                self.write(wrapped(paragraph, self.width, margin, margin) + "\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Options or commands with their descriptions."""
        rows = list(rows)
        widest = max((cells(name) for name, _ in rows), default=0)
        column = min(widest, col_max) + col_spacing + self.current_indent
        for name, text in rows:
            first = " " * self.current_indent + name
            if cells(first) > column - col_spacing and text:
                self.write(first + "\n")
                first = ""
            first += " " * (column - cells(first))
            text = _described(text)
            self.write(wrapped(text, self.width, first, " " * column).rstrip() + "\n")


def _described(text: str) -> str:
    """The description of an option, itself translated, with what is added to it."""
    text = text.replace(_HELP, translate(_HELP))
    # The names are what a user has to write.
    text = _ONE_OF.sub(lambda found: translate("One of {names}.").format(names=found[1]), text)
    found = _FACTS.search(text)
    if found is None or not found[0].strip(" []"):
        return text
    facts = translate("required") if found[1] else ""
    if found[2] is not None:
        value = translate(found[2].replace(_BLANK, " "))
        facts += (translate("; ") if facts else "") + translate("default: ") + value
    return text[: found.start()] + f"  [{facts}]"


class WideContext(click.Context):
    """Of commands whose help is not English."""

    formatter_class = WideFormatter


def localised(command: C) -> C:
    """The command with its help in the language of the messages: a copy, unless that is English."""
    if current() == "en":
        return command
    found = copy.copy(command)
    found.context_class = WideContext
    found.help = _help(command.help)
    found.epilog = _help(command.epilog)
    found.short_help = translate(command.get_short_help_str(limit=100))
    found.params = [copy.copy(param) for param in command.params]
    for param in found.params:
        if isinstance(param, click.Option):
            param.help = _help(param.help)
    return found


def paragraphs(text: str) -> list[str]:
    """A help text in the parts that are translated one by one, with single blanks."""
    found = []
    for part in re.split(r"\n\s*\n", text.partition("\f")[0]):
        if part.lstrip("\n ").startswith("\b"):
            found += [line.strip() for line in part.split("\n")]
        else:
            found.append(" ".join(part.split()))
    return [part for part in found if part.strip("\b ")]


def _help(text: str | None) -> str | None:
    """A help text in the language of the messages."""
    if not text:
        return text
    parts = []
    for part in re.split(r"\n\s*\n", text.partition("\f")[0]):
        if part.lstrip("\n ").startswith("\b"):
            parts.append("\n".join(translate(line) for line in part.split("\n")))
        else:
            parts.append(translate(" ".join(part.split())))
    return "\n\n".join(parts)
