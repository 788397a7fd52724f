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
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from tests.compare.api.test_other_programs import (
    PROMPT,
    Drive,
    assert_nobody_is_accused,
    captured_model,
    compared,
    in_chunks,
    plainly,
    without_a_cache,
)

SIZES = {"vocab_size": 96, "hidden_size": 32, "eos_token_id": None}


def made() -> Gemma2ForCausalLM:
    torch.manual_seed(1)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = Gemma2Config(
        num_hidden_layers=2,
        intermediate_size=48,
        sliding_window=6,
        pad_token_id=0,
        **heads,
        **SIZES,
    )
    config._attn_implementation = "eager"
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
    assert_nobody_is_accused(first, second, tmp_path / "report", least=1000)


def test_beside_a_wrong_weight_no_counted_place_is_accused(tmp_path: Path) -> None:
    wrong = made()
    with torch.no_grad():
        wrong.model.layers[1].mlp.down_proj.weight *= 1.1
    golden = captured_model(tmp_path / "golden", made(), plainly)
    mine = captured_model(tmp_path / "mine", wrong, without_a_cache)
    outcome = compared(golden, mine, tmp_path / "report")
    failing = [each.item for pair in outcome.pairs for each in pair.doubts if each.fails]
    assert failing
    assert [each.name for each in failing if "int" in str(each.dtype)] == []


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
        return BloomForCausalLM(BloomConfig(n_layer=2, n_head=4, **SIZES)).eval()

    first, second = (
        captured_model(tmp_path / each.__name__, alibi(), each) for each in (plainly, in_chunks)
    )
    assert_nobody_is_accused(first, second, tmp_path / "report", least=500)


def scanning() -> MambaForCausalLM:
    torch.manual_seed(1)
    return MambaForCausalLM(MambaConfig(state_size=8, num_hidden_layers=2, **SIZES)).eval()


def test_a_scan_of_one_token_is_held_to_that_of_all(tmp_path: Path) -> None:
    first, second = (
        captured_model(tmp_path / each.__name__, scanning(), each)
        for each in (plainly, without_a_cache)
    )
    assert_nobody_is_accused(first, second, tmp_path / "report", least=500)


def test_a_scan_with_another_weight_is_found_among_other_calls(tmp_path: Path) -> None:
    wrong = scanning()
    with torch.no_grad():
        wrong.backbone.layers[0].mixer.D *= 1.1
    golden = captured_model(tmp_path / "golden", scanning(), plainly)
    mine = captured_model(tmp_path / "mine", wrong, without_a_cache)
    assert compared(golden, mine, tmp_path / "report").exit_code() == 1


def translating() -> T5ForConditionalGeneration:
    torch.manual_seed(1)
    sizes = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    config = T5Config(num_heads=4, decoder_start_token_id=0, eos_token_id=None, **sizes)
    return T5ForConditionalGeneration(config).eval()


def test_calls_of_one_number_within_other_modules_are_not_paired(tmp_path: Path) -> None:
    # the cache spares the keys and values of what the encoder made
    first, second = (
        captured_model(tmp_path / each.__name__, translating(), each)
        for each in (plainly, without_a_cache)
    )
    assert_nobody_is_accused(first, second, tmp_path / "report", least=1000)


def encoding() -> T5EncoderModel:
    torch.manual_seed(1)
    sizes = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    return T5EncoderModel(T5Config(num_heads=4, **sizes)).eval()


def encode(model: T5EncoderModel) -> None:
    model(PROMPT)


def encode_beside_padding(model: T5EncoderModel) -> None:
    ids = torch.zeros(2, PROMPT.shape[1] + 3, dtype=torch.long)
    ids[0, :-3], ids[1] = PROMPT[0], torch.arange(5, 5 + ids.shape[1])
    model(ids, attention_mask=(ids != 0).long())


def test_biases_of_distances_are_compared_beside_padding(tmp_path: Path) -> None:
    first, second = (
        captured_model(tmp_path / each.__name__, encoding(), each)
        for each in (encode, encode_beside_padding)
    )
    assert_nobody_is_accused(first, second, tmp_path / "report", least=150)


def test_a_wrong_bias_of_distances_is_found_beside_padding(tmp_path: Path) -> None:
    wrong = encoding()
    attention = wrong.encoder.block[0].layer[0].SelfAttention
    right = attention._relative_position_bucket
    attention._relative_position_bucket = lambda *given, **more: right(*given, **more).T
    golden = captured_model(tmp_path / "golden", encoding(), encode)
    mine = captured_model(tmp_path / "mine", wrong, encode_beside_padding)
    outcome = compared(golden, mine, tmp_path / "report")
    failing = [each.item for pair in outcome.pairs for each in pair.doubts if each.fails]
    assert outcome.exit_code() == 1
    named = [each.name for each in failing]
    assert any(name.startswith("Functional.embedding.1.forward.input.0") for name in named)
