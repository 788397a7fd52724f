"""The Chinese pages have the parts of the English ones; for the READMEs see test_readme."""

from __future__ import annotations

import re

import pytest
from doc_pages import DOCS, anchors, blocks, links

# Scripts write these from the source or from what they measured, and write them in English.
GENERATED = {
    "engines-results",
    "errors",
    "healthy-results",
    "invariant-results",
    "legal-results",
    "localisation",
    "matching-results",
    "opcheck-standards",
    "origins-results",
    "performance",
    "vendor-suites",
    "versions",
}
SUFFIX = ".zh.md"

CHINESE = {path.name.removesuffix(SUFFIX) for path in DOCS.glob(f"*{SUFFIX}")}
ENGLISH = {path.stem for path in DOCS.glob("*.md") if not path.name.endswith(SUFFIX)}


def both(page: str) -> tuple[str, str]:
    """The English and the Chinese text of a page."""
    english, chinese = (DOCS / f"{page}{suffix}" for suffix in (".md", SUFFIX))
    return english.read_text("utf-8"), chinese.read_text("utf-8")


def prose(text: str) -> list[str]:
    """The lines outside of fenced blocks, without their indent."""
    plain = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line.strip() for line in plain.splitlines()]


def headings(text: str) -> list[int]:
    """The level of each heading, in order."""
    return [len(line) - len(line.lstrip("#")) for line in prose(text) if re.match("#+ ", line)]


def tables(text: str) -> list[int]:
    """How many rows each table has, in order."""
    found: list[int] = []
    within = False
    for line in prose(text):
        row = line.startswith("|")
        if row and not within:
            found.append(0)
        if row:
            found[-1] += 1
        within = row
    return found


def test_every_page_that_no_script_writes_is_there_in_chinese() -> None:
    assert CHINESE == ENGLISH - GENERATED


def test_the_chinese_index_says_which_pages_are_english_only() -> None:
    marked = re.findall(r"^\| \[.*?\]\(([\w-]+)\.md\) .*仅有英文", both("index")[1], re.MULTILINE)
    assert set(marked) == GENERATED


@pytest.mark.parametrize("page", sorted(CHINESE & ENGLISH))
def test_a_chinese_page_shows_the_same_blocks(page: str) -> None:
    english, chinese = (
        [(block.language, block.title, block.text) for block in blocks(text)] for text in both(page)
    )
    assert chinese == english


@pytest.mark.parametrize("page", sorted(CHINESE & ENGLISH))
def test_a_chinese_page_has_the_headings_and_tables(page: str) -> None:
    english, chinese = both(page)
    assert headings(chinese) == headings(english)
    assert tables(chinese) == tables(english)


@pytest.mark.parametrize("page", sorted(CHINESE & ENGLISH))
def test_a_chinese_page_has_the_links_and_their_anchors_are_in_the_chinese_pages(page: str) -> None:
    """The site leads a link to the page in the reader's language, and does not miss an anchor."""
    english, chinese = (set(links(text)) for text in both(page))
    assert chinese == english
    for link in chinese:
        name, _, anchor = link.partition("#")
        target = name.removesuffix(".md") or page
        if anchor and target in CHINESE:
            assert anchor in anchors(both(target)[1]), link
