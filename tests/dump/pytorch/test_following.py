"""A run that follows golden reads golden's tokens, and keeps its own logits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from generating import NEW, PROMPT, captured, generate, model
from torch import Tensor, nn
from transformers import GenerationMixin, T5Config, T5ForConditionalGeneration

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.dump.golden_run import read_golden_tokens
from ait_llm.errors import FormatError

GOLDEN, MINE = 1, 5  # seeds of two models that have nothing in common
OTHER = torch.tensor([[5, 13, 35, 11]])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(model(GOLDEN), tmp_path_factory.mktemp("golden"))


def following(golden: Path, folder: Path, prompt: Tensor = PROMPT, **settings: object) -> Tensor:
    """What another model returns that follows golden."""
    made = model(MINE)
    with register_hook(made, DumpConfig(str(folder), token_range=range(99), follow=golden)):
        return generate(made, prompt, **settings)


def lines(folder: Path) -> list[dict[str, object]]:
    """What the ledger says of following."""
    [ledger] = folder.rglob("ledger/*.jsonl")
    found = map(json.loads, ledger.read_text().splitlines())
    return [line for line in found if line["kind"] == "follow"]


def states(folder: Path) -> list[object]:
    return [line["state"] for line in lines(folder)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ],
    ids=["greedy", "sampled", "static", "uncached", "penalised"],
)
def test_generate_returns_the_tokens_of_golden(
    golden: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    told = generate(model(GOLDEN))
    assert not torch.equal(generate(model(MINE)), told)
    assert torch.equal(following(golden, tmp_path, **settings), told)


def test_tokens_that_were_sampled_are_followed_but_for_the_last(tmp_path: Path) -> None:
    made = model(GOLDEN)
    with register_hook(made, DumpConfig(str(tmp_path / "golden"), token_range=range(99))):
        torch.manual_seed(3)
        told = generate(made, do_sample=True)
    assert not torch.equal(told, generate(made))
    mine = following(tmp_path / "golden" / "ait_dump", tmp_path / "mine")
    assert torch.equal(mine[:, :-1], told[:, :-1])
    assert states(tmp_path / "mine")[-1] == "ended"


def test_requests_of_a_padded_batch_are_found_by_their_prompts(tmp_path: Path) -> None:
    batch = torch.cat([OTHER, PROMPT])
    gold = captured(model(GOLDEN), tmp_path / "golden", batch)
    told = generate(model(GOLDEN), batch)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), batch.flip(0)], dim=1)
    assert torch.equal(following(gold, tmp_path / "mine", padded), told.flip(0))


def test_each_generation_follows_the_one_with_its_prompt(tmp_path: Path) -> None:
    gold = captured(model(GOLDEN), tmp_path / "golden", PROMPT, OTHER)
    assert torch.equal(following(gold, tmp_path / "a", OTHER), generate(model(GOLDEN), OTHER))
    assert torch.equal(following(gold, tmp_path / "b"), generate(model(GOLDEN)))


def test_a_generation_that_golden_ended_ends_there(tmp_path: Path) -> None:
    last = int(generate(model(GOLDEN))[0, 2])
    gold = captured(model(GOLDEN), tmp_path / "golden", eos_token_id=last)
    assert following(gold, tmp_path / "mine", eos_token_id=last).tolist()[0][2:] == [last]


def test_recorded_logits_are_those_of_mine(golden: Path, tmp_path: Path) -> None:
    following(golden, tmp_path)
    made = model(MINE)
    whole = torch.cat([PROMPT, generate(model(GOLDEN))], dim=1)
    with torch.no_grad():
        logits = made(whole).logits[0]
    for step in range(NEW):
        [file] = tmp_path.rglob(f"torch_tensors/*/{step}/root/output_logits.pth")
        saved = torch.load(file, weights_only=True)
        torch.testing.assert_close(saved[0, -1], logits[PROMPT.shape[1] - 1 + step])


def test_each_choice_of_its_own_is_in_the_ledger(golden: Path, tmp_path: Path) -> None:
    following(golden, tmp_path)
    begun, *others = lines(tmp_path)
    assert (begun["state"], begun["step"], begun["tokens"]) == ("begun", 0, NEW)
    told = generate(model(GOLDEN))[0].tolist()
    own = []
    for step in range(NEW):
        [file] = tmp_path.rglob(f"torch_tensors/*/{step}/root/output_logits.pth")
        own.append(int(torch.load(file, weights_only=True)[0, -1].argmax()))
    expected = [(s, a, b) for s, (a, b) in enumerate(zip(own, told, strict=True)) if a != b]
    found = [(line["step"], line["own"], line["taken"]) for line in others]
    assert found == expected
    assert all(float(str(line["margin"])) > 0 for line in others)


def test_all_steps_are_compared_and_the_report_says_who_followed(
    golden: Path, tmp_path: Path
) -> None:
    mine = captured(model(MINE), tmp_path, follow=golden)
    report = compare(golden, mine)
    assert {item.record.step for item in report.comparisons} == set(range(NEW))
    [note] = [each for each in report.problems if "followed" in each.text]
    assert note.side == "mine"
    assert not note.decides
    assert f"followed the tokens of {golden}; its own choice would have been" in note.text
    assert not [each for each in report.problems if "chose token" in each.text]


def test_another_prompt_is_refused_with_its_first_token(golden: Path, tmp_path: Path) -> None:
    prompt = PROMPT.clone()
    prompt[0, 2] = 77
    assert torch.equal(following(golden, tmp_path, prompt), generate(model(MINE), prompt))
    [line] = lines(tmp_path)
    assert line["state"] == "refused"
    reason = str(line["reason"])
    assert "the prompt of request 0 is none of golden's: token 2 is 77 instead of 5" in reason


def test_golden_of_fewer_steps_is_followed_that_far(tmp_path: Path) -> None:
    made = model(GOLDEN)
    config = DumpConfig(str(tmp_path / "golden"), token_range=range(3))
    with register_hook(made, config):
        told = generate(made)
    mine = following(tmp_path / "golden" / "ait_dump", tmp_path / "mine")
    assert torch.equal(mine[:, :3], told[:, :3])
    ended = lines(tmp_path / "mine")[-1]
    assert (ended["state"], ended["step"]) == ("ended", 3)


def test_an_encoder_and_decoder_follow_by_the_decoder(tmp_path: Path) -> None:
    def made(seed: int) -> T5ForConditionalGeneration:
        torch.manual_seed(seed)
        config = T5Config(
            vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
            decoder_start_token_id=0, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        return T5ForConditionalGeneration(config).eval()

    def run(seed: int, folder: Path, follow: Path | None = None) -> Tensor:
        model = made(seed)
        config = DumpConfig(str(folder), token_range=range(99), follow=follow)
        with torch.no_grad(), register_hook(model, config):
            return model.generate(PROMPT, max_new_tokens=5, do_sample=False, min_new_tokens=5)

    told = run(0, tmp_path / "golden")
    assert not torch.equal(run(1, tmp_path / "own"), told)
    assert torch.equal(run(1, tmp_path / "mine", tmp_path / "golden" / "ait_dump"), told)


def test_transformers_is_left_as_it_was(golden: Path, tmp_path: Path) -> None:
    before = GenerationMixin._get_logits_processor
    following(golden, tmp_path)
    assert GenerationMixin._get_logits_processor is before


def test_a_dump_of_the_prefill_alone_has_one_token(tmp_path: Path) -> None:
    made = model(GOLDEN)
    with register_hook(made, DumpConfig(str(tmp_path))):
        told = generate(made)
    [requests] = read_golden_tokens(tmp_path / "ait_dump").requests.values()
    assert [each.chosen for each in requests] == [(int(told[0, 0]),)]


def test_a_dump_without_tokens_is_refused(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(4, 4))
    with register_hook(layer, DumpConfig(str(tmp_path))):
        layer(torch.ones(2, 4))
    with pytest.raises(FormatError, match="no tokens that a run could follow"):
        register_hook(model(), DumpConfig(str(tmp_path / "mine"), follow=tmp_path / "ait_dump"))
