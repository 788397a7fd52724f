"""What is said of two prompts, held to how one was made of the other."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ait_llm.program.prompt_difference import told

TOKENS = st.lists(st.integers(1, 4), min_size=3, max_size=12)


def without(tokens: tuple[int, ...], text: str) -> tuple[int, ...]:
    """The prompt that is left of golden's by what was said."""
    found = re.search(r"mine lacks (the first|the last)? ?(?:a token|token|(\d+) tokens)", text)
    assert found is not None, text
    count = int(found[2] or 1)
    if found[1] == "the last":
        return tokens[:-count]
    start = 0 if found[1] == "the first" else int(text.rpartition("at place ")[2])
    return tokens[:start] + tokens[start + count :]


@given(TOKENS, st.data())
def test_what_mine_is_said_to_lack_makes_mine_of_golden(
    tokens: list[int], data: st.DataObject
) -> None:
    golden = tuple(tokens)
    start = data.draw(st.integers(0, len(golden) - 1))
    count = data.draw(st.integers(1, len(golden) - start))
    mine = golden[:start] + golden[start + count :]
    if len(mine) > 1:
        assert without(golden, told(golden, mine)) == mine


@given(TOKENS, TOKENS)
def test_a_place_that_is_named_is_the_first_that_differs(one: list[int], other: list[int]) -> None:
    golden, mine = tuple(one), tuple(other)
    if len(golden) == len(mine):
        return
    text = told(golden, mine)
    found = re.search(r"at place (\d+) it has (\d+) instead of (\d+)$", text)
    if found is not None:
        place = int(found[1])
        assert golden[:place] == mine[:place]
        assert (mine[place], golden[place]) == (int(found[2]), int(found[3]))


def test_prompts_of_hundreds_of_thousands_of_tokens_are_told_apart() -> None:
    golden = tuple(place % 3 for place in range(400_000))
    mine = (*golden[:200_000], 7, *golden[200_000:])
    assert told(golden, mine).endswith("mine adds a token (7) at place 200000")
