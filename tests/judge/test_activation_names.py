"""Activation functions are told apart by the names of their classes as by what they compute."""

from __future__ import annotations

import itertools

import torch
from transformers.activations import ACT2CLS, ACT2FN

from ait_llm.judge.definition_meanings import function_named

_TOLERANCE = 4e-3  # between approximations of one function


def test_classes_of_one_name_compute_one_function_and_of_two_names_two() -> None:
    x = torch.linspace(-12, 12, 997)
    named = {}
    for key in ACT2CLS:
        name = function_named(type(ACT2FN[key]).__name__)
        if name is not None:
            with torch.no_grad():
                named[key] = name, ACT2FN[key](x)
    assert len(named) >= 15
    for (one, (first, a)), (two, (second, b)) in itertools.combinations(named.items(), 2):
        alike = bool((a - b).abs().max() < _TOLERANCE)
        if first == second:
            assert alike, f"{one} and {two} are both called {first}"
        elif {first, second} != {"gelu", "gelu_tanh"}:  # these two are close, and not one
            assert not alike, f"{one} is called {first} and {two} {second}"
