"""Tables of one model that runs in other ways: what calls of one name are not is no accusation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from generating import generate, model
from matching_truth import families
from torch import nn
from transformers import LlamaForCausalLM

from ait_llm.compare import compare
from ait_llm.compare.api import settling
from ait_llm.compare.api.outcome import Outcome
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.core.comparison import Verdict
from ait_llm.dump.api import PrecisionDebugger

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
MORE = torch.tensor([[33, 9, 81, 5, 16]])
Drive = Callable[[Any], object]


def once(made: LlamaForCausalLM) -> None:
    made(PROMPT)


def once_eager(made: LlamaForCausalLM) -> None:
    made.set_attn_implementation("eager")
    made(PROMPT)


def in_bfloat16(made: LlamaForCausalLM) -> None:
    """Its mask hides with the lowest number of its own type."""
    once_eager(made.bfloat16())


def in_autocast(made: LlamaForCausalLM) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        made(PROMPT)


def plainly(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=3)


def with_a_static_cache(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=3, cache_implementation="static")


def in_chunks(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=3, prefill_chunk_size=5)


def without_a_cache(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=3, use_cache=False)


def padded(made: LlamaForCausalLM) -> None:
    ids = torch.zeros(2, PROMPT.shape[1], dtype=torch.long)
    ids[0], ids[1, : MORE.shape[1]] = PROMPT[0], MORE[0]
    made(ids, attention_mask=(ids != 0).long())


def _neighbours(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Each request gets the token behind that of the one before, as places are counted."""
    chosen = torch.full_like(scores, -torch.inf)
    for request in range(len(scores)):
        chosen[request, 30 + request] = 0
    return chosen


def choosing_neighbours(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=3, logits_processor=[_neighbours])


def neighbours_beside_padding(made: LlamaForCausalLM) -> None:
    ids = torch.zeros(2, PROMPT.shape[1] + 3, dtype=torch.long)
    ids[0, 3:], ids[1] = PROMPT[0], torch.arange(5, 5 + ids.shape[1])
    generate(made, ids, max_new_tokens=3, logits_processor=[_neighbours])


def packed(made: LlamaForCausalLM) -> None:
    places = torch.cat([torch.arange(each.shape[1]) for each in (PROMPT, MORE)])
    made(torch.cat([PROMPT, MORE], 1), position_ids=places[None])


def warmed_up(made: LlamaForCausalLM) -> None:
    made(torch.zeros(1, 4, dtype=torch.long))
    plainly(made)


def choosing_by_chance(made: LlamaForCausalLM) -> None:
    torch.manual_seed(5)
    generate(made, PROMPT, max_new_tokens=3, do_sample=True, top_k=0)


PAIRS: dict[str, tuple[Drive, Drive]] = {
    "a warm-up": (plainly, warmed_up),
    "eager": (once, once_eager),
    "autocast": (once, in_autocast),
    "another type": (once_eager, in_bfloat16),
    "static cache": (plainly, with_a_static_cache),
    "no cache": (plainly, without_a_cache),
    "packed requests": (padded, packed),
    "ids like places, beside padding": (choosing_neighbours, neighbours_beside_padding),
    "a prompt in chunks": (plainly, in_chunks),
}


def captured(folder: Path, drive: Drive, change: Drive | None = None) -> Path:
    """Calls of functions and modules of each forward pass, which is a step."""
    made = model(eos_token_id=None)
    if change is not None:
        change(made)
    return captured_model(folder, made, drive)


def captured_model(folder: Path, made: nn.Module, drive: Drive) -> Path:
    """The same of any model."""
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="mix")
    handles = [
        made.register_forward_pre_hook(lambda *_: debugger.start(made)),
        made.register_forward_hook(lambda *_: (debugger.stop(), debugger.step(), None)[-1]),
    ]
    try:
        with torch.no_grad():
            drive(made)
    finally:
        for handle in handles:
            handle.remove()
        PrecisionDebugger._reset()
    return folder


def compared(golden: Path, mine: Path, output: Path) -> Outcome:
    return compare_api_dumps(mine, golden, output, "0", ApiOptions(jobs=1), formats=("csv",))


def assert_nobody_is_accused(first: Path, second: Path, output: Path, *, least: int) -> None:
    """Both ways round, with so many rows that passed at least."""
    for sides in ((first, second), (second, first)):
        outcome = compared(*sides, output)
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0
        assert outcome.counts[Verdict.PASS] > least


@pytest.mark.parametrize("pair", PAIRS)
def test_a_healthy_program_that_makes_other_calls_passes(pair: str, tmp_path: Path) -> None:
    first, second = (captured(tmp_path / each.__name__, each) for each in PAIRS[pair])
    assert_nobody_is_accused(first, second, tmp_path / "report", least=200)


def wrong_weight(made: LlamaForCausalLM) -> None:
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight *= 1.1


def wrong_scale(made: LlamaForCausalLM) -> None:
    for layer in made.model.layers:
        layer.self_attn.scaling *= 1.5


@pytest.mark.parametrize("pair", PAIRS)
def test_a_wrong_weight_is_named_among_other_calls(pair: str, tmp_path: Path) -> None:
    golden, mine = PAIRS[pair]
    outcome = compared(
        captured(tmp_path / "golden", golden),
        captured(tmp_path / "mine", mine, wrong_weight),
        tmp_path / "report",
    )
    assert outcome.exit_code() == 1
    blamed = next(each for each in outcome.pairs if each.blamed is not None)
    assert blamed.blamed is not None
    name = blamed.blamed.item.name
    assert "down_proj" in name or name.startswith("Functional.linear.13.")


def test_a_wrong_scale_is_found_where_attention_is_computed_otherwise(tmp_path: Path) -> None:
    outcome = compared(
        captured(tmp_path / "golden", once),
        captured(tmp_path / "mine", once_eager, wrong_scale),
        tmp_path / "report",
    )
    assert outcome.exit_code() == 1


def test_large_dumps_say_that_only_names_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, mine = captured(tmp_path / "golden", once), captured(tmp_path / "mine", once_eager)
    monkeypatch.setattr(settling, "MOST_BYTES", 1)
    outcome = compared(golden, mine, tmp_path / "report")
    assert any("by their names alone" in each for each in outcome.notes)


def between_calls(made: LlamaForCausalLM) -> None:
    """Code of the program, without a call that is captured, changes what the second layer reads."""

    def change(_: object, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        values = given[0].detach().numpy() * 1.5
        return torch.from_numpy(values), *given[1:]

    made.model.layers[1].register_forward_pre_hook(change)


def test_what_no_captured_call_made_is_said_so_and_is_not_certain(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", once)
    mine = captured(tmp_path / "mine", once, between_calls)
    report = compare(golden, mine)
    [origin] = report.origins
    assert not origin.certain
    assert "no call that was captured made it" in origin.evidence
    assert "inputs differ already" not in origin.evidence


def test_steps_behind_another_choice_of_tokens_accuse_nobody(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", plainly)
    mine = captured(tmp_path / "mine", choosing_by_chance)
    outcome = compared(golden, mine, tmp_path / "report")
    assert outcome.counts[Verdict.FAIL] == 0
    assert outcome.exit_code() == 3  # mine did not choose by its logits
    assert any("golden chose token" in each for each in outcome.problems)
    outcome = compared(mine, golden, tmp_path / "report")
    assert outcome.counts[Verdict.FAIL] == 0


def with_attention(made: LlamaForCausalLM) -> None:
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True).train(made.training)
    torch.manual_seed(1)
    for each in attention.parameters():
        torch.nn.init.normal_(each, std=0.2)
    made.add_module("beside", attention)
    values = made.get_input_embeddings()(PROMPT)
    made.model.norm.register_forward_hook(lambda *_: (attention(values, values, values), None)[-1])
    made(PROMPT)


def test_the_mode_of_calls_that_drop_nothing_is_no_difference(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", with_attention)
    mine = captured(tmp_path / "mine", with_attention, lambda made: made.train())
    outcome = compared(golden, mine, tmp_path / "report")
    assert outcome.counts[Verdict.FAIL] == 0
    assert outcome.exit_code() == 0


def turned_round(made: LlamaForCausalLM, *, left_there: bool) -> None:
    """A permutation is turned round in memory that holds what an earlier value left there."""

    def turn(_: object, __: object, given: object) -> None:
        order = PROMPT[0].argsort()
        found = order.numpy().copy() if left_there else order.numpy() * 0 + 7
        memory = torch.from_numpy(found)
        memory[order] = torch.arange(len(order))
        PROMPT[0].gather(0, memory).sum()

    made.model.norm.register_forward_hook(turn)
    made(PROMPT)


def test_what_memory_held_before_all_of_it_was_written_means_nothing(tmp_path: Path) -> None:
    sides = [
        captured(tmp_path / name, partial(turned_round, left_there=left_there))
        for name, left_there in (("golden", True), ("mine", False))
    ]
    for golden, mine in (sides, sides[::-1]):
        outcome = compared(golden, mine, tmp_path / "report")
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_calls_are_known_by_their_modules_where_conversions_are_not_captured(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """What a norm converts to its own type at its end has no maker then, nor has what reads it."""
    made = families.make("gpt-oss").eval()
    golden = captured_model(tmp_path / "golden", made, lambda it: it(PROMPT))
    mine = captured_model(tmp_path / "mine", made.to(dtype), lambda it: it(PROMPT))
    for sides in ((golden, mine), (mine, golden)):
        found = compare(*sides, jobs=1)
        assert (found.origins, found.exit_code()) == ((), 0)
        assert found.counts[Verdict.PASS] > 300
        assert found.not_comparable < 20
