"""Pages whose console blocks, files and examples are run as they stand."""

from __future__ import annotations

import pytest
from doc_pages import DOCS, Shell, check_page

# Other pages have tests of their own, which know more about what they show; start and doctor
# are run where the wheel has just been installed, in tests/packaging.
PAGES = (
    "ci",
    "cli",
    "compare",
    "convert",
    "dump",
    "errcheck",
    "export",
    "extending",
    "golden",
    "merge-result",
    "replay",
    "repro",
    "show",
    "what-now",
)


@pytest.mark.native
@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str, shell: Shell) -> None:
    check_page((DOCS / f"{page}.md").read_text("utf-8"), shell)
