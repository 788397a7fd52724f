"""Numbers as people write them."""

from __future__ import annotations

import pytest

from ait_llm.cli.numbers import counted, human_bytes, ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([4], "4"), ([0, 1, 2, 5], "0-2, 5"), ([0, 2, 4], "0, 2, 4"), ([7, 8], "7-8")],
)
def test_runs_of_numbers_become_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 2**30, "5.0 GiB"),
        (3 * 2**50, "3072.0 TiB"),
    ],
)
def test_bytes_get_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_nouns_follow_their_number(count: int, text: str) -> None:
    assert counted(count, "file") == text
