"""Settings by which tokens are chosen, of two engines with names and defaults of their own."""

from __future__ import annotations

import pytest

from ait_llm.decisions.settings import differing
from ait_llm.dump.pytorch.choosing import settings_of

# What transformers 5.23 and vLLM 0.32 tell of a greedy request without any setting.
TRANSFORMERS = {"do_sample": "False", "temperature": "1.0", "top_k": "50", "processors": ""}
VLLM = {
    **{"temperature": "0.0", "top_k": "0", "top_p": "1.0", "min_p": "0.0"},
    **{"repetition_penalty": "1.0", "presence_penalty": "0.0", "frequency_penalty": "0.0"},
    "min_tokens": "0",
}


def names(golden: dict[str, str], mine: dict[str, str]) -> list[str]:
    return [each.name for each in differing(golden, mine)]


@pytest.mark.parametrize("golden", [TRANSFORMERS, VLLM, {"processors": ""}])
@pytest.mark.parametrize("mine", [TRANSFORMERS, VLLM, {"processors": ""}])
def test_greedy_requests_of_two_engines_do_not_differ(
    golden: dict[str, str], mine: dict[str, str]
) -> None:
    assert names(golden, mine) == []


def test_a_penalty_differs_whichever_engine_has_it() -> None:
    for plain in (TRANSFORMERS, VLLM):
        for other in (TRANSFORMERS, VLLM):
            (found,) = differing(plain, {**other, "repetition_penalty": "1.3"})
            assert (found.name, found.mine) == ("repetition_penalty", "1.3")


def test_drawing_tokens_differs_from_taking_the_largest() -> None:
    drawn = {**VLLM, "temperature": "0.7"}
    assert names(TRANSFORMERS, drawn) == ["do_sample", "temperature", "top_k"]
    assert names(drawn, drawn) == []
    assert names(drawn, {**drawn, "temperature": "0.8"}) == ["temperature"]


def test_processors_are_compared_where_both_tell_theirs() -> None:
    class Bias:
        """A processor of the user's own."""

    mine = settings_of(object(), [Bias()])
    assert names(TRANSFORMERS, {**TRANSFORMERS, **mine}) == ["processors"]
    assert names(VLLM, {**TRANSFORMERS, **mine}) == []


def test_where_one_side_tells_nothing_nothing_differs() -> None:
    assert names({}, TRANSFORMERS) == []
