"""docs/convert.md has every format; its commands are run with those of other pages."""

from __future__ import annotations

import re

from doc_pages import DOCS

from ait_llm.formats.save import SAVE_FORMATS, SAVES_SEVERAL


def test_the_table_has_every_format() -> None:
    page = (DOCS / "convert.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (one|several) \|$", page, re.MULTILINE)
    several = {name: "several" if name in SAVES_SEVERAL else "one" for name in SAVE_FORMATS}
    assert dict(rows) == several
