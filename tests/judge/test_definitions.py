"""Definitions are compared by what attributes mean, and only where that is certain."""

from __future__ import annotations

from typing import Any

import pytest

from ait_llm.core.ids import OpId
from ait_llm.dumps.model import Operation
from ait_llm.judge.definitions import differences


def _module(kind: str, **definition: Any) -> Operation:
    return Operation(f"root.{kind.lower()}", OpId((0,)), kind, definition=definition)


def _told(golden: Operation, mine: Operation) -> list[str]:
    return [each.text for each in differences(golden, mine)]


@pytest.mark.parametrize(
    ("golden", "mine"),
    [
        (
            _module("LlamaRMSNorm", variance_epsilon=1e-6),
            _module("RMSNorm", eps=9.999999974752427e-07, dim=-1, add_unit_offset=False),
        ),
        (_module("SiLUActivation"), _module("SiLU", inplace=False)),
        (_module("NewGELUActivation"), _module("GELU", approximate="tanh")),
        (
            _module("LlamaAttention", scaling=0.125, head_dim=64, layer_idx=0),
            _module("Attention", scale=0.125, num_heads=2, layer_name="model.layers.0"),
        ),
        # one class name of two libraries: what only one of them knows says nothing
        (
            _module("LlamaAttention", scaling=0.125, head_dim=64, num_key_value_groups=2),
            _module("LlamaAttention", scaling=0.125, head_dim=32, total_num_kv_heads=2),
        ),
        # a scale of an embedding is not that of attention
        (_module("Embedding", scale=2.0), _module("FlashAttention", scale=0.25)),
        (_module("Dropout", p=0.1), _module("Dropout", p=0.0)),
        (_module("Linear", dtype="float32"), _module("Linear", dtype="bfloat16")),
    ],
)
def test_what_means_the_same_is_no_difference(golden: Operation, mine: Operation) -> None:
    assert _told(golden, mine) == []


@pytest.mark.parametrize(
    ("golden", "mine", "text"),
    [
        (
            _module("LlamaRMSNorm", variance_epsilon=1e-6),
            _module("RMSNorm", eps=1e-5),
            "`eps` of `root.rmsnorm` is 1e-05 instead of 1e-06 "
            "(golden has it as `variance_epsilon` of `root.llamarmsnorm`)",
        ),
        (
            _module("LlamaAttention", scaling=0.25),
            _module("LlamaAttention", scaling=1.0),
            "`scaling` of `root.llamaattention` is 1.0 instead of 0.25",
        ),
        (
            _module("SiLU"),
            _module("GELUActivation"),
            "the function of `root.geluactivation` is gelu instead of silu",
        ),
        (
            _module("GELU", approximate="tanh"),
            _module("GELU", approximate="none"),
            "the function of `root.gelu` is gelu instead of gelu_tanh "
            "(golden has it as `approximate` of `root.gelu`)",
        ),
        (
            _module("RotaryEmbedding", base=10000.0, head_size=64),
            _module("RotaryEmbedding", base=500000.0, head_size=64),
            "`base` of `root.rotaryembedding` is 500000.0 instead of 10000.0",
        ),
        (
            _module("MyAttention", mode=""),
            _module("MyAttention", mode="causal"),
            "`mode` of `root.myattention` is causal instead of ''",
        ),
        (
            Operation("mask", OpId((0,)), "aten.tril.default"),
            Operation("mask", OpId((0,)), "aten.tril.default", params={"input_1": 1}),
            "`diagonal` of `mask` is 1 instead of 0",
        ),
    ],
)
def test_a_difference_is_told_with_both_values(
    golden: Operation, mine: Operation, text: str
) -> None:
    assert _told(golden, mine) == [text]


def test_attributes_of_one_implementation_are_compared_whatever_they_mean() -> None:
    golden = _module("MyRouter", bias_update=0.5, groups=2)
    mine = _module("MyRouter", bias_update=0.25, groups=2)
    (found,) = differences(golden, mine)
    assert (found.name, found.golden, found.mine, found.decides) == (
        "bias_update",
        0.5,
        0.25,
        False,
    )


def test_numbers_of_a_list_that_a_call_was_given_define_nothing() -> None:
    golden = _module("MyExperts", **{"1_0": 4, "1_1": 7, "groups": 2})
    mine = _module("MyExperts", **{"1_0": 2, "1_1": 2, "groups": 2})
    assert differences(golden, mine) == []


@pytest.mark.parametrize(
    ("golden", "mine", "multiplies"),
    [
        (_module("Experts", alpha=1.702), _module("Experts", alpha=1.75), True),
        (_module("Gate", routed_scaling_factor=2.5), _module("Gate", routed_scaling_factor=2.0), 1),
        (_module("Rotary", attention_scaling=1.0), _module("Rotary", attention_scaling=1.0001), 1),
        # in bfloat16 that is 0.1235352
        (_module("A", scaling=0.1234567), _module("A", scaling=0.12353515625), False),
        # whether a limit is ever reached the number does not say
        (_module("Experts", limit=7.0), _module("Experts", limit=8.0), False),
        # another implementation may multiply elsewhere
        (_module("AAttention", scaling=0.5), _module("BAttention", scaling=1.0), False),
        (_module("A", scaling=0.5, heads=2), _module("A", scaling=1.0, softmax=1), False),
    ],
)
def test_factors_of_one_implementation_have_an_effect_by_themselves(
    golden: Operation, mine: Operation, multiplies: bool
) -> None:
    assert any(each.multiplies for each in differences(golden, mine)) is bool(multiplies)
