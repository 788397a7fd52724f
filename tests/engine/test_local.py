"""Units in threads: order, stops, exceptions."""

from __future__ import annotations

import threading

import pytest

from ait_llm.engine import LocalEngine, Lost


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_every_unit_is_computed_once_and_knows_its_place(jobs: int) -> None:
    found = dict(LocalEngine(jobs).run(square, range(40)))
    assert found == {number: number * number for number in range(40)}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_list_is_emptied_and_taken_from_its_beginning(jobs: int) -> None:
    units = [7, 8, 9]
    assert sorted(LocalEngine(jobs).run(square, units)) == [(0, 49), (1, 64), (2, 81)]
    assert units == []


def test_one_job_computes_in_the_callers_thread() -> None:
    idents = [ident for _, ident in LocalEngine(1).run(lambda _: threading.get_ident(), range(3))]
    assert idents == [threading.get_ident()] * 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_a_stop_no_unit_is_started(jobs: int) -> None:
    stop = threading.Event()
    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        stop.set()
        return number

    found = dict(LocalEngine(jobs).run(work, range(100), stop=stop))
    assert found == {number: number for number in started}
    assert 1 <= len(started) <= 2 * jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_exception_of_a_unit_comes_out_unchanged(jobs: int) -> None:
    error = ValueError("no")

    def work(number: int) -> int:
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        list(LocalEngine(jobs).run(work, range(10)))
    assert caught.value is error


def test_a_caller_that_leaves_stops_the_threads() -> None:
    stop = threading.Event()

    def work(number: int) -> int | Lost:
        if number:
            stop.wait(60)
        return number

    results = LocalEngine(2).run(work, range(10), stop=stop)
    assert next(results) == (0, 0)
    results.close()
    assert stop.is_set()
