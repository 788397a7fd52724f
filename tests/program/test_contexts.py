"""What rows of paged attention read of earlier passes, as schedules tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ait_llm.core.ids import OpId
from ait_llm.dumps.model import Operation
from ait_llm.program.contexts import with_contexts
from ait_llm.program.schedule import engine_schedules

PROMPT = [5, 6, 7, 8, 9, 10]
Read = tuple[int, int, int]


def request(name: str, tokens: Sequence[int]) -> dict[str, Any]:
    line = {"kind": "request", "request": name, "number": 0, "prompt": len(tokens), "first": 0}
    return {**line, "tokens": list(tokens)}


def step(number: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "schedule", "step": number, "rows": list(rows)}


def row(name: str, first: int, tokens: Sequence[int], **more: int) -> dict[str, Any]:
    return {"request": name, "first": first, "count": len(tokens), "tokens": list(tokens), **more}


def attention(number: int, name: str = "root.attn") -> Operation:
    return Operation(name, OpId((0,)), "Attention", step=number)


def reads(
    lines: Sequence[dict[str, Any]], number: int, captured: Sequence[int] = range(9)
) -> list[tuple[int, int, list[Read]]]:
    """First row, rows, and step, row and number of what precedes, of each part of a pass."""
    operations = with_contexts([attention(each) for each in captured], engine_schedules(lines))
    found = next(each for each in operations if each.step == number)
    return [
        (one.row, one.count, [(each.operation.step, each.row, each.count) for each in one.before])
        for one in found.attended
    ]


CHUNKS = [
    request("a", PROMPT),
    step(0, row("a", 0, PROMPT[:4])),
    request("b", [1, 2]),
    step(1, row("b", 0, [1, 2]), row("a", 4, PROMPT[4:])),
    step(2, row("b", 2, [3]), row("a", 6, [11])),
]


def test_the_first_tokens_of_a_request_read_nothing_but_themselves() -> None:
    assert reads(CHUNKS, 0) == [(0, 4, [])]


def test_a_later_part_of_a_prompt_reads_the_parts_before_it() -> None:
    assert reads(CHUNKS, 1) == [(0, 2, []), (2, 2, [(0, 0, 4)])]


def test_a_chosen_token_reads_all_of_its_request() -> None:
    assert reads(CHUNKS, 2) == [(0, 1, [(1, 0, 2)]), (1, 1, [(0, 0, 4), (1, 2, 2)])]


def test_rows_whose_past_was_not_captured_are_not_known() -> None:
    assert reads(CHUNKS, 2, captured=(1, 2)) == [(0, 1, [(1, 0, 2)])]


def test_a_prefix_from_the_cache_is_read_where_another_request_computed_it() -> None:
    lines = [
        request("a", PROMPT),
        step(0, row("a", 0, PROMPT)),
        request("b", [*PROMPT[:4], 1]),
        step(1, row("b", 4, [1], cached=4)),
    ]
    assert reads(lines, 1) == [(0, 1, [(0, 0, 4)])]


def test_a_prefix_of_the_same_pass_is_read_there() -> None:
    lines = [
        request("a", PROMPT),
        request("b", [*PROMPT[:4], 1]),
        step(0, row("a", 0, PROMPT), row("b", 4, [1], cached=4)),
    ]
    assert reads(lines, 0) == [(0, 6, []), (6, 1, [(0, 0, 4)])]


def test_a_prefix_that_two_requests_computed_is_not_known() -> None:
    lines = [
        request("a", PROMPT),
        request("b", PROMPT),
        step(0, row("a", 0, PROMPT), row("b", 0, PROMPT)),
        request("c", [*PROMPT, 1]),
        step(1, row("c", 6, [1], cached=6)),
    ]
    assert reads(lines, 1) == []


def test_a_prefix_that_was_there_before_the_capture_is_not_known() -> None:
    lines = [request("b", PROMPT), step(0, row("b", 4, PROMPT[4:], cached=4))]
    assert reads(lines, 0) == []


def test_what_is_computed_once_more_takes_the_place_of_what_was() -> None:
    lines = [
        request("a", PROMPT),
        step(0, row("a", 0, PROMPT)),
        step(1, row("a", 0, PROMPT)),
        step(2, row("a", 6, [1])),
    ]
    assert reads(lines, 2) == [(0, 1, [(1, 0, 6)])]


def test_a_long_pass_that_is_told_in_several_lines_reads_its_own_rows() -> None:
    lines = [
        request("a", PROMPT),
        step(0, row("a", 0, PROMPT[:4])),
        step(0, row("a", 4, PROMPT[4:])),
    ]
    assert reads(lines, 0) == [(0, 4, []), (4, 2, [(0, 0, 4)])]


def test_without_a_schedule_nothing_is_known() -> None:
    [found] = with_contexts([attention(0)], None)
    assert found.attended == ()
