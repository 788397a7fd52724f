"""The HTML page of a verdict that is no comparison: whole without its script, and safe."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from browser import Browser, needs_browser

from ait_llm.language import speaking
from ait_llm.report.summary import Finding, SourceLine, Summary, Table
from ait_llm.report.summary.page import MAX_LINES, summary_page

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
FOUND = (
    Finding("failed", "error", "LinearOperation_0", "off by 3", "outtensor0 step 0"),
    Finding(
        "not-computed", "warning", "TopkOperation_1", "there is no golden Topk", "outtensor0",
        SourceLine("model.py", 17),
    ),
)  # fmt: skip
SUMMARY = Summary(
    "opcheck", "FAIL", 1, "2 operators of out, standard contract", {"PASS": 3, "FAIL": 1},
    "outputs", FOUND, ("rank 1 was not captured",), ("out/opcheck.csv",), "ait llm repro --op 0",
)  # fmt: skip
TABLE = Table("All outputs", ("verdict", "operator"), [("PASS", "SplitOperation_2")] * 3)


def texts(page: str) -> str:
    """What a reader sees."""
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", page)))


def test_everything_is_on_the_page_without_its_script() -> None:
    seen = " ".join(texts(summary_page(SUMMARY, [TABLE])).split())
    for words in (
        "FAIL Failed: LinearOperation_0 outtensor0 step 0 off by 3", "ait llm repro --op 0",
        "2 operators of out, standard contract", "3 PASS 1 FAIL", "there is no golden Topk",
        "model.py:17", "rank 1 was not captured", "out/opcheck.csv", "SplitOperation_2",
    ):  # fmt: skip
        assert words in seen


def test_a_result_without_findings_says_what_was_looked_at() -> None:
    passed = Summary("errcheck", "PASS", 0, "5 operations were looked at")
    assert "PASS 5 operations were looked at" in " ".join(texts(summary_page(passed)).split())


def test_nothing_of_a_name_becomes_part_of_the_page() -> None:
    finding = Finding("failed", "error", HOSTILE, HOSTILE, HOSTILE, SourceLine(HOSTILE, 1))
    hostile = Summary("opcheck", "FAIL", 1, HOSTILE, {HOSTILE: 1}, HOSTILE, (finding,),
                      (HOSTILE,), (HOSTILE,), HOSTILE)  # fmt: skip

    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.append(tag)

    Tags().feed(summary_page(hostile, [Table(HOSTILE, (HOSTILE,), [(HOSTILE,)])]))
    assert "img" not in tags
    assert tags.count("script") == 2  # its data and its own


def test_lines_beyond_what_a_browser_shows_are_counted() -> None:
    rows = [("PASS", f"op{number}") for number in range(MAX_LINES + 7)]
    seen = texts(summary_page(SUMMARY, [Table("All outputs", ("verdict", "operator"), rows)]))
    assert "and 7 more" in seen
    assert f"op{MAX_LINES - 1}" in seen
    assert f"op{MAX_LINES}" not in seen


def test_the_address_of_a_finding_is_the_same_in_every_run() -> None:
    again = Summary("opcheck", "FAIL", 1, "another run", findings=FOUND[:1])
    (name,) = re.findall(r'<tr id="(failed-\w+)"', summary_page(again))
    assert f'<tr id="{name}"' in summary_page(SUMMARY)


def test_the_page_speaks_chinese() -> None:
    with speaking("zh"):
        seen = texts(summary_page(SUMMARY, [TABLE]))
    for words in ("失败", "无法计算", "缺失", "所有输出", "结论", "下一步"):
        assert words in seen


ACTIONS = """(() => {
  const search = document.getElementById("search");
  search.value = "topk"; search.dispatchEvent(new Event("input"));
  const shown = [...document.querySelectorAll("tbody tr[id]")].filter((line) => !line.hidden);
  const names = shown.map((line) => line.cells[1].textContent);
  return [by("count").textContent, names, text(false).split("\\n")[0]];
})()"""


@needs_browser
def test_lines_are_found_and_the_head_is_copied(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "page.html"
    path.write_text(summary_page(SUMMARY, [TABLE]))
    with browser.open(path) as tab:
        found = tab.run(ACTIONS)
    assert found == [
        "1 of 5", ["TopkOperation_1"], "FAIL: Failed: LinearOperation_0 outtensor0 step 0",
    ]  # fmt: skip


@needs_browser
def test_its_own_policy_lets_its_script_run_and_nothing_else(
    tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "page.html"
    path.write_text(summary_page(SUMMARY, [TABLE]))
    with browser.open(path) as tab:
        assert tab.run("document.documentElement.dataset.ready") == "yes"
        assert tab.console == []
