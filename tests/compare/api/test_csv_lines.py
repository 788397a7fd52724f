"""Lines of csv tables are those of Python's csv writer, and steer no terminal that shows them."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.compare.api.csv_lines import CsvLines

# What begins like a formula gets an apostrophe, and what cannot be printed is escaped, see below.
SHOWN = st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" \n\t")
TEXT = st.text(SHOWN).filter(lambda text: text[:1] not in tuple("=@+-\t"))
CELLS = TEXT | st.booleans() | st.integers() | st.floats(allow_infinity=False)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=8), max_size=8))
def test_lines_are_those_of_the_csv_writer(rows: list[list[Any]]) -> None:
    lines = CsvLines()
    expected = io.StringIO()
    csv.writer(expected, lineterminator="\n").writerows(rows)
    assert "".join(map(lines.line, rows)) == expected.getvalue()


def test_equal_cells_of_other_types_keep_their_own_text() -> None:
    lines = CsvLines()
    for _ in range(2):
        row = [0, 0.0, -0.0, False, 1, 1.0, True, "1", "1.0", ""]
        assert lines.line(row) == "0,0.0,-0.0,False,1,1.0,True,1,1.0,\n"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "None"),
        (math.inf, " inf"),
        (-math.inf, " -inf"),
        (np.float32("inf"), " inf"),
        (np.float64(0.5), "0.5"),
        (math.nan, "nan"),
        ("=1+1", "'=1+1"),
        ('=A("x")', '"\'=A(""x"")"'),
        ("-inf", "-inf"),
        ("-1.5%", "-1.5%"),
        ("-x", "'-x"),
        ("a\rb", r"a\rb"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\u202eb", r"a\u202eb"),
        ([1, 2], '"[1, 2]"'),
    ],
)
def test_what_a_spreadsheet_would_misread(cell: Any, text: str) -> None:
    lines = CsvLines()
    assert [lines.line([cell, 1]) for _ in range(2)] == [f"{text},1\n"] * 2


def test_texts_are_not_kept_without_end() -> None:
    lines = CsvLines()
    for number in range(30_000):
        assert lines.line([f"n{number}", number + 0.5]) == f"n{number},{number + 0.5}\n"
    assert len(lines._known) < 10_000
