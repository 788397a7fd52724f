"""Executions of compiled graphs are paired by graph, step and rank; what is left is listed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from compiled_dumps import CompiledRun, request

from ait_llm.core import Problem
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario

_CALLS = [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)]  # prefill, first decode step, the others


def _pair(
    golden: CompiledRun, mine: CompiledRun, steps: dict[int, int] | None = None
) -> tuple[list[tuple[int, int, str]], Sequence[Problem]]:
    """Golden token, my token, reason; and the problems."""
    found = pair_runs(find_scenario(golden.root, mine.root), steps)
    return [(each.golden.step, each.mine.step, each.reason) for each in found.pairs], list(
        found.problems
    )


def _write(golden: CompiledRun, mine: CompiledRun, calls: Sequence[tuple[int, int]]) -> None:
    for call, (number, step) in enumerate(calls):
        golden.fx(request(call), number=number, step=step, call=call)
        mine.ge(request(call), number=number, step=step, call=call)
    for number in {number for number, _ in calls}:
        mine.graph(number)


def test_prefill_and_decode_steps_of_three_graphs(golden: CompiledRun, mine: CompiledRun) -> None:
    _write(golden, mine, _CALLS)
    assert _pair(golden, mine) == (
        [(n, n, f"graph_{g} step {s}") for n, (g, s) in enumerate(_CALLS)],
        [],
    )


def test_graph_10_comes_after_graph_2(golden: CompiledRun, mine: CompiledRun) -> None:
    calls = [(number, 0) for number in range(1, 11)]
    _write(golden, mine, calls)
    assert [reason for *_, reason in _pair(golden, mine)[0]] == [
        f"graph_{number} step 0" for number in range(1, 11)
    ]


def test_what_one_side_lacks_is_listed_and_the_rest_keeps_its_tokens(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    _write(golden, mine, _CALLS)
    shutil.rmtree(mine.root / "20241125192345/0/graph_2_1")
    shutil.rmtree(golden.root / "worldsize1_global_rank0/graph_3/1")
    pairs, problems = _pair(golden, mine)
    assert [pair[:2] for pair in pairs] == [(0, 0), (2, 2), (4, 4)]
    assert [(problem.side, problem.text) for problem in problems] == [
        ("golden", "graph_2 (token 1, 3 operations) has no counterpart on my side"),
        ("mine", "graph_3 step 1 (token 3, 4 operations) has no counterpart on the golden side"),
    ]


def test_two_ranks(golden: CompiledRun, mine: CompiledRun) -> None:
    for rank in (0, 1):
        golden.fx(request(rank), rank=rank)
        mine.ge(request(rank), rank=rank, device=rank)
        mine.graph(rank=rank)
    pairs, problems = _pair(golden, mine)
    assert [reason for *_, reason in pairs] == ["rank 0, graph_1 step 0", "rank 1, graph_1 step 0"]
    assert not problems


def test_a_rank_that_one_side_lacks(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.fx(request(1), rank=1)
    for rank in (0, 1):
        mine.ge(request(rank), rank=rank, device=rank)
    mine.graph()
    pairs, problems = _pair(golden, mine)
    assert [reason for *_, reason in pairs] == ["rank 1, graph_1 step 0"]
    [alone] = [problem for problem in problems if "no partner" in problem.text]
    assert (alone.side, "(rank 0)" in alone.text) == ("mine", True)


def test_devices_without_ranks_are_paired_in_their_order(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    for device in (0, 1):
        golden.ge(request(device), device=device)
        mine.ge(request(device), device=device + 4)
    golden.graph()
    mine.graph()
    assert len(_pair(golden, mine)[0]) == 2


def test_old_torchair_counts_fx_steps_from_one(golden: CompiledRun, mine: CompiledRun) -> None:
    for step in (0, 1):
        golden.old_fx(request(step), step=step + 1, call=step)
        mine.ge(request(step), step=step, call=step)
    mine.graph()
    pairs, problems = _pair(golden, mine)
    assert [pair[:2] for pair in pairs] == [(0, 0), (1, 1)]
    assert not problems


def test_an_engine_of_that_time_may_count_from_one_as_well(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    for step in (1, 2):
        golden.old_fx(request(step), step=step, call=step)
        mine.ge(request(step), step=step, call=step)
    mine.graph()
    pairs, problems = _pair(golden, mine)
    assert [reason for *_, reason in pairs] == [
        "golden graph_1 step 0 and my graph_1 step 1",
        "golden graph_1 step 1 and my graph_1 step 2",
    ]
    assert not problems


def test_graphs_whose_numbers_differ_are_paired_by_their_names(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    golden.fx(request(), number=1)
    golden.fx(request(), number=2, call=1)
    mine.ge(request(), number=2)
    mine.ge(request(), number=3, call=1)
    mine.graph(2)
    mine.graph(3)
    pairs, _ = _pair(golden, mine)
    assert [reason for *_, reason in pairs][-1].endswith("graph_2 step 0")


def test_two_folders_of_one_execution_each_belong_together(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    _write(golden, mine, _CALLS)
    theirs = golden.root / "worldsize1_global_rank0/graph_3/1"
    ours = mine.root / "20241125192345/0/graph_3_2/3/2"
    [pair] = pair_runs(find_scenario(theirs, ours)).pairs
    assert pair.reason == "the only execution of each side"


def test_a_step_map_names_tokens(golden: CompiledRun, mine: CompiledRun) -> None:
    _write(golden, mine, _CALLS)
    pairs, problems = _pair(golden, mine, {2: 3, 9: 4})
    assert pairs == [(2, 3, "given step map")]
    assert [problem.text for problem in problems] == ["step 9 was not captured"]
