"""Sampling from given probabilities: seeds and random numbers are inputs, so the draw is known."""

from __future__ import annotations

import torch

from ait_llm.opcheck.selftest.cases import Built, Draw, case

_ROWS, _VOCABULARY = 16, 64


def _probabilities(draw: Draw) -> torch.Tensor:
    return draw.floats(_ROWS, _VOCABULARY, dtype=torch.float32).softmax(-1).to(draw.dtype)


def _bounds(draw: Draw) -> list[torch.Tensor]:
    """Top-k and top-p of each row."""
    topk = draw.integers(20, _VOCABULARY, _ROWS, 1)
    topp = 0.7 + 0.3 * torch.sigmoid(draw.floats(_ROWS, 1, dtype=torch.float32))
    return [topk, topp.to(draw.dtype)]


@case("TopkToppSamplingOperation", "one seed")
def single_topk(draw: Draw) -> Built:
    params = {"topkToppSamplingType": 0, "topk": 50, "randSeed": 7}
    return Built([_probabilities(draw), _bounds(draw)[1]], params)


@case("TopkToppSamplingOperation", "a seed for each row")
def multinomial_rows(draw: Draw) -> Built:
    params = {"topkToppSamplingType": 1, "randSeeds": list(range(1, _ROWS + 1))}
    return Built([_probabilities(draw), *_bounds(draw)], params)


@case("TopkToppSamplingOperation", "given numbers, logarithms")
def given_numbers(draw: Draw) -> Built:
    numbers = torch.sigmoid(draw.floats(_ROWS, 1, dtype=torch.float32))
    params = {"topkToppSamplingType": 3, "logProbsSize": 8}
    return Built([_probabilities(draw), *_bounds(draw), numbers], params)


@case("TopkToppSamplingOperation", "exponential noise")
def exponential(draw: Draw) -> Built:
    noise = -torch.log(torch.sigmoid(draw.floats(_ROWS, _VOCABULARY, dtype=torch.float32)))
    inputs = [_probabilities(draw), *_bounds(draw), noise.to(draw.dtype)]
    return Built(inputs, {"topkToppSamplingType": 2})


@case("MultinomialOperation", "known seed", dtypes=(torch.float16,))
def multinomial(draw: Draw) -> Built:
    return Built([_probabilities(draw)], {"numSamples": 8, "randSeed": 77})
