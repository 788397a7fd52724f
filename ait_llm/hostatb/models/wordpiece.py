"""WordPiece tokenisation of uncased BERT models.

Follows the published algorithm of BERT (Devlin et al. 2019, ``tokenization.py`` of
google-research/bert): clean, space out CJK characters, lower, strip accents, split at white space
and punctuation, then take the longest known piece again and again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ait_llm.errors import FormatError

_MAX_WORD = 100  # longer words become [UNK], as in the published tokenizer
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _is_cjk(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _CJK)


def _is_punctuation(char: str) -> bool:
    # ASCII symbols such as $ and ^ count as punctuation too.
    ascii_symbol = 33 <= ord(char) <= 126 and not char.isalnum()
    return ascii_symbol or unicodedata.category(char).startswith("P")


def _is_space(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _clean(char: str) -> str:
    """The character, a space in place of white space, or nothing for control characters."""
    if _is_space(char):
        return " "
    if char in ("\0", "\ufffd") or unicodedata.category(char) in ("Cc", "Cf", "Co"):
        return ""
    return f" {char} " if _is_cjk(char) else char


def split_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks, without accents."""
    cleaned = "".join(_clean(char) for char in text)
    decomposed = unicodedata.normalize("NFD", cleaned.lower())
    plain = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
    spaced = "".join(f" {char} " if _is_punctuation(char) else char for char in plain)
    return spaced.split()


class WordPiece:
    """A tokenizer over a vocabulary.

    Args:
        pieces: the pieces in the order of their ids; ``##`` marks continuations. ``[CLS]``,
            ``[SEP]`` and ``[UNK]`` must be among them.
        source: file that the pieces come from, for messages.

    Raises:
        FormatError: a special piece is missing.
    """

    def __init__(self, pieces: Sequence[str], source: Path | str = "vocabulary") -> None:
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        for special in ("[CLS]", "[SEP]", "[UNK]"):
            if special not in self._ids:
                raise FormatError(source, f"the vocabulary has no {special}")

    @classmethod
    def from_file(cls, path: Path) -> WordPiece:
        """Read a ``vocab.txt``: one piece per line.

        Raises:
            FormatError: not UTF-8 text or without the special pieces.
        """
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise FormatError(path, f"not UTF-8 text ({error.reason})") from error
        return cls(lines[:-1] if lines[-1] == "" else lines, path)

    def _word(self, word: str) -> list[int]:
        """Longest pieces from the left; one [UNK] when some part is unknown."""
        unknown = [self._ids["[UNK]"]]
        if len(word) > _MAX_WORD:
            return unknown
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self._ids.get(prefix + word[start:end])
                if piece is not None:
                    break
            else:
                return unknown
            ids.append(piece)
            start = end
        return ids

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids with ``[CLS]`` and ``[SEP]``, cut to at most ``limit`` ids."""
        ids = [piece for word in split_words(text) for piece in self._word(word)]
        return [self._ids["[CLS]"], *ids[: limit - 2], self._ids["[SEP]"]]
