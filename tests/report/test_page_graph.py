"""Both programs as graphs: what answers what, who reads what, and how a reader moves in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Tab, needs_browser
from program_reports import programs_report

from ait_llm.core.comparison import Report
from ait_llm.report import html_page
from ait_llm.report.page_data import page_data

pytestmark = needs_browser

BOXES = """Object.fromEntries([...document.querySelectorAll("#graph .node-box")].map((box) => {
  const place = box.getAttribute("transform").match(/-?[0-9.]+/g).map(Number);
  const side = graph.laid.visible.find((node) => node.key === box.dataset.key).side;
  const words = [...box.querySelectorAll("text:not(.verdict):not(.star)")];
  const name = words.map((text) => text.textContent).filter(Boolean).join(" ");
  return [`${side ? "mine" : "golden"} ${name}`, [...place, box.classList[2]]];
}))"""
SAID = "document.getElementById('graph-text').textContent"


@contextmanager
def shown(value: Report, folder: Path, browser: Browser, **options: Any) -> Iterator[Tab]:
    """The page with its graphs in sight."""
    (page,) = html_page.write_html(value, folder / "report.html")
    with browser.open(page, **options) as tab:
        tab.run("by('programs').scrollIntoView()")
        tab.wait("graph.laid")
        yield tab
        assert tab.console == []


def test_counterparts_stand_in_one_row_below_what_they_read(
    tmp_path: Path, browser: Browser
) -> None:
    with shown(programs_report(), tmp_path, browser) as tab:
        boxes = tab.run(BOXES)
    at = {name: box[:2] for name, box in boxes.items()}
    golden = {name: at[f"golden {name} root.layers.1.self_attn"] for name in
              ("q_proj", "k_proj", "v_proj", "o_proj")}  # fmt: skip
    joined, attention, output = (
        at[f"mine {name}"]
        for name in ("LinearOperation 1_1", "SelfAttentionOperation 1_2", "LinearOperation 1_3")
    )
    # q, k and v beside each other, in the row of the one operation that computes all three
    assert golden["q_proj"][1] == golden["k_proj"][1] == golden["v_proj"][1] == joined[1]
    assert golden["q_proj"][0] < golden["k_proj"][0] < golden["v_proj"][0] < joined[0]
    assert golden["o_proj"][1] == output[1]
    assert joined[1] < attention[1] < output[1]
    assert at["golden input_layernorm root.layers.1"][1] < joined[1]


def test_boxes_have_the_colour_of_their_verdict_and_do_not_overlap(
    tmp_path: Path, browser: Browser
) -> None:
    with shown(programs_report(), tmp_path, browser) as tab:
        boxes = tab.run(BOXES)
        size = tab.run("[BOX.width, BOX.height]")
    colours = {name: box[2] for name, box in boxes.items()}
    assert colours["mine LinearOperation 1_1"] == "is-pass"
    assert colours["mine SelfAttentionOperation 1_2"] == "is-fail"
    assert colours["golden q_proj root.layers.0.self_attn"] == "is-pass"
    places = [box[:2] for box in boxes.values()]
    overlaps = [
        (one, two)
        for number, one in enumerate(places)
        for two in places[:number]
        if abs(one[0] - two[0]) < size[0] and abs(one[1] - two[1]) < size[1]
    ]
    assert overlaps == []


def test_lines_are_what_was_found_and_guesses_are_dashed(tmp_path: Path, browser: Browser) -> None:
    script = """[...document.querySelectorAll("#graph .flow")].map((line) =>
      [line.textContent, line.classList.contains("guess")])"""
    with shown(programs_report(layers=2), tmp_path, browser) as tab:
        lines = dict(tab.run(script))
    norm = "root.layers.0.input_layernorm"
    assert lines[f"root.layers.0.self_attn.q_proj reads what {norm} computed"] is False
    found = "root.layers.0.self_attn.q_proj to root.layers.0.self_attn.o_proj"
    assert lines[f"{found}, through code that was not captured"] is True
    assert lines["LinearOperation_0_3 reads what SelfAttentionOperation_0_2 computed"] is False
    assert not any("root.layers.0.self_attn reads" in line for line in lines)


def test_each_pair_tells_its_relation_and_a_click_shows_the_row(
    tmp_path: Path, browser: Browser
) -> None:
    script = """(() => {
      const of = (text) => [...document.querySelectorAll("#graph .relation")]
        .find((each) => each.textContent.includes(text));
      const all = [...document.querySelectorAll("#graph .relation > text")];
      const place = of("root.layers.0.self_attn.k_proj");
      place.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      return [all.map((each) => each.textContent), state.row.golden,
        document.querySelector("#details b").textContent,
        document.querySelector("#table tr.chosen").children[2].textContent];
    })()"""
    with shown(programs_report(), tmp_path, browser) as tab:
        relations, golden, details, row = tab.run(script)
    assert "\u2713 columns 64:96 of mine" in relations
    assert "\u2717 same" in relations
    assert golden == "root.layers.0.self_attn.k_proj outtensor0"
    assert details == row == "LinearOperation_0_1"


def test_keys_walk_through_both_programs_and_show_what_they_stop_at(
    tmp_path: Path, browser: Browser
) -> None:
    with shown(programs_report(), tmp_path, browser) as tab:
        tab.run("graph.svg.focus()")
        tab.press("ArrowDown")  # begins at what is chosen: the origin
        said = [tab.run(SAID)]
        for key in ("ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight", "Enter"):
            tab.press(key)
            said.append(tab.run(SAID))
        chosen = tab.run("[state.row.golden, document.activeElement.id, location.hash]")
    assert said[0].startswith("mine: SelfAttentionOperation_1_2, FAIL, origin of the error")
    assert said[1].startswith("mine: LinearOperation_1_1, PASS, answers root.layers.1.self_attn")
    names = [text.split(",")[0] for text in said[2:]]
    assert names == [
        f"golden: root.layers.1.self_attn.{each}_proj" for each in ("v", "k", "q", "k", "k")
    ]
    assert chosen[0] == "root.layers.1.self_attn.k_proj outtensor0"
    assert chosen[1] == "graph-svg"
    assert "op=LinearOperation_1_1" in chosen[2]


def test_a_link_has_the_groups_that_somebody_closed_and_opened(
    tmp_path: Path, browser: Browser
) -> None:
    names = "graph.laid.visible.map((node) => node.op)"
    with shown(programs_report(), tmp_path, browser) as tab:
        before = tab.run(names)
        tab.run("graph.svg.focus()")
        tab.press("ArrowDown")
        tab.press("Backspace")
        closed, address = tab.run(names), tab.run("location.hash.slice(1)")
    with shown(programs_report(), tmp_path, browser, fragment=address) as tab:
        again = tab.run(names)
        tab.run("location.hash = ''")
        tab.wait(f"graph.laid.visible.length === {len(before)}")
        without = tab.run(names)
    assert closed == again != before
    assert without == before


def test_groups_that_a_link_names_and_nobody_has_are_no_error(
    tmp_path: Path, browser: Browser
) -> None:
    many = "&".join(f"open=0+{each}%3Cb%3E" for each in range(500))
    with shown(programs_report(), tmp_path, browser, fragment=many) as tab:
        assert tab.run("graph.byHand.size") == 60
        assert tab.run("graph.laid.visible.length") > 0


def test_groups_close_and_open_on_both_sides(tmp_path: Path, browser: Browser) -> None:
    names = "graph.laid.visible.map((node) => node.op)"
    with shown(programs_report(), tmp_path, browser) as tab:
        tab.run("graph.svg.focus()")
        tab.press("ArrowDown")
        tab.press("Backspace")
        closed = tab.run(names)
        said = tab.run(SAID)
        tab.press("Enter")
        opened = tab.run(names)
    assert "root.layers.1" in closed
    assert "LayerOperation_1" in closed
    assert "SelfAttentionOperation_1_2" not in closed
    assert said.startswith("mine: LayerOperation_1, FAIL, origin of the error")
    assert said.endswith("4 operators, 2 failing")
    assert "SelfAttentionOperation_1_2" in opened
    assert "root.layers.1.self_attn.q_proj" in opened


def test_it_is_zoomed_by_keys_buttons_and_wheel(tmp_path: Path, browser: Browser) -> None:
    wide = "document.getElementById('graph-svg').clientWidth"
    with shown(programs_report(), tmp_path, browser, size=(1440, 900)) as tab:
        first = tab.run(wide)
        tab.run("graph.svg.focus()")
        tab.press("+")
        by_key = tab.run(wide)
        tab.run("by('graph-out').click()")
        back = tab.run(wide)
        place = tab.run("(({x, y}) => [x + 300, y + 200])(by('graph').getBoundingClientRect())")
        tab.mouse("mouseWheel", *place, deltaX=0, deltaY=-100, modifiers=2)
        tab.wait(f"{wide} > {back}")
        tab.run("by('graph-fit').click()")
        fitted = tab.run("[by('graph').scrollWidth, by('graph').clientWidth]")
    assert by_key == pytest.approx(first * 1.25, abs=2)
    assert back == pytest.approx(first, abs=2)
    assert fitted[0] <= fitted[1] + 1


def test_the_mouse_drags_both_programs(tmp_path: Path, browser: Browser) -> None:
    with shown(programs_report(layers=6, faulty=3), tmp_path, browser) as tab:
        x, y = tab.run("(({x, y}) => [x + 12, y + 300])(by('graph').getBoundingClientRect())")
        before = tab.run("by('graph').scrollTop")
        tab.mouse("mousePressed", x, y)
        tab.mouse("mouseMoved", x, y + 90)
        tab.mouse("mouseReleased", x, y + 90)
        tab.mouse("mouseMoved", x, y + 190)
        tab.wait(f"by('graph').scrollTop === {before} - 90")


def test_what_does_not_fit_the_search_is_faint(tmp_path: Path, browser: Browser) -> None:
    script = """[...document.querySelectorAll("#graph .node-box:not(.faint)")]
      .map((box) => box.querySelector("title").textContent.split(",")[0])"""
    with shown(programs_report(), tmp_path, browser) as tab:
        tab.run("""(() => { by("programs-search").value = "k_proj";
          by("programs-search").dispatchEvent(new Event("input")); })()""")
        tab.wait("sides.search === 'k_proj'")
        clear = tab.run(script)
    assert sorted(clear) == sorted(
        [f"golden: root.layers.{n}.self_attn.k_proj" for n in range(3)]
        + [f"mine: LinearOperation_{n}_1" for n in range(3)]
    )


def test_only_the_chosen_token_and_layer_are_shown(tmp_path: Path, browser: Browser) -> None:
    script = """[[...new Set(graph.laid.visible.map((node) => node.pass))].length,
      by("programs-count").textContent, graph.laid.visible.map((node) => node.op)]"""
    with shown(programs_report(), tmp_path, browser) as tab:
        passes, counted, _ = tab.run(script)
        tab.run("change({ step: 1, layer: LAYERS[2] })")
        others = tab.run(script)
    assert (passes, counted.split(":")[0]) == (2, "token 0")
    assert others[:2] == [2, "token 1: 9 operators"]
    assert "root.layers.2.self_attn.q_proj" in others[2]
    assert not any("layers.1" in name or "_1_" in name for name in others[2])


def test_without_edges_programs_stand_in_their_order(tmp_path: Path, browser: Browser) -> None:
    with shown(programs_report(flows=False), tmp_path, browser) as tab:
        boxes = tab.run(BOXES)
    heights = [boxes[f"mine {name}"][1] for name in
               ("RmsNormOperation 0_0", "LinearOperation 0_1", "SelfAttentionOperation 0_2",
                "LinearOperation 0_3", "RmsNormOperation 1_0")]  # fmt: skip
    assert heights == sorted(heights)
    assert len(set(heights)) == len(heights)


def test_of_many_operations_only_those_in_sight_are_drawn(tmp_path: Path, browser: Browser) -> None:
    with shown(programs_report(layers=300, steps=1), tmp_path, browser) as tab:
        tab.run(
            "for (const node of shownNodes()) graph.byHand.set(`${node.side} ${node.op}`, true)"
        )
        tab.run("layGraph()")
        laid, drawn = tab.run("[graph.laid.visible.length, graph.svg.childElementCount]")
    assert laid > 2500
    assert drawn < 400


def test_edges_of_equal_passes_are_stored_once() -> None:
    one, many = (len(str(page_data(programs_report(steps=n))["texts"])) for n in (1, 20))
    assert many < one * 1.1
