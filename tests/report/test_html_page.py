"""The HTML page: one file, nothing loaded, nothing from a dump ever run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, needs_browser
from hypothesis import given, settings
from hypothesis import strategies as st
from report_builder import (
    comparison,
    decoder_report,
    not_finite,
    problems,
    record,
    report,
    unreadable,
)

from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Origin, Report, Verdict
from ait_llm.report import html_page
from ait_llm.report.page_data import page_data
from ait_llm.report.relation import relation_of

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
)


class Parts(HTMLParser):
    """Start tags and the contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in self.contents:
            self.contents[self.cdata_elem].append(data)


def data_of(text: str) -> Any:
    """The data that a page carries."""
    return json.loads("".join(Parts(text).contents["script"][:1]))


def test_the_page_refers_to_nothing_outside_itself() -> None:
    text = html_page.page(decoder_report())
    for tag, attributes in Parts(text).tags:
        assert tag not in ("iframe", "object", "embed", "base", "form", "img")
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text


def test_no_two_elements_have_the_same_id() -> None:
    ids = [
        found["id"] for _, found in Parts(html_page.page(decoder_report())).tags if "id" in found
    ]
    assert len(set(ids)) == len(ids)


def test_the_policy_allows_its_own_style_and_script_and_no_others() -> None:
    parts = Parts(html_page.page(decoder_report()))
    (policy,) = (a["content"] for _, a in parts.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for content in (parts.contents["style"][0], parts.contents["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any("style" in a or any(n.startswith("on") for n in a) for _, a in parts.tags)


def test_no_script_of_a_page_takes_a_name_of_another() -> None:
    # A second function of one name would silently replace the first.
    declared = re.compile(r"^(?:async )?(?:function\*?|const|let) (\w+)", re.M)
    for scripts in (html_page.SCRIPTS, ("shared.js", "summary.js")):
        names = [name for each in scripts for name in declared.findall(html_page.resource(each))]
        assert len(names) > 5
        assert sorted(set(names)) == sorted(names)


PLAIN = report(
    comparison(0.5), origins=(Origin("x", "x", "x", 0, golden_op="x"),), problems=problems()
)


@settings(max_examples=25)
@given(st.text(st.characters(exclude_categories=[]), min_size=1))
def test_no_name_leaves_its_place_in_the_page(name: str) -> None:
    name = HOSTILE + name
    origin = Origin(name, name, name, 0, evidence=name, golden_op=name, index=0)
    item = comparison(0.5, mine=record(name, name=name, path=name), reason=name)
    value = report(item, origins=(origin,), problems=problems())
    text = html_page.page(value)
    assert text.isascii()
    assert [tag for tag, _ in Parts(text).tags] == [
        tag for tag, _ in Parts(html_page.page(PLAIN)).tags
    ]
    assert name in data_of(text)["texts"]


def test_the_head_says_verdict_and_origin_without_a_script() -> None:
    text = html_page.page(decoder_report())
    assert '<span class="badge big fail" id="verdict">FAIL</span>' in text
    assert "The error starts at SelfAttentionOperation_3_0_2 (token 0), which answers" in text
    assert ">its inputs pass with 0.000225 and its output fails with 0.31</p>" in text


def test_an_operator_that_is_called_alike_on_both_sides_is_named_once() -> None:
    value = decoder_report()
    first = value.origins[0]
    text = html_page.page(replace(value, origins=(replace(first, golden_op=first.op),)))
    assert f">The error starts at {first.op} (token 0)</h1>" in text


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (report(), "Nothing could be compared"),
        (report(comparison()), "Everything was compared and every tensor is within its limits"),
        (report(comparison(), unreadable()), "something could not be compared"),
        (report(comparison(1, mine=record(role="file"))), "1 tensor fails</h1>"),
        (report(comparison(1)), "1 tensor fails; no operator was found"),
    ],
)
def test_other_results_have_a_sentence_too(value: Report, sentence: str) -> None:
    assert sentence in html_page.page(value)


def test_every_comparison_is_in_the_data_with_its_numbers() -> None:
    items = (comparison(), comparison(0.25), unreadable(), not_finite())
    data = page_data(report(*items, problems=problems()))
    assert [row[1] for row in data["rows"]] == [0, 1, 2, 3]
    texts = data["texts"]
    assert [data["verdicts"][row[5]] for row in data["rows"]] == ["PASS", "FAIL", "ERROR", "FAIL"]
    assert data["rows"][1][13] == [0.9375, 2.0, 0.125, 1.0, 0.0625, None, 0.25]
    assert texts[data["rows"][1][14]] == {"kl_divergence": "not a distribution"}
    assert texts[data["rows"][1][15]] == {
        "relative_euclidean_distance": 0.01,
        "max_element_error": 0.1,
    }
    assert data["rows"][1][16] == {
        "relative_euclidean_distance": 0.25,
        "max_element_error": 0.03125,
    }
    assert data["rows"][3][13][3] == "Infinity"
    assert texts[data["rows"][2][6]] == unreadable().reason
    assert len(data["rows"][1][22]) == 16


def test_what_does_not_fit_is_counted_and_failures_are_kept() -> None:
    value = decoder_report(layers=20)
    data = page_data(value, max_rows=300)
    assert len(data["rows"]) == 300
    assert data["meta"]["left_out"] == len(value.comparisons) - 300
    kept = [data["verdicts"][row[5]] for row in data["rows"]]
    assert kept.count("FAIL") == value.counts[Verdict.FAIL]
    assert data["origins"][0]["row"] is not None
    assert data["origins"][0]["kind"] == "constant scale"
    assert data["origins"][0]["kind_evidence"] == "every element is 1.31 times too large"


def test_equal_texts_are_stored_once() -> None:
    small, large = (len(html_page.page(decoder_report(layers=n))) for n in (2, 52))
    assert (large - small) / (50 * 18) < 460  # bytes for each comparison


def test_the_file_is_not_for_everybody(tmp_path: Path) -> None:
    (path,) = html_page.write_html(report(), tmp_path / "report.html")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def shown(
    value: Report, folder: Path, browser: Browser, *, dark: bool = False, fragment: str = ""
) -> str:
    """The document that the page becomes, with nothing on the console."""
    (page,) = html_page.write_html(value, folder / "report.html")
    with browser.open(page, dark=dark, fragment=fragment) as tab:
        assert tab.console == []
        return tab.document


@needs_browser
def test_the_browser_shows_the_origin_s_row_the_curve_and_an_empty_console(
    tmp_path: Path,
    browser: Browser,
) -> None:
    value = replace(decoder_report(layers=4, steps=3), problems=problems())
    document = shown(value, tmp_path, browser)
    assert 'data-ready="yes"' in document
    table = document.partition('<table id="table">')[2]
    first = table.partition("<tbody>")[2].partition("</tr>")[0]
    assert 'data-origin="yes"' in first
    assert "SelfAttentionOperation_3_0_2" in first
    curve = document.partition('id="curve-svg"')[2].partition("</svg>")[0]
    assert curve.count("<path ") == 3
    assert "origin<title>SelfAttentionOperation_3_0_2</title>" in curve
    heat = document.partition('id="heat-svg"')[2].partition("</svg>")[0]
    assert heat.count("cell-fail") == 3
    assert "\u2605" in heat
    details = document.partition('id="details"')[2].partition("</section>")[0]
    assert "its inputs pass with 0.000225 and its output fails with 0.31" in details
    assert "Largest absolute error at [3, 17]: golden 1.25, mine 2.49." in details
    assert 'class="histogram"' in details
    assert "it did not finish its capture" in document.partition('id="missing-list"')[2]


ACTIONS = """(() => {
const result = {};
const visibleRows = () => [...document.querySelectorAll("#table tbody tr")]
  .map((row) => row.children[2].textContent);
const press = (element, ...keys) => keys.forEach((key) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
document.querySelector("[data-column='max_absolute_error']").click();
result.worst = visibleRows()[0];
by("search").value = "mlp.down_proj layers.2";
change({ search: by("search").value });
result.found = [...new Set(visibleRows())];
by("search").value = "";
change({ search: "" });
document.querySelector(".tile.is-skipped").click();
result.skipped = by("page").textContent;
by("reset").click();
result.all = by("page").textContent;
[...document.querySelectorAll("button")].find((button) => /next/.test(button.textContent)).click();
result.second = by("page").textContent;
press(by("heat-svg"), "ArrowDown", "ArrowDown", "Enter");
result.heat = [state.operation.op, state.step, state.layer, by("page").textContent];
press(by("heat-svg"), "Enter");
result.again = [state.step, state.layer, by("page").textContent];
const nodes = () => [...document.querySelectorAll("[role=treeitem]")];
nodes()[0].focus();
press(nodes()[0], "ArrowRight");
result.open = nodes()[0].getAttribute("aria-expanded");
press(nodes()[0], "ArrowDown");
result.focused = document.activeElement.dataset.key;
document.querySelector("#curve-svg circle").dispatchEvent(new MouseEvent("click"));
result.chosen = document.querySelector("#details b").textContent;
by("theme").click();
result.theme = document.documentElement.dataset.theme;
by("token").value = "1"; by("token").dispatchEvent(new Event("change"));
result.lines = document.querySelectorAll("#curve-svg path").length;
return result;
})()"""


@needs_browser
def test_tables_charts_and_trees_answer_to_mouse_and_keyboard(
    tmp_path: Path, browser: Browser
) -> None:
    result = ran(decoder_report(layers=4, steps=3), tmp_path, browser, ACTIONS)
    assert result == {
        "worst": "LinearOperation_5_2_2",
        "found": ["LinearOperation_4_2_2"],
        "skipped": "1 to 48 of 48",
        "all": "1 to 50 of 216",
        "second": "51 to 100 of 216",
        "heat": ["SelfAttentionOperation_3_0_2", 0, "3", "1 to 18 of 18"],
        "again": [None, None, "1 to 50 of 216"],
        "open": "true",
        "focused": "2_0",
        "chosen": "LinearOperation_2_2_2",
        "theme": "dark",
        "lines": 1,
    }


def ran(
    value: Report,
    folder: Path,
    browser: Browser,
    script: str,
    *,
    size: tuple[int, int] = (1500, 1900),
    fragment: str = "",
) -> Any:
    """What a script makes of a page after the page's own ran, with nothing on the console."""
    page = folder / "report.html"
    html_page.write_html(value, page)
    with browser.open(page, size=size, fragment=fragment) as tab:
        result = tab.run(script)
        assert tab.console == []
        return result


CHOSEN = """[titleOf(state.operation), by("search").value, by("metric").selectedOptions[0].text,
  by("page").textContent, by("token").value]"""


@needs_browser
@pytest.mark.parametrize(
    ("fragment", "chosen"),
    [
        ("", ["SelfAttentionOperation_3_0_2", "", "relative_euclidean_distance", "1 to 50 of 216"]),
        (
            "op=LinearOperation_2_2_2&step=1&metric=max_absolute_error&search=Linear&token=1"
            "&verdicts=PASS+FAIL",
            ["LinearOperation_2_2_2", "Linear", "max_absolute_error", "1 to 24 of 24"],
        ),
        ("op=nothing&metric=no&token=99&layer=0&verdicts=LOST&role=%3Cscript%3E",
         ["SelfAttentionOperation_3_0_2", "", "relative_euclidean_distance", "1 to 50 of 216"]),
    ],
    ids=["nothing", "a view", "what is not there"],
)  # fmt: skip
def test_the_address_says_what_is_shown(
    tmp_path: Path, browser: Browser, fragment: str, chosen: list[str]
) -> None:
    value = decoder_report(layers=4, steps=3)
    token = "1" if "token=1" in fragment else ""
    assert ran(value, tmp_path, browser, CHOSEN, fragment=fragment) == [*chosen, token]


@needs_browser
def test_the_link_to_a_view_leads_back_to_it(tmp_path: Path, browser: Browser) -> None:
    value = decoder_report(layers=4, steps=3)
    script = """(() => {
      select(rows.find((row) => row.operation.op === "LinearOperation_4_2_2" && row.role === "in"));
      change({ search: "Linear", layer: LAYERS[2], verdicts: new Set([PASS]) });
      const address = addressOf(), same = location.hash === `#${address}`;
      return [same, address, asked(address).row === state.row, asked(address).layer === LAYERS[2]];
    })()"""
    same, address, row, layer = ran(value, tmp_path, browser, script)
    assert (same, row, layer) == (True, True, True)
    assert "op=LinearOperation_4_2_2" in address


@needs_browser
def test_the_head_is_copied_as_text_and_as_markdown(tmp_path: Path, browser: Browser) -> None:
    value = decoder_report()
    origin = replace(value.origins[0], evidence="`scale` is 1.0")
    value = replace(value, golden=replace(value.golden, path="/runs/a `golden` one"))
    value = replace(value, origins=(origin,))
    script = "[summary(false), summary(true), by('evidence').innerHTML]"
    plain, marked, shown_so = ran(value, tmp_path, browser, script)
    assert shown_so == "<code>scale</code> is 1.0"
    assert "\n\n`scale` is 1.0\n\n" in marked
    assert plain.startswith("FAIL: The error starts at SelfAttentionOperation_3_0_2 (token 0)")
    assert "\ngolden: /runs/a `golden` one\n" in plain
    assert marked.startswith("**FAIL** The error starts at SelfAttentionOperation_3_0_2 (token 0)")
    assert "\n- golden: ``/runs/a `golden` one``\n- mine: ``" in marked


@needs_browser
def test_a_failing_tensor_is_shown_closely_and_its_map_answers_to_the_keyboard(
    tmp_path: Path, browser: Browser
) -> None:
    script = """(() => {
      const map = document.querySelector(".error-map");
      const press = (...keys) => keys.forEach((key) =>
        map.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
      press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight");
      const said = map.nextElementSibling.textContent;
      const worst = [...document.querySelectorAll(".around + *, .closeup .steps button")];
      const cells = (side) => [...document.querySelectorAll(".around table")][side]
        .querySelector("tr").textContent;
      const first = [cells(0), cells(1)];
      worst[1].click();
      return [said, worst.map((button) => button.textContent), first,
        document.querySelectorAll(".around .bad").length,
        [...document.querySelectorAll(".closeup")].length];
    })()"""
    said, worst, first, different, count = ran(decoder_report(), tmp_path, browser, script)
    assert said == "row 3, channel 2: 2.746"
    assert worst == ["[3, 1]", "[3, 7]"]
    # The window of [3, 1] begins a column before the first channel, where nothing is.
    assert first == ["0.51.25-0.50.125", "0.52.49-0.50.125"]
    assert (different, count) == (3, 1)


@needs_browser
def test_modules_that_hold_the_layers_are_drawn_in_the_tree_only(
    tmp_path: Path, browser: Browser
) -> None:
    paths = ("root", "root.model", *(f"root.model.layers.{n}.mlp.up" for n in range(3)))
    items = (
        comparison(mine=record(path, op_id=f"0_{n}", op_type="Linear"))
        for n, path in enumerate(paths)
    )
    document = shown(report(*items), tmp_path, browser)
    curve = document.partition('id="curve-svg"')[2].partition("</svg>")[0]
    assert "<title>root.model.layers.2</title>" in curve
    assert "<title>root.model</title>" not in curve
    tree = document.partition('role="tree"')[2].partition("</section>")[0]
    assert re.findall(r'data-key="([^"]*)"', tree) == ["root", "root.model"]


@needs_browser
def test_hostile_names_are_shown_and_never_run(tmp_path: Path, browser: Browser) -> None:
    item = comparison(
        0.5, mine=record(HOSTILE, op_type=HOSTILE, name=HOSTILE, path=HOSTILE), reason=HOSTILE
    )
    origin = Origin(HOSTILE, "0", HOSTILE, 0, evidence=HOSTILE, index=0)
    document = shown(report(item, unreadable(), not_finite(), origins=(origin,)), tmp_path, browser)
    assert "<title>FAIL - ait llm compare</title>" in document
    assert "<img" not in document
    assert "&lt;img src=x" in document


@needs_browser
def test_ten_thousand_rows_and_the_dark_theme_work(tmp_path: Path, browser: Browser) -> None:
    document = shown(decoder_report(layers=60, steps=10), tmp_path, browser, dark=True)
    assert 'data-theme="dark"' in document
    assert document.count("data-place=") == 50
    assert "1 to 50 of 10,800" in document


@needs_browser
def test_nothing_to_show_is_no_error(tmp_path: Path, browser: Browser) -> None:
    document = shown(report(), tmp_path, browser)
    assert 'data-ready="yes"' in document


@needs_browser
def test_both_programs_stand_side_by_side_with_what_relates_them(
    tmp_path: Path, browser: Browser
) -> None:
    parts = [
        comparison(
            mine=record("qkv", order=3, shape=(11, 192)),
            golden=record(f"root.{name}_proj", order=order, shape=(11, 64)),
            golden_view="",
            my_view=f"{64 * order}:{64 * order + 64} of axis 1",
        )
        for order, name in enumerate("qkv")
    ]
    alone = Comparison(record("root.drop", order=1), None, Verdict.SKIPPED, "mine has no dropout")
    last = Comparison(None, record("cache", order=9), Verdict.SKIPPED, "a cache has none")
    document = shown(report(*parts, alone, last), tmp_path, browser, fragment="programs=list")
    lines = document.partition('id="programs-lines"')[2].partition("</section>")[0]
    names = re.findall(r"<b[^>]*>([^<]*)</b>", lines)
    assert names == [
        *("root.q_proj", "qkv", "root.k_proj", "qkv"),
        "root.drop",
        *("root.v_proj", "qkv"),
        "cache",
    ]
    for text in ("columns 0:64 of mine", "columns 128:192 of mine", "mine has no dropout"):
        assert text in lines
    assert lines.count("no counterpart") == 2


@needs_browser
def test_of_many_tensors_only_those_in_sight_are_drawn(tmp_path: Path, browser: Browser) -> None:
    value = decoder_report(layers=60, steps=3)
    document = shown(value, tmp_path, browser, fragment="programs=list")
    lines = document.partition('id="programs-lines"')[2].partition("</section>")[0]
    assert len(value.comparisons) > 1000
    assert 10 < lines.count('role="row"') < 80


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"golden_view": "as [11, 64]", "my_view": ""}, "same"),
        ({"golden_view": "", "my_view": "as [6, 4], 0:64 of axis 1"}, "columns 0:64 of mine"),
        ({"golden_view": "0:8 of axis 0", "my_view": ""}, "rows 0:8 of golden"),
        ({"golden_view": "as [14, 1], 11 rows of axis 0", "my_view": ""}, "11 rows of golden"),
        ({"golden_view": "axes 1,0", "my_view": ""}, "golden transposed"),
        (
            {"golden_view": "axes 0,2,1,3, as [8]", "golden": record(shape=(1, 2, 2, 2))},
            "axes of golden reordered",
        ),
        (
            {"golden_view": "", "my_view": "plus h output_1 (as [2, 3], 0:2 of axis 0)"},
            "sum in mine",
        ),
        ({"golden_view": "", "my_view": "dequantised by channel"}, "mine dequantised by channel"),
        ({"golden_view": "", "my_view": "", "relation": "via cast"}, "via cast"),
        ({"golden_view": "", "mine": record(dtype=DType.BFLOAT16)}, "cast"),
    ],
)
def test_relations_in_words(changes: dict[str, Any], words: str) -> None:
    assert relation_of(comparison(**changes)) == words


def test_tensors_without_a_partner_have_no_relation() -> None:
    assert relation_of(unreadable()) != ""
    assert relation_of(Comparison(record(), None, Verdict.SKIPPED, "none")) == ""
