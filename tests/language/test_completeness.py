"""Nothing that a person reads is left out of the catalogue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ("tokens {range}",)  # the word is the same, without the plural
SCRIPTS = str(ROOT / "scripts")


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, SCRIPTS])


def test_every_error_and_every_help_has_a_translation() -> None:
    from translations import missing

    assert missing() == {}, "python scripts/translations.py lists them"


def test_translations_have_the_placeholders_of_their_texts() -> None:
    from translations import unlike

    assert unlike() == []


def test_translations_are_chinese() -> None:
    from translations import entries

    plain = {
        text: said
        for text, said in entries().items()
        if said.isascii() and text != said and not text.startswith("@") and text not in KEPT
    }
    assert plain == {}
