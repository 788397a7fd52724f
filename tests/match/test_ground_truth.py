"""Pairs of real programs whose values are labelled: what the matcher finds, and what it gets wrong.

``scripts/bench/matching.py`` runs all pairs, with libraries that the tests do without too, and
writes ``docs/matching-results.md``.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from matching_truth import PAIRS, floor_of, score
from matching_truth.contents import labels_of, shared
from matching_truth.program import Captured
from matching_truth.recordings import NEAR, real, recorded, recorded_litgpt, step_of
from matching_truth.scoring import EXACT, Key, Side, difference, score_captures, whole

from ait_llm.match.model import Match, Source

# What the matcher reaches; all other pairs are on the page of results with their figures.
READY = (
    "a/*/distinct-module",
    "a/llama/equal-op",
    "a/gpt2/equal-op",
    "a/deepseek-v3/equal-op",
    "b/*/equal-module",
    "b/llama/*-op",
    "b/gpt2/equal-op",
    "b/phi3/equal-op",
    "b/t5/distinct-op",
    "b/deepseek-v3/equal-op",
    "c/llama/*float16",
    "c/llama/left",
    "c/llama/right",
    "c/llama/uncached",
    "c/gpt2/uncached",
    "c/gpt-neox/left",
    "c/mixtral/left",
    "c/gpt-oss/uncached",
    "c/gpt2/*float16",
    "d/gpt-neox/*-module",
    "d/gpt-neox/distinct-op",
    "d/llama/distinct-op",
    "d/llama/*-module",
    "d/mistral/equal-module",
    "d/mixtral/distinct-module",
    "d/phi3/distinct-module",
    "d/gemma2/distinct-module",
    "d/qwen3/equal-module",
    "e/llama/module",
    "e/qwen3/module",
    "e/gemma2/module",
    "e/mixtral/module",
    "e/llama/op",
    "e/*/ranks",
    "f/llama/distinct-*",
    "g/*/lora-*-module",
)
# More than is asked of such pairs; less than this must not be found again.
REACHED = {
    "d/gpt-neox/distinct-op": 0.98,
    "d/llama/distinct-op": 0.99,
    "d/mixtral/distinct-module": 1.0,
    "e/gemma2/module": 1.0,
    "e/llama/module": 1.0,
    "e/llama/op": 0.99,
    "e/llama/ranks": 1.0,
    "e/mixtral/module": 1.0,
}


NAMES = [name for name in PAIRS if any(fnmatch(name, each) for each in READY)]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.mark.parametrize("name", NAMES)
def test_no_pair_is_wrong_and_what_both_hold_is_found(name: str, captures: Path) -> None:
    found = score(name, captures)
    assert found.total > 50
    assert found.wrong == 0, "\n".join(found.details)
    assert found.recall >= REACHED.get(name, floor_of(name)), "\n".join(found.details)


def test_ranks_may_be_the_golden_side(captures: Path) -> None:
    pair = PAIRS["f/llama/distinct-op"]
    found = score_captures(pair.mine(captures), pair.golden(captures))
    assert found.wrong == 0, "\n".join(found.details)
    assert found.recall >= floor_of("f"), "\n".join(found.details)


# Where values of a layer of vLLM stand in transformers, from reading both; see
# ``recordings`` for what is compared with what.
LAYER = "root.model.layers.{}."
VLLM = {
    ("input_layernorm", "outtensor0"): [("input_layernorm", "outtensor0")],
    ("self_attn.q_proj", "outtensor0"): [("self_attn.qkv_proj", "outtensor0")],
    ("self_attn.k_proj", "outtensor0"): [("self_attn.qkv_proj", "outtensor0")],
    ("self_attn.v_proj", "outtensor0"): [
        ("self_attn.qkv_proj", "outtensor0"),
        ("self_attn.attn", "intensor2"),
    ],
    ("self_attn.o_proj", "intensor0"): [("self_attn.attn", "outtensor0")],
    ("self_attn.o_proj", "outtensor0"): [("self_attn", "outtensor0")],
    ("post_attention_layernorm", "intensor0"): [("post_attention_layernorm", "outtensor1")],
    ("post_attention_layernorm", "outtensor0"): [("post_attention_layernorm", "outtensor0")],
    ("mlp.gate_proj", "outtensor0"): [("mlp.gate_up_proj", "outtensor0")],
    ("mlp.up_proj", "outtensor0"): [("mlp.gate_up_proj", "outtensor0")],
    ("mlp.down_proj", "intensor0"): [("mlp.act_fn", "outtensor0")],
    ("mlp.down_proj", "outtensor0"): [("mlp", "outtensor0")],
}
LITGPT_LAYER = "root.transformer.h.{}."
LITGPT = {
    ("input_layernorm", "outtensor0"): [("norm_1", "outtensor0")],
    ("self_attn.q_proj", "outtensor0"): [("attn.qkv", "outtensor0")],
    ("self_attn.k_proj", "outtensor0"): [("attn.qkv", "outtensor0")],
    ("self_attn.v_proj", "outtensor0"): [("attn.qkv", "outtensor0")],
    ("self_attn.o_proj", "intensor0"): [("attn.proj", "intensor0")],
    ("self_attn.o_proj", "outtensor0"): [("attn", "outtensor0")],
    ("post_attention_layernorm", "intensor0"): [("norm_2", "intensor0")],
    ("post_attention_layernorm", "outtensor0"): [("norm_2", "outtensor0")],
    ("mlp.gate_proj", "outtensor0"): [("mlp.fc_1", "outtensor0")],
    ("mlp.up_proj", "outtensor0"): [("mlp.fc_2", "outtensor0")],
    ("mlp.down_proj", "intensor0"): [("mlp.proj", "intensor0")],
    ("mlp.down_proj", "outtensor0"): [("mlp", "outtensor0")],
}


@pytest.mark.parametrize("library", ["vllm", "litgpt"])
def test_the_truth_is_what_reading_both_programs_says(library: str, captures: Path) -> None:
    """Every value is held where the table says, and in the other layer it is not."""
    if library == "vllm":
        sides = [Side(recorded("llama", each, captures)) for each in ("transformers", "vllm")]
        table, layer, tolerance, clean = VLLM, LAYER, NEAR, real
    else:
        golden = PAIRS["d/llama/distinct-module"].golden(captures)
        sides = [Side(golden), Side(recorded_litgpt("litgpt-llama-distinct", captures))]
        table, layer, tolerance, clean = LITGPT, LITGPT_LAYER, EXACT, whole
    for number in (0, 1):
        for (module, name), places in table.items():
            key = Key(0, 0, LAYER.format(number) + module, 0, name)
            value = {key: clean(sides[0].arrays[key])}
            for place, tensor in places:
                there = Key(0, 0, layer.format(number) + place, 0, tensor)
                assert shared(value, {there: sides[1].arrays[there]}, tolerance)[0] == {key: there}
                other = there._replace(op=layer.format(1 - number) + place)
                assert shared(value, {other: sides[1].arrays[other]}, tolerance) == ({}, {})


def test_both_engines_compute_the_same(captures: Path) -> None:
    """Logits of the recordings agree, so that their values can be held against each other."""
    for family in ("llama", "qwen3", "mixtral", "gemma2"):
        golden, mine = (Side(recorded(family, each, captures)) for each in ("transformers", "vllm"))
        for step in (0, 1, 2):
            logits = golden.arrays[Key(0, step, "root", 0, "outtensor0")][:, -1]
            key = Key(0, step + 1, "root.logits_processor", 0, "outtensor0")
            assert step_of(key) == step
            scale = np.abs(logits).max()
            np.testing.assert_allclose(mine.arrays[key], logits, atol=NEAR * scale, rtol=0)


def _match(golden: Side, mine: Side, captured: Captured, first: str, second: str) -> Match:
    """A pair as a matcher would make it, of two modules' outputs."""
    from ait_llm.match.choose import match_runs
    from ait_llm.match.model import MatchOptions
    from ait_llm.match.pairing import pair_runs
    from ait_llm.match.scenario import find_scenario

    (pair,) = pair_runs(find_scenario(captured.dump, captured.dump)).pairs
    found: dict[str, Source] = {}
    for each in match_runs(pair.golden, pair.mine, MatchOptions()):
        if isinstance(each, Match) and each.golden.record.name == "outtensor0":
            found[each.golden.record.op] = each.golden
    return Match(found[first], found[second], "test", 1.0, "made by hand")


def test_a_swap_is_seen_also_where_widths_are_equal(captures: Path) -> None:
    captured = PAIRS["a/llama/equal-module"].golden(captures)
    side = Side(captured)
    place = "root.model.layers.0.self_attn."
    right = _match(side, side, captured, f"{place}k_proj", f"{place}k_proj")
    swapped = _match(side, side, captured, f"{place}k_proj", f"{place}v_proj")
    assert difference(side, side, right, EXACT) == ""
    assert "100 % of the numbers differ" in difference(side, side, swapped, EXACT)


def test_masks_and_numbers_of_places_carry_no_label() -> None:
    mask = np.where(np.tri(7) > 0, 0.0, np.finfo(np.float32).min)
    assert labels_of(mask).size == 0
    assert labels_of(np.arange(40)).size == 0
    assert labels_of(np.linspace(1, 2, 40)).size == 40


def test_a_part_a_permutation_and_rows_are_forms_of_a_value() -> None:
    value = np.random.default_rng(0).normal(size=(4, 6, 8))
    other = np.random.default_rng(1).normal(size=(4, 6, 8))
    forms = {"part": value[..., 2:5], "turned": value.transpose(2, 0, 1), "row": value[2]}
    for name, form in forms.items():
        joined = {"joined": np.concatenate([form.reshape(-1), other.reshape(-1)])}
        assert shared({"value": value}, {name: form}, EXACT)[0] == {"value": name}
        assert shared(joined, {name: form}, EXACT)[0] == {"joined": name}
    assert shared({"value": value}, {"other": other}, EXACT) == ({}, {})
    assert shared({"value": value}, {"sum": value + other}, EXACT) == ({}, {})
