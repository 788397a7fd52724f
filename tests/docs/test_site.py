"""The site builds, has every page in both languages, and needs nothing from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import Browser, needs_browser
from doc_pages import DOCS, ROOT, anchors, links

pytest.importorskip("material", reason="needs mkdocs-material of the group docs")

PAGES = sorted(path for path in DOCS.glob("*.md") if not path.name.endswith(".zh.md"))
READMES = [ROOT / name for name in ("README.md", "README.zh-CN.md")]


class Resources(HTMLParser):
    """What a browser fetches to show a page, and where a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        if tag in ("script", "img", "iframe", "source", "video", "audio") and "src" in values:
            self.fetched.append(values["src"])
        if tag == "link" and values.get("rel") != "alternate" and "href" in values:
            self.fetched.append(values["href"])
        if tag == "a" and "href" in values:
            self.linked.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. A link or an anchor that leads nowhere would have ended the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def resources(page: Path) -> Resources:
    found = Resources()
    found.feed(page.read_text("utf-8"))
    return found


@pytest.mark.parametrize("language", [".", "zh"])
def test_every_page_is_there_and_reached_from_the_start(site: Path, language: str) -> None:
    start = resources(site / language / "index.html")
    targets = {Path(link.partition("#")[0]).name for link in start.linked}
    for page in PAGES:
        name = f"{page.stem}.html"
        assert (site / language / name).is_file()
        assert name in targets


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 2 * len(PAGES)
    for page in pages:
        for resource in resources(page).fetched:
            assert not re.match(r"(?:\w+:)?//", resource), f"{page.name} fetches {resource}"
            if page.name != "404.html":
                assert (page.parent / resource).exists(), f"{page.name} fetches {resource}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import", sheet.read_text("utf-8"))


def test_no_page_needs_the_parts_of_the_theme_that_fetch(site: Path) -> None:
    """Diagrams are drawn by a script of another host."""
    for page in site.rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text("utf-8")


@needs_browser
def test_search_works_in_a_page_from_the_file_system(site: Path, tmp_path: Path) -> None:
    chromium = Browser(tmp_path)
    try:
        with chromium.open(site / "index.html", query="q=epsilon") as tab:
            told = "document.querySelector('.md-search-result__meta')?.textContent ?? ''"
            tab.wait(f"/\\d+ matching document/.test({told})")
    finally:
        chromium.close()


def test_each_page_leads_to_itself_in_the_other_language(site: Path) -> None:
    for page in PAGES:
        for language, other in ((".", "zh/"), ("zh", "../")):
            text = (site / language / f"{page.stem}.html").read_text("utf-8")
            found = re.findall(r'<a href="([^"]+)"[^>]*hreflang="(?:en|zh)"', text)
            assert f"{other}{page.stem}.html" in {link.removeprefix("./") for link in found}


def test_headings_of_pages_have_the_anchors_that_links_use(site: Path) -> None:
    """Links are checked here and on the site with one rule for the names of anchors."""
    for page in (DOCS / "compare.md", DOCS / "formats.md", DOCS / "dump.md"):
        text = (site / f"{page.stem}.html").read_text("utf-8")
        assert anchors(page.read_text("utf-8")) <= set(re.findall(r'<h\d id="([^"]+)"', text))


TEXTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = page.read_text("utf-8")
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), link


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_readme_leads_to_the_index(page: Path) -> None:
    named = {link.replace(".zh.md", ".md") for link in links(page.read_text("utf-8"))}
    assert {"docs/index.md", "docs/start.md", "docs/what-now.md"} <= named


def test_the_index_lists_every_page() -> None:
    listed = {link.partition("#")[0] for link in links((DOCS / "index.md").read_text("utf-8"))}
    assert {page.name for page in PAGES} - listed == {"index.md"}


def test_no_page_is_twice_in_the_navigation_or_in_a_table_of_the_index() -> None:
    navigation = re.findall(
        r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M
    )
    assert len(navigation) == len(set(navigation))
    rows = re.findall(
        r"^\| \[`?[\w.-]+`?\]\(([\w.-]+)\)", (DOCS / "index.md").read_text("utf-8"), re.M
    )
    assert len(rows) == len(set(rows))


def test_every_title_of_the_navigation_but_names_of_commands_is_translated() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    translated = set(re.findall(r"^ {12}\"?([^\":]+)\"?: \S", text, re.MULTILINE))
    titles = re.findall(r"^ +- ([^:]+):", text.partition("\nnav:\n")[2], re.MULTILINE)
    assert len(titles) > len(PAGES)
    assert {title for title in titles if title != title.lower()} <= translated
