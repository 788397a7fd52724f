"""What a reader sees first, on a desk, on a small laptop, on a phone and on paper.

Each of these tests leaves pictures; ``AIT_LLM_PICTURES`` names a folder to keep them in.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from browser import Browser, Tab, needs_browser
from program_reports import programs_report
from report_builder import decoder_report, problems

from ait_llm.core.comparison import Report
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.language import speaking
from ait_llm.report import html_page
from ait_llm.report.summary import Finding, Summary, Table
from ait_llm.report.summary.page import summary_page

pytestmark = needs_browser

DESK, LAPTOP, PHONE = (1440, 900), (1280, 720), (420, 900)
SIZES = [DESK, LAPTOP, PHONE]
AXE = (files("axe_core_python") / "axe.min.js").read_text("utf-8") + "\nvoid 0"  # no value
AUDIT = """axe.run(%s, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (each) => [each.id, each.nodes.map((node) => `${node.html} ${node.failureSummary}`)]))"""


def ledger_of(value: Report) -> tuple[LedgerRow, ...]:
    """A row for each output."""
    return tuple(
        LedgerRow(
            record.op, record.op_id, record.op_type, record.step, record.device, record.pid,
            record.name, record.order, index, item.introduced, item.inherited, 0.3, 0.5,
        )
        for index, item in enumerate(value.comparisons)
        if (record := item.record).role == "out"
    )  # fmt: skip


def whole_report() -> Report:
    """A report of which the page shows all that it can, with names as long as they come."""
    value = replace(decoder_report(layers=4, steps=2), problems=problems())
    origin = replace(
        value.origins[0],
        golden_op="root.model.decoder.layers.1.self_attn.scaled_dot_product_attention",
        evidence="`scale` of `SelfAttentionOperation_3_0_2` is 1.0 instead of 0.25; outtensor0 of "
        "SelfAttentionOperation_3_0_2 is the first value that fails (0.31 relative error)",
        kind="constant scale",
        introduced=0.31,
    )
    graphs = programs_report(layers=4)
    return replace(
        value,
        origins=(origin,),
        mine=replace(value.mine, kind="atb"),
        ledger=ledger_of(value),
        comparisons=(*value.comparisons, *graphs.comparisons),
        flows=graphs.flows,
    )


@pytest.fixture(scope="module", params=["en", "zh"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison, in one of the languages."""
    path = tmp_path_factory.mktemp("page") / f"compare-{request.param}.html"
    with speaking(request.param):
        html_page.write_html(whole_report(), path)
    return path


def summary_file(folder: Path) -> Path:
    """The page of a command that gives a verdict and compares nothing."""
    where = "root.model.decoder.layers.11.self_attn.scaled_dot_product_attention"
    findings = tuple(
        Finding("failed", "error", f"{where}_{n}", "relative error 0.31 exceeds 0.01", "outtensor0")
        for n in range(3)
    )
    summary = Summary(
        "opcheck", "FAIL", 1, "2 operators of /runs/2026-11-29/out, standard contract",
        {"PASS": 3, "FAIL": 3}, "outputs", findings, ("rank 1 was not captured",),
        ("out/opcheck.csv",), "ait llm repro --dump /runs/2026-11-29/out --op 0 -o case.zip",
    )  # fmt: skip
    path = folder / "opcheck.html"
    path.write_text(
        summary_page(summary, [Table("All outputs", ("verdict", "operator"), [("PASS", where)])])
    )
    return path


def name_of(page: Path, size: tuple[int, int], more: str = "") -> str:
    return f"{page.stem}-{size[0]}{more}.png"


@pytest.mark.parametrize("size", SIZES)
def test_verdict_origin_proof_kind_and_next_command_are_in_the_first_screen(
    page: Path, browser: Browser, size: tuple[int, int], pictures: Path
) -> None:
    script = """[scrollY, innerWidth, innerHeight,
      ["verdict", "sentence", "evidence", "kind", "next"].map((id) => {
        const box = by(id).getBoundingClientRect();
        return [by(id).textContent.trim() !== "", box.top >= 0, box.bottom <= innerHeight];
      })]"""
    with browser.open(page, size=size) as tab:
        scrolled, *inside, seen = tab.run(script)
        tab.picture(pictures / name_of(page, size))
    assert scrolled == 0
    assert tuple(inside) == size
    assert seen == [[True, True, True]] * 5
    assert (pictures / name_of(page, size)).read_bytes()[16:24] == b"".join(
        side.to_bytes(4, "big") for side in size
    )


# Elements whose text does not fit into them, or that reach beyond the window, but for those in a
# box that can be scrolled, and those that say the whole in their title.
CUT = """(() => {
  const found = [];
  const scrolls = (element) => element.closest(
    ".scroll, .chart, .tree, .details, .graph, .lines, .steps") !== null;
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!box.width || style.visibility === "hidden") continue;
    if (element.closest("svg, .skip, option")) continue;
    if (box.right > innerWidth + 1 && !scrolls(element)) found.push(["beyond", element.outerHTML]);
    const isWider = element.scrollWidth > element.clientWidth + 1 && !element.title;
    if (isWider && style.overflowX === "hidden") found.push(["cut", element.outerHTML]);
  }
  for (const text of document.querySelectorAll(".chart svg text")) {
    const [own, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    if (own.left < all.left - 1 || own.right > all.right + 1 || own.bottom > all.bottom + 1) {
      found.push(["label", text.textContent]);
    }
  }
  return found;
})()"""

# Words of the head and of what is above the cards that lie on each other.
OVERLAPS = """(() => {
  const found = [];
  const parts = [...document.querySelectorAll("#verdict, #sentence, #evidence, #kind, .next, "
    + ".about, .tools, .sides div, .tile, .bar > *, h2")]
    .filter((element) => element.getBoundingClientRect().width);
  parts.forEach((one, place) => {
    for (const two of parts.slice(place + 1)) {
      const [a, b] = [one.getBoundingClientRect(), two.getBoundingClientRect()];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 1) found.push([one.outerHTML, two.outerHTML]);
    }
  });
  return found;
})()"""


def with_graphs(tab: Tab) -> None:
    tab.run("by('programs').scrollIntoView()")
    tab.wait("graph.laid")
    tab.run("scrollTo(0, 0)")


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_lies_on_other_things_or_scrolls_sideways(
    page: Path, browser: Browser, size: tuple[int, int], pictures: Path
) -> None:
    with browser.open(page, size=size) as tab:
        with_graphs(tab)
        assert tab.run("document.documentElement.scrollWidth") <= size[0]
        assert tab.run(CUT) == []
        assert tab.run(OVERLAPS) == []
        tab.picture(pictures / name_of(page, size, "-whole"), whole=True)
        tab.run("showSides('list')")
        assert tab.run(CUT) == []
        tab.run("by('programs').scrollIntoView()")
        tab.picture(pictures / name_of(page, size, "-list"))


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_both_programs_are_in_the_window_of_the_graphs(
    page: Path, browser: Browser, size: tuple[int, int], pictures: Path
) -> None:
    script = """(() => {
      const window = by("graph").getBoundingClientRect();
      return [GOLDEN, MINE].map((side) => graph.laid.visible.filter((node) => node.side === side)
        .some((node) => {
          const box = graph.svg.querySelector(`[data-key="${node.key}"]`)?.getBoundingClientRect();
          return box && box.right > window.left + 40 && box.left < window.right - 40
            && box.top >= window.top && box.bottom <= window.bottom;
        }));
    })()"""
    with browser.open(page, size=size) as tab:
        tab.run("by('programs').scrollIntoView()")
        tab.wait("graph.laid")
        assert tab.run(script) == [True, True]
        tab.picture(pictures / name_of(page, size, "-graphs"))


@pytest.mark.parametrize("size", [DESK, LAPTOP])
def test_the_number_of_the_verdict_is_in_sight_in_the_table(
    page: Path, browser: Browser, size: tuple[int, int]
) -> None:
    script = """(() => {
      const head = document.querySelector("[data-column='relative_euclidean_distance']");
      return head.getBoundingClientRect().right <= innerWidth;
    })()"""
    with browser.open(page, size=size) as tab:
        assert tab.run(script) is True


def test_the_tree_is_open_where_the_error_starts(page: Path, browser: Browser) -> None:
    script = """[...document.querySelectorAll("#tree .node.chosen")].map((node) =>
      [node.parentElement.dataset.key, node.querySelector(".origin") !== null])"""
    with browser.open(page, size=DESK) as tab:
        assert tab.run(script) == [["3_0_2", True]]


def test_the_bar_does_not_hide_what_a_link_leads_to(page: Path, browser: Browser) -> None:
    script = """(() => {
      by("comparisons").scrollIntoView();
      return by("table-title").getBoundingClientRect().top
        - document.querySelector(".bar").getBoundingClientRect().bottom;
    })()"""
    for size in SIZES:
        with browser.open(page, size=size) as tab:
            assert tab.run(script) > 0


@pytest.mark.parametrize(
    ("size", "dark"), [(DESK, False), (LAPTOP, True), (PHONE, False), (PHONE, True)]
)
def test_axe_has_nothing_to_find(
    page: Path, browser: Browser, size: tuple[int, int], dark: bool
) -> None:
    with browser.open(page, size=size, dark=dark) as tab:
        with_graphs(tab)
        assert tab.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
        tab.run(AXE)
        assert tab.run(AUDIT % "document") == []
        tab.run("showSides('list')")
        assert tab.run(AUDIT % "'#programs'") == []


def test_on_paper_everything_is_light_whole_and_without_buttons(
    page: Path, browser: Browser, pictures: Path
) -> None:
    # A4 less its margins, as the browser lays it out.
    with browser.open(page, size=(718, 1000), dark=True) as tab:
        tab.run("dispatchEvent(new Event('beforeprint'))")
        tab.paint(paper=True)
        seen = tab.run("""(() => {
          const shows = (element) => element.getClientRects().length > 0;
          const named = (names) => [...document.querySelectorAll(names)].filter(shows);
          const tall = (id) => by(id).scrollHeight <= by(id).clientHeight + 1;
          return [document.documentElement.dataset.theme, document.documentElement.scrollWidth,
            named("nav, input, select, .tools, .pager, .card-head button").map((e) => e.id),
            named("#sentence, #evidence, #kind, #next, #curve-svg, #heat-svg, #graph-svg").length,
            ["tree", "details", "graph"].map(tall),
            named(".tensor").length];
        })()""")
        tab.picture(pictures / f"{page.stem}-paper.png", whole=True)
        printed = tab.printed()
        tab.paint(dark=True)
        tab.run("dispatchEvent(new Event('afterprint'))")
        after = tab.run("document.documentElement.dataset.theme")
    (pictures / f"{page.stem}.pdf").write_bytes(printed)
    theme, width, buttons, texts, whole, tensors = seen
    assert (theme, after) == ("light", "dark")
    assert width <= 718
    assert (buttons, texts, whole, tensors) == ([], 7, [True, True, True], 1)
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10


@pytest.mark.parametrize("size", SIZES)
def test_pages_of_other_verdicts_begin_with_theirs_and_fit(
    tmp_path: Path, browser: Browser, size: tuple[int, int], pictures: Path
) -> None:
    path = summary_file(tmp_path)
    script = """["verdict", "sentence", "evidence", "next"].map((id) => {
      const box = by(id).getBoundingClientRect();
      return by(id).textContent.trim() !== "" && box.bottom <= innerHeight;
    })"""
    with browser.open(path, size=size) as tab:
        assert tab.run(script) == [True] * 4
        assert tab.run("document.documentElement.scrollWidth") <= size[0]
        assert tab.run(CUT) == []
        assert tab.run(OVERLAPS) == []
        tab.picture(pictures / name_of(path, size), whole=True)
        tab.run(AXE)
        for dark in (False, True):
            tab.run(f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}'")
            assert tab.run(AUDIT % "document") == []
