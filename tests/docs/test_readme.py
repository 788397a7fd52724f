"""The two READMEs show the same commands; tests/packaging runs them on a bare machine."""

from __future__ import annotations

import re

from doc_pages import ROOT, blocks


def test_both_languages_show_the_same_commands_and_programs() -> None:
    english, chinese = (
        [
            (block.language, re.sub(r"#.*", "", block.text))
            for block in blocks((ROOT / name).read_text("utf-8"))
        ]
        for name in ("README.md", "README.zh-CN.md")
    )
    assert [language for language, _ in english] == ["bash", "text", "bash", *["python"] * 3]
    assert [list(map(str.rstrip, text.splitlines())) for _, text in english] == [
        list(map(str.rstrip, text.splitlines())) for _, text in chinese
    ]


def test_both_languages_name_the_operator_that_is_found() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md")]
    named = [set(re.findall(r"`(\w+Operation_\w+)`", text)) for text in texts]
    assert named[0] == named[1] != set()
