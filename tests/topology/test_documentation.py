from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_examples_print_what_the_page_says(
    demo: Path, monkeypatch: pytest.MonkeyPatch, code: str, output: str
) -> None:
    monkeypatch.chdir(demo.parent)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), {})
    assert printed.getvalue() == output
