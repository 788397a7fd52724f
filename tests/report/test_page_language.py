"""The HTML page in Chinese: each of its own texts has a translation, and no other is left."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from browser import BROWSER, opened
from report_builder import decoder_report, problems

from ait_llm.language import speaking
from ait_llm.report import html_page
from ait_llm.report.page_words import say

# What the script puts together, or takes from the data.
_MADE = {
    "row {0}", "rows {0} to {1}", "channel {0}", "channels {0} to {1}",
    "{0} inherited from the inputs", "{0} introduced here", "max", "min", "mean", "norm", "NaN",
    "Inf", "type", "shape", "taken", "both", "verdict", "reason", "where", "part", "line",
}  # fmt: skip
_IDENTICAL = {"token", "token {0}", "NaN", "Inf"}


def first_argument(text: str) -> str:
    """What stands before the first comma or the closing bracket of a call."""
    depth, quote = 0, ""
    for place, char in enumerate(text):
        if quote:
            if char == quote and text[place - 1] != "\\":
                quote = ""
        elif char in "\"`'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}" or char == ",":
            if depth == 0:
                return text[:place]
            depth -= char != ","
    raise AssertionError(text[:60])


def said_by_scripts() -> set[str]:
    found = set()
    for name in (*html_page.SCRIPTS, "summary.js"):
        text = html_page.resource(name)
        for call in re.finditer(r"\bsay\(", text):
            literals = re.findall(r'"(?:[^"\\]|\\.)*"', first_argument(text[call.end() :]))
            found.update(json.loads(each) for each in literals)
        for noun in re.findall(r'plural\([^"]*?, "([a-z ]+)"\)', text):
            found |= {f"{{0}} {noun}", f"{{0}} {noun}s"}
    return found - {"", "s"}  # of `plural` itself


def said_by_the_page() -> set[str]:
    folder = files("ait_llm.report")
    sources = (folder / "html_page.py", folder / "summary" / "page.py")
    source = "\n".join(each.read_text("utf-8") for each in sources)
    calls = re.findall(r'(?:say\(|starts = )"([^"]*)"', source)
    calls += re.findall(r'if failed == 1 else "([^"]*)"', source)
    templates = html_page.resource("page.html") + html_page.resource("summary.html")
    return {*calls, *re.findall(r"\{\{=([^}]+)\}\}", templates)}


def table() -> dict[str, str]:
    words: dict[str, str] = json.loads((files("ait_llm.report") / "page" / "zh.json").read_text())
    return words


def test_every_text_of_the_page_has_a_translation_and_every_translation_a_text() -> None:
    assert set(table()) == said_by_scripts() | said_by_the_page() | _MADE


def test_translations_are_filled_in_with_the_same_values() -> None:
    for text, meaning in table().items():
        places = [sorted(set(re.findall(r"\{\d\}", each))) for each in (text, meaning)]
        assert places[0] == places[1], text
        assert text != meaning or text in _IDENTICAL, text
        assert not re.search(r"[a-z]{3,} [a-z]{3,}", meaning), text


def test_a_text_is_said_in_the_language_of_the_moment() -> None:
    assert say("{0} tensors fail", 3) == "3 tensors fail"
    with speaking("zh"):
        assert say("{0} tensors fail", 3) == "3 个张量失败"


_TEXTS = """(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = new Set();
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest("script")) found.add(walker.currentNode.data);
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
    for (const name of ["aria-label", "title", "placeholder"]) {
      if (element.hasAttribute(name)) found.add(element.getAttribute(name));
    }
  }
  return [document.documentElement.lang, [...found]];
})()"""


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian package chromium)")
def test_no_english_sentence_is_left_on_the_chinese_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = html_page.resource
    more = f"document.documentElement.dataset.result = JSON.stringify({_TEXTS});"
    monkeypatch.setattr(
        html_page, "resource", lambda name: resource(name) + (more if name == "main.js" else "")
    )
    value = replace(decoder_report(layers=3, steps=2), problems=problems())
    page = tmp_path / "report.html"
    with speaking("zh"):
        html_page.write_html(value, page)
    document, console = opened(page, tmp_path / "profile")
    assert console == []
    found = re.search(r'data-result="([^"]*)"', document)
    assert found is not None
    language, texts = json.loads(html.unescape(found[1]))
    assert language == "zh-CN"
    # The builder makes sentences up; translations of the comparison's own are tested elsewhere.
    made_up = {text for item in value.comparisons for text in (item.reason, item.why)}
    made_up |= {text for item in value.comparisons for text in item.missing.values()}
    made_up |= {text for item in value.origins for text in (item.evidence, item.kind_evidence)}
    made_up |= {item.text for item in value.problems} | {"ait llm repro --dump"}
    english = [text for text in texts if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", text)]
    left = [text for text in english if not any(each in text for each in made_up if each)]
    assert left == []
    assert "误差始于 SelfAttentionOperation_3_0_2（token 0）" in document  # noqa: RUF001
