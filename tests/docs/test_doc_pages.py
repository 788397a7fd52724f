"""The judge of pages is right: what it lets pass, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import Block, anchors, blocks, first_difference, links, slug, steps

HOME = Path("/tmp/somewhere")


def differs(shown: str, printed: str) -> bool:
    return first_difference(shown.splitlines(), printed, HOME) is not None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\nb", "a\nb\n"),
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("...\nd", "a\nd\n"),
        ("a\n...", "a\nb\n"),
        ("a\n...\nb", "a\nb"),
        ("in /home/me/out", "in /tmp/somewhere/out"),
        ("0.140 here", "0.141 here"),
        ("report_20260101120000.csv", "report_20270101120000.csv"),
        ("x\n" + " " * 14 + "y", "x y"),
        ("a\nb", "a\ncompared 140 of 1,224 tensors, 2 min left\nb"),
    ],
)
def test_what_may_differ_does(shown: str, printed: str) -> None:
    assert not differs(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\nb", "a\nb\nc"),
        ("b", "a\nb"),
        ("a\nb", "b\na"),
        ("a\n...\nc", "a\nb"),
        ("a\n...\nb", "b\na"),
        ("0.14 here", "0.16 here"),
        ("12 PASS", "13 PASS"),
        ("FAIL", "FAILED"),
        ("a\n...", "aa\nb"),
        ("(a|b) [x]", "a x"),
    ],
)
def test_what_must_not_differ_is_seen(shown: str, printed: str) -> None:
    assert differs(shown, printed)


def test_commands_have_their_output_and_their_exit_code() -> None:
    text = "$ first \\\n    --more\none\ntwo\n$ echo $?\n3\n$ second\n"
    first, second = steps(Block("console", text, 10))
    assert (first.command, first.shown, first.exit_code) == ("first  --more", ("one", "two"), 3)
    assert (second.command, second.shown, second.exit_code, second.line) == ("second", (), 0, 17)


def test_blocks_have_their_language_title_and_line() -> None:
    text = 'a\n```python title="x.py"\ny = 1\n```\n  ```\n  indented\n  ```\n'
    first, second = blocks(text)
    assert (first.language, first.title, first.text, first.line) == ("python", "x.py", "y = 1\n", 2)
    assert (second.language, second.text) == ("", "indented\n")


def test_anchors_are_those_of_the_site() -> None:
    text = "# A `b` c!\n## A b c\n## 标题 { #own }\n```\n# no heading\n```\n"
    assert anchors(text) == {"a-b-c", "a-b-c_1", "own"}
    assert slug("`--deep`") == "--deep"
    assert slug("[What](x.md) now?") == "what-now"


def test_links_leave_code_and_other_hosts_out() -> None:
    text = "[a](b.md#c) [d](https://e) `[f](g.md)`\n```\n[h](i.md)\n```\n[j](#k)\n"
    assert links(text) == ["b.md#c", "#k"]
