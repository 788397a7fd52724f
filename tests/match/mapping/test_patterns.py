"""Patterns of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.match.mapping.patterns import (
    Captured,
    as_text,
    capture,
    escaped,
    filled,
    hidden,
    read_pattern,
    skeleton,
    skeleton_of,
)


def _read(text: str) -> list[str]:
    return [as_text(each) for each in read_pattern(hidden(text))]


@pytest.mark.parametrize(
    ("pattern", "name", "numbers", "stars"),
    [
        ("h.{i}.attn", "h.12.attn", {"i": 12}, ()),
        ("h.{i+2}.attn", "h.12.attn", {"i": 10}, ()),
        ("h.{i}.{i+1}", "h.3.4", {"i": 3}, ()),
        ("h.{i}.{j}", "h.3.4", {"i": 3, "j": 4}, ()),
        ("*.attn", "h.attn", {}, ("h",)),
        ("**.attn", "h.0.attn", {}, ("h.0",)),
        ("**", "h.0.attn", {}, ("h.0.attn",)),
        (r"a\{i\}b", "a{i}b", {}, ()),
    ],
)
def test_a_name_that_fits(
    pattern: str, name: str, numbers: dict[str, int], stars: tuple[str, ...]
) -> None:
    (one,) = read_pattern(hidden(pattern))
    assert capture(one, name) == Captured(tuple(sorted(numbers.items())), stars)
    assert filled(one, Captured(tuple(numbers.items()), stars)) == name


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("h.{i}.attn", "h.x.attn"),
        ("h.{i}.{i+1}", "h.3.5"),
        ("h.{i+2}", "h.1"),
        ("*.attn", "h.0.attn"),
        ("h", "hh"),
        ("h.0", "hx0"),
    ],
)
def test_a_name_that_does_not_fit(pattern: str, name: str) -> None:
    (one,) = read_pattern(hidden(pattern))
    assert capture(one, name) is None


def test_alternatives_correspond_in_order() -> None:
    assert _read("a.{q,k, v}_proj.{i}.{x,y,z}") == [
        "a.q_proj.{i}.x",
        "a.k_proj.{i}.y",
        "a.v_proj.{i}.z",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a{b", "without its partner"),
        ("a}b", "without its partner"),
        ("a{1}", r"neither a number such as \{i\}"),
        ("a{}", "neither a number"),
        ("{a,b}.{c,d,e}", "different numbers"),
        ("a.***", "neither"),
        ("a\\", "ends with a backslash"),
    ],
)
def test_what_is_no_pattern(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_pattern(hidden(text))


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1))
def test_any_name_can_be_written(name: str) -> None:
    (one,) = read_pattern(hidden(escaped(name)))
    assert capture(one, name) == Captured()
    assert filled(one, Captured()) == name
    assert read_pattern(hidden(as_text(one))) == (one,)


names = st.lists(st.sampled_from(["a", "bc", "0", "12", ".", "_", "#"]), min_size=1).map("".join)


@given(names, st.data())
def test_a_pattern_is_found_by_its_skeleton(name: str, data: st.DataObject) -> None:
    pieces = data.draw(st.permutations([name, "{i}", "1{j}"]))
    (one,) = read_pattern("".join(pieces))
    found = filled(one, Captured((("i", 7), ("j", 30))))
    if capture(one, found) is not None:
        assert skeleton(found) == skeleton_of(one)
