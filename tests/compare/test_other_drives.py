"""One model driven in ways that read the same tokens in other calls: healthy pairs, and a bug."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from generating import generate, model
from matching_truth import families
from matching_truth.recordings import DATA, unpack
from transformers import (
    BartConfig,
    BartForCausalLM,
    JetMoeConfig,
    JetMoeForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
MORE = torch.tensor([[33, 9, 81, 5, 16]])
CHUNKS = "prefill in chunks"
"""The last has as many tokens as heads: its shapes alone do not tell which axis is which."""
Drive = Callable[[LlamaForCausalLM], object]


def plainly(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4)


def in_chunks(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4, prefill_chunk_size=5)


def with_a_static_cache(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4, cache_implementation="static")


def without_a_cache(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4, use_cache=False)


def _two_turns(made: LlamaForCausalLM, *, keep: bool) -> None:
    first = made.generate(
        PROMPT, max_new_tokens=4, do_sample=False, return_dict_in_generate=True, eos_token_id=-1
    )
    read = torch.cat([first.sequences, MORE], 1)
    kept = {"past_key_values": first.past_key_values} if keep else {}
    made.generate(read, max_new_tokens=3, do_sample=False, eos_token_id=-1, **kept)


def in_turns(made: LlamaForCausalLM) -> None:
    _two_turns(made, keep=True)


def in_turns_anew(made: LlamaForCausalLM) -> None:
    _two_turns(made, keep=False)


def padded(made: LlamaForCausalLM) -> None:
    ids = torch.zeros(2, PROMPT.shape[1], dtype=torch.long)
    ids[0], ids[1, : MORE.shape[1]] = PROMPT[0], MORE[0]
    made(ids, attention_mask=(ids != 0).long())


def packed(made: LlamaForCausalLM) -> None:
    places = torch.cat([torch.arange(each.shape[1]) for each in (PROMPT, MORE)])
    made(torch.cat([PROMPT, MORE], 1), position_ids=places[None])


PAIRS: dict[str, tuple[Drive, Drive]] = {
    CHUNKS: (plainly, in_chunks),
    "static cache": (plainly, with_a_static_cache),
    "no cache": (plainly, without_a_cache),
    "second turn anew": (in_turns, in_turns_anew),
    "packed requests": (padded, packed),
}


def with_a_window() -> MistralForCausalLM:
    """Each token attends to three before it; keys of earlier ones are not kept."""
    torch.manual_seed(3)  # which chooses no padding
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 12}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 4}
    tokens = {"vocab_size": 96, "max_position_embeddings": 64, "eos_token_id": None}
    return MistralForCausalLM(MistralConfig(**sizes, **heads, **tokens, pad_token_id=0)).eval()


def with_counted_places() -> BartForCausalLM:
    """Nobody tells it the places of its tokens: it counts the keys that it has."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "decoder_ffn_dim": 48, "decoder_layers": 2}
    tokens = {"vocab_size": 96, "max_position_embeddings": 64, "eos_token_id": None}
    made = BartForCausalLM(
        BartConfig(**sizes, **tokens, decoder_attention_heads=4, pad_token_id=0, is_decoder=True)
    )
    return made.eval()


def with_rows_by_expert() -> JetMoeForCausalLM:
    """Experts get the rows of their tokens one behind the other, and are told how many they are."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_key_value_heads": 2, "kv_channels": 8, "num_local_experts": 4}
    tokens = {"vocab_size": 96, "max_position_embeddings": 64, "eos_token_id": None}
    return JetMoeForCausalLM(JetMoeConfig(**sizes, **heads, **tokens, pad_token_id=0)).eval()


def compared(
    folder: Path,
    drives: tuple[Drive, Drive],
    *,
    wrong: bool,
    operators: bool,
    make: Callable[[], Any] = lambda: model(eos_token_id=None),
) -> Report:
    for name, drive in zip(("golden", "mine"), drives, strict=True):
        made = make()
        if wrong and name == "mine":
            weights = dict(made.named_parameters())
            ends = ("layers.1.mlp.down_proj.weight", "layers.1.fc2.weight")
            with torch.no_grad():
                next(each for path, each in weights.items() if path.endswith(ends)).mul_(1.02)
        config = DumpConfig(str(folder / name), token_range=range(99), operators=operators)
        with torch.no_grad(), register_hook(made, config):
            drive(made)
    return compare(folder / "golden", folder / "mine", jobs=1)


@pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_same_tokens_in_other_calls_agree(pair: str, operators: bool, tmp_path: Path) -> None:
    for drives in (PAIRS[pair], PAIRS[pair][::-1]):
        folder = tmp_path / drives[0].__name__
        report = compared(folder, drives, wrong=False, operators=operators)
        assert report.origins == ()
        assert not any(each.verdict is Verdict.FAIL for each in report.comparisons)
        assert report.exit_code() == 0


@pytest.mark.parametrize("pair", PAIRS)
def test_a_wrong_weight_is_found_behind_other_calls(pair: str, tmp_path: Path) -> None:
    report = compared(tmp_path, PAIRS[pair], wrong=True, operators=False)
    assert report.verdict is Verdict.FAIL
    assert report.origins[0].op == "root.model.layers.1.mlp.down_proj"


@pytest.mark.parametrize("pair", [CHUNKS, "static cache", "no cache", "second turn anew"])
@pytest.mark.parametrize("make", [with_a_window, with_counted_places])
def test_other_calls_of_models_with_other_caches_agree(
    make: Callable[[], Any], pair: str, tmp_path: Path
) -> None:
    for drives in (PAIRS[pair], PAIRS[pair][::-1]):
        folder = tmp_path / drives[0].__name__
        report = compared(folder, drives, wrong=False, operators=False, make=make)
        assert report.origins == ()
        assert report.counts[Verdict.FAIL] == 0
        assert report.counts[Verdict.PASS] > 100
        assert report.exit_code() == 0


@pytest.mark.parametrize("pair", [CHUNKS, "second turn anew"])
@pytest.mark.parametrize("make", [with_a_window, with_counted_places])
def test_a_wrong_weight_is_found_in_models_with_other_caches(
    make: Callable[[], Any], pair: str, tmp_path: Path
) -> None:
    report = compared(tmp_path, PAIRS[pair], wrong=True, operators=False, make=make)
    ends = (".layers.1.mlp.down_proj", ".layers.1.fc2")
    assert report.exit_code() == 1
    assert report.origins[0].op.endswith(ends)


def test_rows_of_experts_are_not_missing_where_a_pass_reads_other_tokens(tmp_path: Path) -> None:
    for drives in (PAIRS[CHUNKS], PAIRS[CHUNKS][::-1]):
        folder = tmp_path / drives[0].__name__
        report = compared(folder, drives, wrong=False, operators=False, make=with_rows_by_expert)
        assert report.exit_code() == 0
        assert report.counts[Verdict.PASS] > 100
        assert not any("definitions" in each.text for each in report.problems)  # counts are none
        reasons = {each.reason for each in report.comparisons if each.verdict is Verdict.SKIPPED}
        assert any("other rows of each token" in each for each in reasons)


def test_logits_of_another_token_of_the_same_request_are_not_compared(tmp_path: Path) -> None:
    """A second turn that reads all again makes the logits of its last token alone."""
    report = compared(tmp_path, PAIRS["second turn anew"], wrong=False, operators=False)
    pairs = {
        (each.golden.step, each.mine.step)
        for each in report.comparisons
        if each.golden is not None and each.mine is not None and each.mine.op == "root.lm_head"
    }
    assert pairs == {(step, step) for step in range(7)}


def test_continuous_batching_agrees_with_generating_one_by_one(tmp_path: Path) -> None:
    place = unpack(DATA / "continuous-batching.tar.xz", tmp_path)
    for golden, mine in (("golden", "mine"), ("mine", "golden")):
        report = compare(place / golden, place / mine, jobs=1)
        assert report.origins == ()
        assert report.exit_code() == 0
        passed = [each for each in report.comparisons if each.verdict is Verdict.PASS]
        assert len(passed) == 640


def test_a_wrong_weight_is_found_behind_continuous_batching(tmp_path: Path) -> None:
    place = unpack(DATA / "continuous-batching.tar.xz", tmp_path)
    made = model(eos_token_id=None)
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight *= 1.02
    config = DumpConfig(str(tmp_path / "golden"), token_range=range(99))
    with torch.no_grad(), register_hook(made, config):
        for prompt in (PROMPT, MORE):
            generate(made, prompt, max_new_tokens=4)
    report = compare(tmp_path / "golden", place / "mine", jobs=1)
    assert report.origins[0].op == "root.model.layers.1.mlp.down_proj"


def answered_one_by_one(made: LlamaForCausalLM) -> None:
    for prompt in (PROMPT, MORE):
        generate(made, prompt, max_new_tokens=3)


def answered_at_once(made: LlamaForCausalLM) -> None:
    ids = torch.zeros(2, PROMPT.shape[1], dtype=torch.long)
    ids[0], ids[1, -MORE.shape[1] :] = PROMPT[0], MORE[0]
    generate(made, ids, max_new_tokens=3)


BATCHES: tuple[Drive, Drive] = (answered_one_by_one, answered_at_once)


@pytest.mark.parametrize("drives", [BATCHES, BATCHES[::-1]], ids=["at once", "one by one"])
def test_requests_of_a_padded_batch_agree_with_those_answered_one_by_one(
    drives: tuple[Drive, Drive], tmp_path: Path
) -> None:
    report = compared(tmp_path, drives, wrong=False, operators=False)
    assert report.origins == ()
    assert report.counts[Verdict.FAIL] == 0
    assert report.exit_code() == 0
    passes = {
        (each.golden.step, each.mine.step)
        for each in report.comparisons
        if each.golden and each.mine
    }
    assert {pair[drives is BATCHES] for pair in passes} == {0, 1, 2}
    assert {pair[drives is not BATCHES] for pair in passes} == set(range(6))


def in_beams(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4, num_beams=3)


def in_beams_without_a_cache(made: LlamaForCausalLM) -> None:
    generate(made, PROMPT, max_new_tokens=4, num_beams=3, use_cache=False)


def test_beams_agree_whether_a_cache_is_kept_or_not(tmp_path: Path) -> None:
    for drives in ((in_beams, in_beams_without_a_cache), (in_beams_without_a_cache, in_beams)):
        folder = tmp_path / drives[0].__name__
        report = compared(folder, drives, wrong=False, operators=False)
        assert report.counts[Verdict.FAIL] == 0
        assert report.exit_code() == 0
        assert {each.mine.step for each in report.comparisons if each.mine} == {0, 1, 2, 3}


def test_a_wrong_weight_is_found_in_a_padded_batch(tmp_path: Path) -> None:
    report = compared(tmp_path, BATCHES, wrong=True, operators=False)
    assert report.exit_code() == 1
    assert report.origins[0].op == "root.model.layers.1.mlp.down_proj"


@pytest.mark.parametrize("wrapped", ["golden", "mine"])
def test_a_model_within_a_container_of_one_is_no_layer(wrapped: str, tmp_path: Path) -> None:
    for side in ("golden", "mine"):
        made = families.make("llama").eval()  # no two weights are alike
        program = torch.nn.Sequential(made) if side == wrapped else made
        config = DumpConfig(dump_path=tmp_path / side, operators=True, weights=True)
        with torch.no_grad(), register_hook(program, config):
            program(PROMPT)
    found = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert (found.origins, found.exit_code()) == ((), 0)


def answering(folder: Path, family: str, given: str) -> Path:
    """Operators of a short answer to tokens, or to what was looked up for them before."""
    tokens = torch.tensor([[5, 9, 14, 22, 31, 7, 44]])
    made = families.make(family).eval()
    looked_up = made.get_input_embeddings()(tokens).detach()
    prompt = {"input_ids": tokens} if given == "tokens" else {"inputs_embeds": looked_up}
    config = DumpConfig(folder / given, operators=True, token_range=range(9))
    with torch.no_grad(), register_hook(made, config):
        made.generate(
            **prompt,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=3,
            do_sample=False,
            eos_token_id=-1,
        )
    return folder / given


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_prompt_that_is_looked_up_before_the_model_is_called_is_no_warm_up(
    family: str, tmp_path: Path
) -> None:
    """As with pictures between words: the first pass shows no lookup, and no tokens."""
    tokens, looked_up = (answering(tmp_path, family, each) for each in ("tokens", "embeddings"))
    for sides in ((tokens, looked_up), (looked_up, tokens)):
        found = compare(*sides, jobs=1)
        assert (found.origins, found.exit_code()) == ((), 0)


def test_a_damaged_embedding_costs_its_own_comparisons_alone(tmp_path: Path) -> None:
    tokens, looked_up = (answering(tmp_path, "llama", each) for each in ("tokens", "embeddings"))
    files = list(looked_up.rglob("input_inputs_embeds.pth"))
    assert files
    for each in files:
        each.unlink()  # files of equal values are links to one
        each.write_bytes(bytes(range(250)))
    found = compare(tokens, looked_up, jobs=1)
    assert (found.origins, found.exit_code()) == ((), 3)
    assert found.counts[Verdict.PASS] > 1000
