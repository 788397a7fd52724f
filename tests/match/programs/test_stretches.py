"""Maps of rows as a few stretches, against index arithmetic by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.match.programs.columns import Columns
from ait_llm.match.programs.stretches import Stretch, stretches
from ait_llm.match.programs.weight_rows import Indices


def _rows(columns: Columns) -> Indices:
    """Which rows columns are, in the order in which the other side has them."""
    rows = np.arange(columns.total)
    if columns.parts:
        end = columns.start + columns.width
        rows = rows.reshape(columns.parts)[:, columns.start : end].reshape(-1)
    else:
        rows = rows[columns.start : columns.start + columns.width]
    return rows.reshape(columns.turn).swapaxes(1, 2).reshape(-1) if columns.turn else rows


def _map(found: tuple[Stretch, ...], left: list[int], right: list[int]) -> Indices:
    """The map that stretches describe."""
    starts = np.cumsum([0, *left]), np.cumsum([0, *right])
    partners = np.full(sum(right), -1)
    for each in found:
        theirs = starts[1][each.right] + _rows(each.right_columns)
        partners[theirs] = starts[0][each.left] + _rows(each.left_columns)
    return partners


@st.composite
def _layouts(draw: st.DrawFn) -> tuple[list[int], list[int], Indices]:
    """Sizes of the weights of both sides and the map between them."""
    groups, queries = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    dim = 2 * draw(st.integers(4, 20))
    every = np.arange(groups * (queries + 2) * dim)
    if draw(st.booleans()):  # query, key and value of each group together
        heads = every.reshape(groups, queries + 2, dim)
        parts = [heads[:, :queries], heads[:, queries], heads[:, queries + 1]]
    else:
        parts = np.split(every, [groups * queries * dim, groups * (queries + 1) * dim])
    parts = [part.reshape(-1) for part in parts]
    turn = draw(st.sampled_from((None, (2, dim // 2), (dim // 2, 2))))
    if turn is not None:
        parts[:2] = [part.reshape(-1, *turn).swapaxes(1, 2).reshape(-1) for part in parts[:2]]
    order = draw(st.permutations(range(len(parts))))
    parts = [parts[place] for place in order]
    partners = np.concatenate(parts)
    sizes = [len(part) for part in parts] if draw(st.booleans()) else [len(every)]
    return [len(every)], sizes, partners


@given(_layouts(), st.booleans())
def test_what_is_described_is_the_map(
    layout: tuple[list[int], list[int], Indices], turned: bool
) -> None:
    left, right, partners = layout
    if turned:
        left, right, partners = right, left, np.argsort(partners)
    found = stretches(partners, left, right)
    assert found is not None
    assert len(found) <= 12
    np.testing.assert_array_equal(_map(found, left, right), partners)


@given(_layouts(), st.data())
def test_rows_that_a_fault_changed_belong_to_what_lies_around_them(
    layout: tuple[list[int], list[int], Indices], data: st.DataObject
) -> None:
    left, right, partners = layout
    changed = data.draw(st.integers(0, len(partners) - 1))
    damaged = partners.copy()
    damaged[changed] = -1
    found = stretches(damaged, left, right)
    assert found is not None
    np.testing.assert_array_equal(_map(found, left, right), partners)


def test_two_rows_that_changed_places_are_noise() -> None:
    partners = np.arange(64)
    partners[[3, 40]] = partners[[40, 3]]
    found = stretches(partners, [64], [64])
    whole = Columns(0, 64, 64)
    assert found == (Stretch(0, 0, whole, whole),)


@given(st.integers(0, 1000))
def test_an_order_that_nobody_chose_is_none(seed: int) -> None:
    rows = np.random.default_rng(seed).permutation(256)
    assert stretches(rows, [256], [256]) is None


def test_half_of_a_map_tells_nothing() -> None:
    partners = np.where(np.arange(64) < 32, np.arange(64), -1)
    assert stretches(partners, [64], [64]) is None
    assert stretches(np.arange(64), [64, 8], [64]) is None
