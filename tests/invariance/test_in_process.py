"""Calls of modules under changes that must not change their answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from healthy_runs.any_family import model_of
from invariance_faults import Planted, planted

from ait_llm import invariant
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.invariance.result import InvariantResult

PROMPTS = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])
FAULTS = {each.name: each for each in planted()}


@pytest.fixture(scope="module")
def model() -> Any:
    made: Any = model_of("CAUSAL_LM", "llama", "eager", torch.float32)
    made.generation_config.update(eos_token_id=None, pad_token_id=0)
    return made


def states(result: InvariantResult) -> dict[str, str]:
    return {each.name: each.state for each in result.outcomes}


def test_a_healthy_generation_holds_under_every_change_of_its_prompt(model: Any) -> None:
    names = ["again", "after", "batch", "place", "padding-left", "chunks", "prefix", "no-cache"]
    result = invariant(
        model.generate, PROMPTS[:1], changes=names, max_new_tokens=3, do_sample=False
    )
    assert states(result) == dict.fromkeys(names, "held")
    assert result
    assert all(each.equal for each in result.outcomes if each.name in ("again", "after"))


def test_a_healthy_call_holds_under_changes_of_rows_and_of_the_process(model: Any) -> None:
    threads, attention = torch.get_num_threads(), model.config._attn_implementation
    names = ["batch", "padding-right", "attention", "threads", "memory"]
    result = invariant(model, input_ids=PROMPTS, changes=names)
    assert states(result) == dict.fromkeys(names, "held")
    assert torch.get_num_threads() == threads
    assert model.config._attn_implementation == attention
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_table_of_positions_that_is_given_a_mask_is_not_compared_with_positions() -> None:
    model = model_of("CAUSAL_LM", "opt", "eager", torch.float32)
    result = invariant(model, input_ids=PROMPTS, changes=["padding-right"])
    assert states(result) == {"padding-right": "held"}


def test_rows_of_positions_that_a_mask_tells_are_not_rows_gathered_from_the_mask() -> None:
    model: Any = model_of("CAUSAL_LM", "opt", "eager", torch.float32)
    few = {"max_new_tokens": 2, "do_sample": False}
    result = invariant(model.generate, PROMPTS, changes=["batch"], **few)
    assert states(result) == {"batch": "held"}


def test_a_prefix_of_as_many_tokens_as_there_are_heads_accuses_nobody() -> None:
    model: Any = model_of("CAUSAL_LM", "opt", "eager", torch.float32)
    ids = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22], [31, 6, 70, 9, 82, 14, 55, 90, 2]])
    assert model.config.num_attention_heads == ids.shape[1] // 2
    few = {"max_new_tokens": 2, "do_sample": False}
    (outcome,) = invariant(model.generate, ids, changes=["prefix"], **few).outcomes
    assert (outcome.failed, outcome.origin) == (0, None)
    assert outcome.compared > 500


def test_changes_that_do_not_apply_are_not_made_and_say_why(model: Any) -> None:
    result = invariant(model, input_ids=PROMPTS, changes=["no-cache", "chunks"])
    assert states(result) == dict.fromkeys(("no-cache", "chunks"), "not made")
    assert [each.reason for each in result.outcomes] == [
        "it is a call of the model itself, and not generate",
        "it has several prompts, whose chunks lie between each other",
    ]
    assert not result  # nothing was looked at


def test_a_model_that_samples_is_not_told_to_depend_on_other_rows(model: Any) -> None:
    result = invariant(
        model.generate, PROMPTS[:1], changes=["batch"], max_new_tokens=2, do_sample=True
    )
    assert states(result) == {"batch": "not made"}
    assert "it samples" in result.outcomes[0].reason


@pytest.mark.parametrize(
    "name",
    [
        "mask ignores padding 1",
        "a norm over the batch",
        "rows mixed",
        "depends on the number of the row",
        "keeps the prompt before",
        "coarse cache 0",
        "a block that is never filled",
        "random",
    ],
)
def test_a_planted_fault_breaks_its_invariance_and_is_named(name: str) -> None:
    fault: Planted = FAULTS[name]
    function, arguments = fault.call()
    (outcome,) = invariant(function, changes=[fault.change], **arguments).outcomes
    assert outcome.state == "broken"
    assert outcome.origin is not None
    assert outcome.origin.op.startswith(fault.where)


def test_an_unknown_change_is_refused(model: Any) -> None:
    with pytest.raises(UnknownNameError, match="there is no change 'bach'; known: again"):
        invariant(model, PROMPTS, changes=["bach"])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(UsageError, match="invariant needs a module or a method of one, not func"):
        invariant(lambda x: x, PROMPTS)
