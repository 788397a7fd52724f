"""Tables of models whose masks are made of counted places: sliding windows, and no positions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generating import generate
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from ait_llm.core.comparison import Verdict
from tests.compare.api.test_other_programs import (
    PROMPT,
    Drive,
    captured_model,
    compared,
    in_chunks,
    plainly,
    without_a_cache,
)


def made() -> Gemma2ForCausalLM:
    torch.manual_seed(1)
    config = Gemma2Config(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=6,
        eos_token_id=None,
        pad_token_id=0,
        bos_token_id=1,
        attn_implementation="eager",
    )
    return Gemma2ForCausalLM(config).eval()


def padded_on_the_left(model: Gemma2ForCausalLM) -> None:
    ids = torch.zeros(2, PROMPT.shape[1] + 3, dtype=torch.long)
    ids[0, 3:], ids[1] = PROMPT[0], torch.arange(5, 20)
    generate(model, ids, max_new_tokens=3, attention_mask=(ids != 0).long())


@pytest.mark.parametrize("drive", [in_chunks, without_a_cache, padded_on_the_left])
def test_other_places_in_a_window_are_no_difference(drive: Drive, tmp_path: Path) -> None:
    first, second = (
        captured_model(tmp_path / each.__name__, made(), each) for each in (plainly, drive)
    )
    for sides in ((first, second), (second, first)):
        outcome = compared(*sides, tmp_path / "report")
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0
        assert outcome.counts[Verdict.PASS] > 1000


def test_places_that_begin_anew_in_each_chunk_are_found(tmp_path: Path) -> None:
    wrong = made()
    turn = wrong.model.rotary_emb.forward
    wrong.model.rotary_emb.forward = lambda x, at, *rest: turn(x, at - at[:, :1], *rest)
    golden = captured_model(tmp_path / "golden", made(), plainly)
    outcome = compared(
        golden, captured_model(tmp_path / "mine", wrong, in_chunks), tmp_path / "report"
    )
    assert outcome.exit_code() == 1


def test_a_prompt_in_chunks_is_read_by_a_model_without_positions(tmp_path: Path) -> None:
    def alibi() -> BloomForCausalLM:
        torch.manual_seed(1)
        config = BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4, eos_token_id=None)
        return BloomForCausalLM(config).eval()

    first, second = (
        captured_model(tmp_path / each.__name__, alibi(), each) for each in (plainly, in_chunks)
    )
    for sides in ((first, second), (second, first)):
        outcome = compared(*sides, tmp_path / "report")
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0
        assert outcome.counts[Verdict.PASS] > 500


def scanning() -> MambaForCausalLM:
    torch.manual_seed(1)
    config = MambaConfig(
        vocab_size=96, hidden_size=32, state_size=8, num_hidden_layers=2, eos_token_id=None
    )
    return MambaForCausalLM(config).eval()


def test_a_scan_of_one_token_is_held_to_that_of_all(tmp_path: Path) -> None:
    first, second = (
        captured_model(tmp_path / each.__name__, scanning(), each)
        for each in (plainly, without_a_cache)
    )
    for sides in ((first, second), (second, first)):
        outcome = compared(*sides, tmp_path / "report")
        assert outcome.counts[Verdict.FAIL] == 0
        assert outcome.exit_code() == 0
        assert outcome.counts[Verdict.PASS] > 500


def test_a_scan_with_another_weight_is_found_among_other_calls(tmp_path: Path) -> None:
    wrong = scanning()
    with torch.no_grad():
        wrong.backbone.layers[0].mixer.D *= 1.1
    golden = captured_model(tmp_path / "golden", scanning(), plainly)
    mine = captured_model(tmp_path / "mine", wrong, without_a_cache)
    assert compared(golden, mine, tmp_path / "report").exit_code() == 1
