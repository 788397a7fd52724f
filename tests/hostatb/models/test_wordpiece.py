"""WordPiece tokenisation."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.errors import FormatError
from ait_llm.hostatb.models.wordpiece import WordPiece, split_words

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "run", "##n", "##ing", ","]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("it's 3.5$", ["it", "'", "s", "3", ".", "5", "$"]),
        ("Ångström café", ["angstrom", "cafe"]),
        ("tab\tand\nline\u00a0end", ["tab", "and", "line", "end"]),
        ("zero\u200bwidth\x07", ["zerowidth"]),
        ("深度 learning学", ["深", "度", "learning", "学"]),
        ("", []),
    ],
)
def test_words_are_split_as_bert_does(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_the_longest_piece_wins() -> None:
    assert WordPiece(PIECES).encode("unaffable running", 20) == [2, 4, 5, 6, 7, 8, 9, 3]


def test_a_word_with_an_unknown_part_is_unknown_as_a_whole() -> None:
    assert WordPiece(PIECES).encode("unafford, run", 20) == [2, 1, 10, 7, 3]


def test_a_very_long_word_is_unknown() -> None:
    assert WordPiece([*PIECES, "r", "##r"]).encode("r" * 101, 200) == [2, 1, 3]


def test_long_text_is_cut_and_still_ends_with_sep() -> None:
    assert WordPiece(PIECES).encode("run run run run", 4) == [2, 7, 7, 3]


def test_a_vocabulary_file_has_one_piece_per_line(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    assert WordPiece.from_file(path).encode("run", 5) == [2, 7, 3]


def test_a_vocabulary_without_special_pieces_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"vocab\.txt: the vocabulary has no \[CLS\]"):
        WordPiece.from_file(path)


def test_a_binary_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="not UTF-8"):
        WordPiece.from_file(path)
