"""Finds the translation of a text that already has its values in it.

An entry is a text with placeholders in braces, ``{path}: it is empty``, and its translation with
the same placeholders; those whose names begin with ``number`` or ``count`` are numbers. A text
belongs to the entry that has the most literal characters among those that match it. What stands in
the place of a placeholder is looked up in turn, because messages are put together from clauses, as
in ``a.bin: it is empty. Dump it again``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from pathlib import Path

from ait_llm.language.choice import current

_TOKENS = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")
_LETTERS = re.compile(r"[A-Za-z]{2}")
_WORDS = re.compile(r"[A-Za-z]+")
_LEAST_LITERAL = 2  # letters that an entry has besides its placeholders
_NUMBERS = ("number", "count")  # what names of placeholders begin with that stand for numbers
_LABEL = "@"  # before a word that is translated only where it begins a line of columns
_DEPTH = 4  # of clauses within clauses
# Between clauses that are said one by one, the loosest first.
_SENTENCES = (". ", "; ")
_SEPARATORS = (*_SENTENCES, ": ", ", ")


@dataclass(frozen=True)
class Entry:
    """One text and its translation.

    Attributes:
        text: in English.
        meaning: in the other language.
    """

    text: str
    meaning: str

    @cached_property
    def literals(self) -> list[str]:
        """What has to be in a text, the longest first."""
        parts = [part for part, is_name in _pieces(self.text) if part and not is_name]
        return sorted(parts, key=len, reverse=True)

    @cached_property
    def weight(self) -> int:
        """Literal characters; among entries that match, the one with the most is meant."""
        return sum(map(len, self.literals))

    @cached_property
    def words(self) -> set[str]:
        """Whole words of its literals: no letter of a value can stand next to them."""
        found: set[str] = set()
        parts = [part for part, is_name in _pieces(self.text) if not is_name]
        for place, part in enumerate(parts):
            for match in _WORDS.finditer(part):
                begins = match.start() > 0 or place == 0
                ends = match.end() < len(part) or place == len(parts) - 1
                if begins and ends:
                    found.add(match[0])
        return found

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the text with any values; the groups stand in the order of ``names``."""
        parts = []
        for part, is_name in _pieces(self.text):
            if not is_name:
                parts.append(re.escape(part))
            elif (group := _group(self.names.index(part), part)) in parts:
                parts.append(f"(?P=g{self.names.index(part)})")
            else:
                parts.append(group)
        return re.compile("".join(parts), re.DOTALL)

    @cached_property
    def names(self) -> list[str]:
        """Placeholders, each once."""
        return list(dict.fromkeys(part for part, is_name in _pieces(self.text) if is_name))

    def filled(self, values: Mapping[str, str]) -> str:
        """The translation with values in place of the names."""
        parts = _pieces(self.meaning)
        return "".join(values[part] if is_name else part for part, is_name in parts)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Literal parts and names of placeholders; ``{{`` and ``}}`` are braces."""
    found = []
    end = 0
    for token in _TOKENS.finditer(text):
        found.append((text[end : token.start()], False))
        end = token.end()
        found.append((token[1], True) if token[1] else (token[0][0], False))
    return [*found, (text[end:], False)]


def _group(number: int, name: str) -> str:
    values = r"[-+\d.,e]+?" if name.startswith(_NUMBERS) else ".+?"
    return f"(?P<g{number}>{values})"


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for place, each in enumerate(text):
        if each in "([{":
            depth += 1
        elif each in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(separator, place):
            parts.append(text[start:place])
            start = place + len(separator)
    return [*parts, text[start:]]


def names_of(text: str) -> set[str]:
    """Placeholders of a text."""
    return {part for part, is_name in _pieces(text) if is_name}


class Catalogue:
    """All entries of one language.

    Args:
        entries: translations by text.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        # Of a text without placeholders, only its doubled braces change.
        self._exact = {_plain(text): _plain(meaning) for text, meaning in entries.items()}
        templates = [Entry(*pair) for pair in entries.items() if names_of(pair[0])]
        usable = [each for each in templates if _says_something(each)]
        usable.sort(key=lambda each: each.weight, reverse=True)
        words = [each.words for each in usable]
        common = Counter(word for each in words for word in each)
        # By the rarest of the words that a text must have; under no word where it has none.
        self._templates: dict[str, list[tuple[int, Entry]]] = {}
        for rank, entry in enumerate(usable):
            rarest = min(words[rank], key=lambda word: (common[word], word), default="")
            self._templates.setdefault(rarest, []).append((rank, entry))

    def __len__(self) -> int:
        return len(self._exact)

    def __contains__(self, text: str) -> bool:
        return text in self._exact

    def translate(self, text: str) -> str:
        """The text in the other language; what no entry knows stays as it is."""
        if (exact := self._exact.get(text)) is not None:
            return exact
        return "\n".join(self._line(line) for line in text.split("\n"))

    def meaning_of(self, text: str) -> str | None:
        """The meaning of exactly this text, clauses in it as they are; None if it has no entry."""
        if (exact := self._exact.get(text)) is not None:
            return exact
        return next((entry.filled(values) for entry, values in self._matches(text)), None)

    def label(self, word: str) -> str:
        """What begins a line of columns; such words mean nothing elsewhere."""
        return self._exact.get(f"{_LABEL}{word}", word)

    def _line(self, line: str) -> str:
        """One line; its indentation and the columns of a list are kept."""
        body = line.strip()
        if not _LETTERS.search(body):
            return line
        name, *parts = re.split(r"( {2,})", body)  # columns
        found = self.label(name) if parts else self._of(name, _DEPTH)
        found += "".join(self._of(part, _DEPTH) for part in parts)
        start = line.index(body)
        return line[:start] + found + line[start + len(body) :]

    def _of(self, text: str, depth: int) -> str:
        """A text or clause, whole or part by part."""
        if not _LETTERS.search(text):
            return text
        for separator in _SEPARATORS if depth else ():
            parts = _split(text, separator)
            # An entry for one sentence must not take two for it.
            within = separator if separator in _SENTENCES else ""
            if len(parts) > 1 or not within:
                found = self._find(text, depth, within)
                if found is not None:
                    return found
            if len(parts) > 1:
                said = [self._of(part, depth - 1) for part in parts]
                return text if said == parts else self._exact.get(separator, separator).join(said)
        return self._find(text, depth) or text

    def _candidates(self, text: str) -> Iterator[Entry]:
        """Entries that a text may belong to, those with the most literal characters first."""
        found = list(self._templates.get("", ()))
        for word in set(_WORDS.findall(text)):
            found += self._templates.get(word, ())
        return (entry for _, entry in sorted(found, key=itemgetter(0)))

    def _find(self, text: str, depth: int, within: str = "") -> str | None:
        """The translation of exactly this text, by an entry that has some words in it."""
        if (exact := self._exact.get(text)) is not None:
            return exact
        if depth == 0:
            return None
        for entry, values in self._matches(text, within):
            said = {name: self._of(value, depth - 1) for name, value in values.items()}
            return entry.filled(said)
        return None

    def _matches(self, text: str, within: str = "") -> Iterator[tuple[Entry, dict[str, str]]]:
        """Entries that a text belongs to, with the values in it; the best comes first."""
        for entry in self._candidates(text):
            if within not in entry.text or not all(part in text for part in entry.literals):
                continue
            match = entry.pattern.fullmatch(text)
            if match is not None:
                yield entry, dict(zip(entry.names, match.groups(), strict=True))


def _plain(text: str) -> str:
    return text if names_of(text) else "".join(part for part, _ in _pieces(text))


def _says_something(entry: Entry) -> bool:
    """False for ``{path}: {reason}`` alone, which would match nearly any text."""
    return sum(character.isalpha() for character in "".join(entry.literals)) >= _LEAST_LITERAL


def read_entries(files: Iterable[Path]) -> dict[str, str]:
    """Entries of catalogue files: JSON objects of texts and translations."""
    found: dict[str, str] = {}
    for file in files:
        found |= json.loads(file.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=1)
def catalogue(language: str) -> Catalogue:
    """The catalogue of a language that is not English."""
    return Catalogue(read_entries(sorted((Path(__file__).parent / language).glob("*.json"))))


def translated_label(word: str) -> str:
    """The first column of a line, in the language that is spoken now."""
    language = current()
    return word if language == "en" else catalogue(language).label(word)


def translate(text: str) -> str:
    """A message in the language that is spoken now; what has no translation stays English."""
    language = current()
    return text if language == "en" else catalogue(language).translate(text)
