from __future__ import annotations

import contextlib
import io
import lzma
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"
GRAPHS = PAGE.parents[1] / "tests" / "data" / "torchair"
EXAMPLES = re.findall(
    r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL
)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_examples_print_what_the_page_says(
    demo: Path, monkeypatch: pytest.MonkeyPatch, code: str, output: str
) -> None:
    monkeypatch.chdir(demo.parent)
    graph = lzma.decompress(next(GRAPHS.glob("dynamo_original_graph_1_*.txt.xz")).read_bytes())
    Path("dynamo_original_graph_1.txt").write_bytes(graph)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), {})
    assert printed.getvalue() == output
