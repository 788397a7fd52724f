"""Alignment of sequences."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.match.align import align_sequences

_ROWS = st.lists(st.sampled_from("abc"), max_size=6)


def _align(first: str | list[str], second: str | list[str]) -> tuple[int, list[tuple[int, int]]]:
    worth, pairs = align_sequences(len(first), len(second), lambda i, j: int(first[i] == second[j]))
    return worth, [(pair.first, pair.second) for pair in pairs if pair.certain]


def _best_alignments(first: list[str], second: list[str]) -> list[set[tuple[int, int]]]:
    """All best alignments, by trying every choice of places."""
    for size in range(min(len(first), len(second)), -1, -1):
        found = [
            set(zip(left, right, strict=True))
            for left in combinations(range(len(first)), size)
            for right in combinations(range(len(second)), size)
            if all(first[i] == second[j] for i, j in zip(left, right, strict=True))
        ]
        if found:
            return found
    return [set()]


@given(_ROWS, _ROWS)
def test_certain_pairs_are_those_of_every_best_alignment(
    first: list[str], second: list[str]
) -> None:
    every = _best_alignments(first, second)
    worth, pairs = _align(first, second)
    assert worth == len(every[0])
    assert set(pairs) == set.intersection(*every)


def test_inserted_items_of_another_kind_leave_all_pairs_certain() -> None:
    assert _align("nlal", "nqlaql") == (4, [(0, 0), (1, 2), (2, 3), (3, 5)])


def test_an_inserted_twin_makes_no_certain_pair() -> None:
    worth, pairs = align_sequences(1, 2, lambda i, j: 1)
    assert worth == 1
    assert not pairs[0].certain


def test_rivals_are_the_other_places_that_fit() -> None:
    _, pairs = align_sequences(2, 1, lambda i, j: 1)
    assert {pairs[0].first, *pairs[0].rivals} == {0, 1}


def test_sequences_too_long_for_a_table_are_paired_from_both_ends() -> None:
    first = ["a"] * 2100
    second = [*first[:1000], "b", *first[1000:]]
    worth, pairs = align_sequences(len(first), len(second), lambda i, j: int(first[i] == second[j]))
    assert worth == 2100
    assert (pairs[0].first, pairs[-1].second) == (0, 2100)
    assert not any(pair.certain for pair in pairs)
