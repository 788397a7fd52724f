"""Pages whose console blocks, files and examples are run as they stand."""

from __future__ import annotations

import pytest
from doc_pages import DOCS, Shell, check_page, write_files

# Other pages have tests of their own, which know more about what they show; start and doctor
# are run where the wheel has just been installed, in tests/packaging.
PAGES = (
    "check",
    "cli",
    "compare",
    "convert",
    "dump",
    "errcheck",
    "extending",
    "golden",
    "merge-result",
    "replay",
    "repro",
    "show",
    "what-now",
)


# The files of another page that a page begins with.
FILES_OF = {"check": "golden"}


@pytest.mark.native
@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page: str, shell: Shell) -> None:
    if page in FILES_OF:
        write_files((DOCS / f"{FILES_OF[page]}.md").read_text("utf-8"), shell.folder)
    check_page((DOCS / f"{page}.md").read_text("utf-8"), shell)
