"""The HTML page in Chinese: each of its own texts has a translation, and no other is left."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from browser import Browser, needs_browser
from report_builder import comparison, decoder_report, problems

from ait_llm.language import speaking, translate
from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift, Times
from ait_llm.match.views import Part, Reorder, Repeat, View
from ait_llm.report import html_page
from ait_llm.report.page_words import say
from ait_llm.report.relation import relation_of

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


@pytest.mark.parametrize("side", ["golden", "mine"])
@pytest.mark.parametrize(
    "view",
    [
        Shift(0, 2, 16), FirstUse(), Hidden(-3.40282e38), Times(0.125), Dequantise((0.5,)),
        Dequantise((0.5, 0.25)), Repeat(1, 3), Part(1, 0, 64), Part(0, 0, 8), Reorder((1, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_what_relates_two_tensors_is_said_in_chinese(side: str, view: View) -> None:
    views = {"golden": "golden_view", "mine": "my_view"}
    item = comparison(**{"golden_view": "", "my_view": "", views[side]: str(view)})
    english = relation_of(item)
    with speaking("zh"):
        chinese = translate(english)
    assert side in english
    assert not re.search("golden|mine|[a-z]{3,} [a-z]{3,}", chinese), chinese


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


@needs_browser
def test_no_english_sentence_is_left_on_the_chinese_page(tmp_path: Path, browser: Browser) -> None:
    value = replace(decoder_report(layers=3, steps=2), problems=problems())
    page = tmp_path / "report.html"
    with speaking("zh"):
        html_page.write_html(value, page)
    with browser.open(page) as tab:
        language, texts = tab.run(_TEXTS)
        document = tab.document
        assert tab.console == []
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
