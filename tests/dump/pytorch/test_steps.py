"""Counting steps from the positions that calls cover."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.dump.pytorch.spans import call_span
from ait_llm.dump.pytorch.steps import Span, StepCounter

PROMPTS = st.lists(st.tuples(st.integers(2, 9), st.integers(0, 6)), min_size=1, max_size=4)


def _run(counter: StepCounter, spans: list[Span | None]) -> list[tuple[int, int, int]]:
    found = []
    for span in spans:
        counter.call(span)
        found.append((counter.step, counter.generation, counter.step_in_generation))
    return found


@given(PROMPTS)
def test_with_a_cache_each_generation_has_a_prefill_and_its_decode_steps(
    prompts: list[tuple[int, int]],
) -> None:
    spans = [
        Span(start, length, cached=True)
        for prompt, new in prompts
        for start, length in [(0, prompt), *((prompt + i, 1) for i in range(new))]
    ]
    expected = [
        (generation, step) for generation, (_, new) in enumerate(prompts) for step in range(new + 1)
    ]
    found = _run(StepCounter(), spans)
    assert found == [(n, *pair) for n, pair in enumerate(expected)]


@given(st.integers(2, 9), st.integers(0, 6))
def test_without_a_cache_a_sequence_that_grows_by_one_is_the_next_step(
    prompt: int, new: int
) -> None:
    found = _run(StepCounter(), [Span(0, prompt + i, cached=False) for i in range(new + 1)])
    assert found == [(i, 0, i) for i in range(new + 1)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 4), st.booleans())
def test_chunks_of_a_known_prompt_are_one_step(chunks: list[int], new: int, known: bool) -> None:
    if not known:
        chunks = [max(2, chunk) for chunk in chunks]
    starts = [sum(chunks[:i]) for i in range(len(chunks))]
    spans = [Span(start, length, True) for start, length in zip(starts, chunks, strict=True)]
    spans += [Span(sum(chunks) + i, 1, True) for i in range(new)]
    counter = StepCounter()
    counter.begin_generation(sum(chunks) if known else None)
    steps = [step for step, _, _ in _run(counter, spans)]
    assert steps == [0] * len(chunks) + list(range(1, new + 1))


def test_a_speculative_call_of_several_positions_is_one_step() -> None:
    counter = StepCounter()
    counter.begin_generation(7)
    spans = [Span(0, 7, True), Span(7, 4, True), Span(9, 4, True), Span(13, 1, True)]
    assert [step for step, _, _ in _run(counter, spans)] == [0, 1, 2, 3]


@given(PROMPTS, st.integers(0, 5))
def test_warm_up_generations_do_not_count(prompts: list[tuple[int, int]], warmup: int) -> None:
    counter, plain = StepCounter(warmup), StepCounter()
    skipped = sum(new + 1 for _, new in prompts[:warmup])
    for generation, (prompt, new) in enumerate(prompts):
        for start, length in [(0, prompt), *((prompt + i, 1) for i in range(new))]:
            span = Span(start, length, cached=True)
            expected = plain.call(span) - skipped
            assert counter.call(span) == (expected if generation >= warmup else -1)


def test_calls_that_show_no_positions_are_steps_and_generations() -> None:
    assert _run(StepCounter(1), [None, None, None]) == [(-1, -1, 0), (0, 0, 0), (1, 1, 0)]


@given(st.lists(st.sampled_from("mcg"), max_size=20))
def test_marks_alone_decide_once_there_is_one(actions: list[str]) -> None:
    counter = StepCounter()
    counter.mark()
    step, generation, pending = 0, 0, False
    for action in actions:
        if action == "m":
            counter.mark()
            step += 1
            generation += pending
            pending = False
        elif action == "c":
            counter.call(Span(0, 3, True))
        else:
            counter.begin_generation()
            pending = True
        assert (counter.step, counter.generation) == (step, generation)


def test_marks_after_counted_calls_go_on_from_there() -> None:
    counter = StepCounter()
    _run(counter, [Span(0, 3, True), Span(3, 1, True)])
    counter.mark()
    assert counter.call(Span(0, 3, True)) == 2


def test_marked_steps_of_warm_up_generations_do_not_count() -> None:
    counter = StepCounter(1)
    counter.mark()
    assert counter.step == -1
    counter.begin_generation()
    counter.mark()
    assert counter.step == 0


class _Cache:
    def __init__(self, length: Any) -> None:
        self._length = length

    def get_seq_length(self) -> Any:
        return self._length


IDS = torch.zeros(2, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("args", "named", "span"),
    [
        ((), {"input_ids": IDS}, Span(0, 5, False)),
        ((), {"input_ids": IDS, "use_cache": True}, Span(0, 5, True)),
        ((IDS,), {}, Span(0, 5, False)),
        ((), {"inputs_embeds": torch.zeros(2, 5, 8)}, Span(0, 5, False)),
        ((), {"input_ids": IDS, "past_key_values": _Cache(3)}, Span(3, 5, True)),
        ((), {"input_ids": IDS, "past_key_values": _Cache(torch.tensor(3))}, Span(3, 5, True)),
        (
            (),
            {"input_ids": IDS, "past_key_values": ((torch.zeros(2, 4, 6, 8),) * 2,)},
            Span(6, 5, True),
        ),
        ((), {"input_ids": IDS, "past_key_values": ()}, Span(0, 5, True)),
        ((), {"input_ids": IDS, "cache_position": torch.tensor([9, 10])}, Span(9, 5, True)),
        ((IDS,), {"tokens": IDS, "start_pos": 4}, Span(4, 5, True)),
        ((), {"input_ids": IDS, "decoder_input_ids": IDS[:, :1]}, Span(0, 1, False)),
        ((torch.zeros(2, 5),), {}, None),
        ((torch.zeros(2, 3, 8, 8),), {}, None),
        (("text",), {}, None),
        ((), {}, None),
    ],
)
def test_spans_are_read_from_arguments(args: Any, named: Any, span: Span | None) -> None:
    assert call_span(args, named) == span


def test_positions_without_values_are_not_read() -> None:
    meta = torch.zeros(1, dtype=torch.int64, device="meta")
    assert call_span((), {"input_ids": IDS, "cache_position": meta}) == Span(0, 5, False)
    assert call_span((), {"input_ids": IDS, "past_key_values": _Cache(meta)}) == Span(0, 5, True)
