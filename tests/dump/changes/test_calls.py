"""Calls that are made with a change give their caller what they give without."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from healthy_runs.any_family import model_of
from torch import Tensor

from ait_llm.dump.changes.calls import ChangedCalls

PROMPT = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])
STEPS = 4


@pytest.fixture(scope="module")
def model() -> Any:
    made: Any = model_of("CAUSAL_LM", "llama", "eager", torch.float32)
    made.generation_config.update(eos_token_id=None, pad_token_id=0)
    return made


class Told:
    """Events that calls tell."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.events if name == event]


def own_loop(model: Any, calls: ChangedCalls, *, masked: bool) -> Tensor:
    """A program that generates by itself, with a cache."""
    ids, cache, chosen = PROMPT, None, []
    mask = torch.ones_like(PROMPT)
    with torch.no_grad():
        for _ in range(STEPS):
            given = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
            if masked:
                given["attention_mask"] = mask
            output = calls.outermost(model, model, model.forward, (), given)
            assert output.logits.shape[:2] == ids.shape
            cache, ids = output.past_key_values, output.logits[:, -1:].argmax(-1)
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
            chosen.append(ids)
    return torch.cat(chosen, 1)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("change", ["batch", "place", "padding-left", "padding-right"])
def test_a_loop_of_the_programs_own_chooses_the_same_tokens(
    model: Any, change: str, masked: bool
) -> None:
    told = Told()
    changed = own_loop(model, ChangedCalls(change, told), masked=masked)
    assert torch.equal(changed, own_loop(model, ChangedCalls("plain", Told()), masked=masked))
    assert told.of("changed") == [{"change": change}]
    assert not told.of("unchanged")


@pytest.mark.parametrize(
    "change", ["after", "batch", "place", "padding-left", "chunks", "prefix", "no-cache"]
)
def test_generate_gives_the_same_sequences(model: Any, change: str) -> None:
    given = {"input_ids": PROMPT[:1], "max_new_tokens": STEPS, "do_sample": False}
    told = Told()
    changed = ChangedCalls(change, told).outermost(model, model.generate, model.generate, (), given)
    assert torch.equal(changed, model.generate(**given))
    assert told.of("changed") == [{"change": change}]
    assert told.of("answer")[0]["tokens"] == changed.tolist()


def test_several_answers_of_one_prompt_stay_in_their_order(model: Any) -> None:
    given = {"input_ids": PROMPT, "max_new_tokens": 2, "num_beams": 2, "num_return_sequences": 2}
    given["do_sample"] = False
    changed = ChangedCalls("place", Told()).outermost(
        model, model.generate, model.generate, (), given
    )
    assert torch.equal(changed, model.generate(**given))


def test_a_cache_of_the_programs_own_is_left_alone(model: Any) -> None:
    with torch.no_grad():
        cache = model(PROMPT, use_cache=True).past_key_values
        told = Told()
        given = {"input_ids": PROMPT[:, :1], "past_key_values": cache}
        output = ChangedCalls("batch", told).outermost(model, model, model.forward, (), given)
    assert output.logits.shape[:2] == (2, 1)
    assert told.of("unchanged") == [{"change": "batch", "reason": "it brings a cache of its own"}]


@pytest.mark.parametrize("change", ["chunks", "prefix", "no-cache", "padding-right"])
def test_a_model_that_keeps_a_state_is_not_asked_for_a_cache(change: str) -> None:
    mamba: Any = model_of("CAUSAL_LM", "mamba", "eager", torch.float32)
    mamba.generation_config.update(eos_token_id=None, pad_token_id=0)
    given = {"input_ids": PROMPT[:1], "max_new_tokens": 1, "do_sample": False}
    told = Told()
    ChangedCalls(change, told).outermost(mamba, mamba.generate, mamba.generate, (), given)
    assert not told.of("changed")
    assert told.of("unchanged")


@pytest.mark.parametrize("change", ["padding-right", "batch", "no-cache"])
def test_the_answer_of_a_decoder_behind_an_encoder_stays(change: str) -> None:
    bart: Any = model_of("SEQ_TO_SEQ_CAUSAL_LM", "bart", "eager", torch.float32)
    bart.generation_config.update(eos_token_id=None, pad_token_id=0, decoder_start_token_id=1)
    given = {"input_ids": PROMPT[:1], "max_new_tokens": 3, "do_sample": False}
    told = Told()
    changed = ChangedCalls(change, told).outermost(bart, bart.generate, bart.generate, (), given)
    assert torch.equal(changed, bart.generate(**given))
    assert told.of("changed")
    assert told.of("answer")[0]["prompt"] == 1  # what the decoder begins with


def test_a_model_without_another_attention_is_told_to_be_unchanged_in_every_call() -> None:
    bloom: Any = model_of("CAUSAL_LM", "bloom", "eager", torch.float32)
    told = Told()
    calls = ChangedCalls("attention", told)
    with torch.no_grad():
        for _ in range(2):
            calls.outermost(bloom, bloom, bloom.forward, (), {"input_ids": PROMPT})
    assert told.of("unchanged")
    assert not told.of("changed")


def test_a_cache_lives_no_longer_than_the_program_has_it(model: Any) -> None:
    calls = ChangedCalls("batch", Told())
    with torch.no_grad():
        output = calls.outermost(model, model, model.forward, (), {"input_ids": PROMPT})
    cache = weakref.ref(output.past_key_values)
    assert cache() is not None
    del output
    gc.collect()
    assert cache() is None
