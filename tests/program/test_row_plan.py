"""Which row of which pass is which token, told from what passes read one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ait_llm.program.one_pass import Pass
from ait_llm.program.readings import Reading
from ait_llm.program.row_plan import PassRows, Row, RowPlan, plan_rows
from ait_llm.program.schedule import EngineRequest, Schedule, Stretch
from ait_llm.program.token_ids import TokenIds


def run(step: int, schedule: Schedule | None = None) -> Pass:
    return Pass("torch", -1, 1, step, [], schedule=schedule)


def packed(*passes: Sequence[tuple[int, int]]) -> RowPlan:
    """The plan of passes that pack ``(token, position)``."""
    read = []
    for step, rows in enumerate(passes):
        ids, positions = np.array(rows).T
        read.append(Reading(run(step), TokenIds(ids, positions=positions), 0))
    return plan_rows(read)


def padded(*passes: tuple[list[list[int]], list[list[int]] | None]) -> RowPlan:
    """The plan of passes of one generation that pad: ids, and their masks."""
    read = []
    for step, (ids, mask) in enumerate(passes):
        hidden = None if mask is None else np.array(mask, dtype=bool)
        read.append(Reading(run(step), TokenIds(np.array(ids), hidden), 0))
    return plan_rows(read)


def rows(found: PassRows) -> list[Row | None]:
    return list(found.rows)


def test_packed_prompts_begin_where_positions_do() -> None:
    plan = packed([(7, 0), (8, 1), (9, 2), (5, 0), (6, 1)])
    assert plan.requests == ((7, 8, 9), (5, 6))
    assert rows(plan.passes[0]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert plan.passes[0].newest == ((0, 2), (1, 1))


def test_later_tokens_go_on_at_the_next_position_of_their_request() -> None:
    plan = packed([(7, 0), (8, 1), (9, 2), (5, 0), (6, 1)], [(1, 3), (2, 2)])
    assert plan.requests == ((7, 8, 9, 1), (5, 6, 2))


def test_positions_that_count_up_by_chance_are_two_requests() -> None:
    plan = packed([(7, 0), (8, 1), (5, 0), (6, 1), (4, 2)], [(1, 2), (2, 3)])
    assert plan.requests == ((7, 8, 1), (5, 6, 4, 2))


def test_a_prompt_in_chunks_is_one_request_beside_others_that_go_on() -> None:
    plan = packed([(7, 0), (8, 1), (5, 0), (6, 1)], [(9, 2), (1, 2), (2, 3), (3, 4)])
    assert plan.reason == ""
    assert plan.requests == ((7, 8, 9), (5, 6, 1, 2, 3))


def test_a_request_begins_beside_one_that_goes_on() -> None:
    plan = packed([(7, 0), (8, 1)], [(9, 2), (5, 0), (6, 1)])
    assert plan.requests == ((7, 8, 9), (5, 6))


def test_a_request_that_ended_is_missed_by_nobody() -> None:
    plan = packed([(7, 0), (8, 1), (5, 0)], [(9, 2), (6, 1)], [(4, 2)], [(3, 3)])
    assert plan.requests == ((7, 8, 9), (5, 6, 4, 3))


def test_requests_of_one_length_keep_their_order() -> None:
    plan = packed([(7, 0), (5, 0), (3, 0)], [(8, 1), (6, 1), (4, 1)])
    assert plan.requests == ((7, 8), (5, 6), (3, 4))


def test_many_requests_of_one_length_are_told_at_once() -> None:
    count = 200
    plan = packed([(number, 0) for number in range(count)], [(9, 1)] * count)
    assert len(plan.requests) == count
    assert plan.reason == ""


def test_which_of_two_alike_requests_ended_is_not_guessed() -> None:
    plan = packed([(7, 0), (5, 0)], [(8, 1)])
    assert len(plan.passes) == 1
    assert "step 1" in plan.reason
    assert "nothing tells which is which" in plan.reason


def test_a_cached_prefix_without_its_tokens_ends_the_plan() -> None:
    plan = packed([(7, 16), (8, 17)])
    assert plan.passes == ()
    assert "position 16" in plan.reason


def test_packed_tokens_without_positions_are_one_prompt() -> None:
    read = [
        Reading(run(step), TokenIds(np.array(ids)), 0) for step, ids in enumerate(([7, 8, 9], [5]))
    ]
    assert plan_rows(read).requests == ((7, 8, 9, 5),)


def test_packed_requests_that_nothing_tells_apart_end_the_plan() -> None:
    read = [
        Reading(run(step), TokenIds(np.array(ids)), 0)
        for step, ids in enumerate(([7, 8, 9], [5, 6]))
    ]
    assert "nothing tells them apart" in plan_rows(read).reason


def test_padding_is_no_token() -> None:
    plan = padded(([[0, 7, 8], [4, 5, 6]], [[0, 1, 1], [1, 1, 1]]), ([[9], [3]], None))
    assert plan.requests == ((7, 8, 9), (4, 5, 6, 3))
    assert rows(plan.passes[0])[:3] == [None, (0, 0), (0, 1)]
    assert plan.passes[0].shape == (2, 3)
    assert plan.passes[1].keys == ((False, True, True, True), (True,) * 4)
    assert plan.passes[1].newest == ((0, 2), (1, 3))


def test_a_batch_whose_mask_is_not_known_is_told() -> None:
    read = [Reading(run(0), TokenIds(np.array([[0, 7], [4, 5]]), unsure=True), 0)]
    assert plan_rows(read).unsure == {0, 1}


def test_a_program_without_a_cache_reads_all_tokens_again() -> None:
    plan = padded(([[7, 8]], None), ([[7, 8, 9]], None))
    assert plan.requests == ((7, 8, 9),)
    assert rows(plan.passes[1]) == [(0, 0), (0, 1), (0, 2)]


def test_another_prompt_is_another_request() -> None:
    read = [
        Reading(run(step), TokenIds(np.array([ids])), step)
        for step, ids in enumerate(([7, 8], [5]))
    ]
    assert plan_rows(read).requests == ((7, 8), (5,))


class TestEngine:
    """What an engine said counts, not what its passes look like."""

    @staticmethod
    def plan(*passes: Sequence[Stretch], known: Sequence[int] = ()) -> RowPlan:
        request = EngineRequest("a", 0, len(known), tuple(known))
        read = [
            Reading(run(step, Schedule(step, tuple(stretches))), None, 0)
            for step, stretches in enumerate(passes)
        ]
        return plan_rows(read, {"a": request} if known else {})

    def test_requests_change_places(self) -> None:
        plan = self.plan(
            [Stretch("a", 0, 0, 2, (7, 8)), Stretch("b", 2, 0, 2, (5, 6))],
            [Stretch("b", 0, 2, 1, (4,)), Stretch("a", 1, 2, 1, (9,))],
        )
        assert plan.requests == ((7, 8, 9), (5, 6, 4))
        assert rows(plan.passes[1]) == [(1, 2), (0, 2)]

    def test_a_cached_prefix_is_that_of_the_request(self) -> None:
        plan = self.plan([Stretch("a", 0, 2, 1, (9,), cached=2)], known=(7, 8, 9))
        assert plan.requests == ((7, 8, 9),)
        assert rows(plan.passes[0]) == [(0, 2)]

    def test_what_was_proposed_and_not_taken_is_a_sequence_of_its_own(self) -> None:
        plan = self.plan(
            [Stretch("a", 0, 0, 2, (7, 8))],
            [Stretch("a", 0, 2, 2, (9, 1), speculative=1)],
            [Stretch("a", 0, 3, 1, (2,))],
        )
        assert plan.requests == ((7, 8, 9, 1), (7, 8, 9, 2))
        assert plan.passes[1].newest == ((0, 2), (0, 3))
        assert rows(plan.passes[2]) == [(1, 3)]

    def test_tokens_that_are_not_known_end_the_plan(self) -> None:
        assert "request a" in self.plan([Stretch("a", 0, 4, 1, (9,))]).reason


@pytest.mark.parametrize("count", [1, 3])
def test_a_pass_of_images_is_no_pass(count: int) -> None:
    read = [Reading(run(step), None, 0) for step in range(count)]
    assert plan_rows(read).passes == ()
