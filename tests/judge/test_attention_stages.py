"""What the formula of an attention makes on its way, found again in other forms."""

from __future__ import annotations

import numpy as np
import pytest

from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.judge.attention_formula import Formula, Given
from ait_llm.judge.attention_stages import Stage, formula_stages

HEADS, SHARED, TOKENS, WIDTH = 4, 2, 5, 8
CAP = 2.0
FORMULA = Formula(WIDTH**-0.5, rotary="halves", causal=True, cap=CAP)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape)


def given() -> Given:
    angles = np.arange(TOKENS)[:, None] * 10.0 ** -np.arange(WIDTH // 2)
    angles = np.concatenate((angles, angles), -1)[None]
    key = drawn(1, SHARED, TOKENS, WIDTH)
    query = np.concatenate((key + 1, key - 2), 1)
    tables = np.cos(angles), np.sin(angles)
    return Given(query, key, key * 3, query, DType.FLOAT32, tables=tables)


def rotated(heads: Array) -> Array:
    cos, sin = (each[:, None] for each in given().tables or ())
    one, other = np.split(heads, 2, -1)
    return heads * cos + np.concatenate((-other, one), -1) * sin


def scores() -> Array:
    key = np.repeat(rotated(given().key), HEADS // SHARED, 1)
    return rotated(given().query) @ key.swapaxes(-1, -2)


def masked() -> Array:
    capped = CAP * np.tanh(scores() * FORMULA.scale / CAP)
    return np.where(np.tri(TOKENS, dtype=bool), capped, -np.inf)


def weights() -> Array:
    powers = np.exp(masked())
    return powers / powers.sum(-1, keepdims=True)


MADE = {
    "rotated queries": lambda: rotated(given().query),
    "keys of all heads": lambda: np.repeat(rotated(given().key), HEADS // SHARED, 1),
    "scaled queries": lambda: rotated(given().query) * FORMULA.scale,
    "a half that changes its sign": lambda: -given().key[..., WIDTH // 2 :],
    "scores": scores,
    "scaled scores": lambda: scores() * FORMULA.scale,
    "what a cap divides": lambda: scores() * FORMULA.scale / CAP,
    "capped scores": lambda: CAP * np.tanh(scores() * FORMULA.scale / CAP),
    "masked scores": masked,
    "a mask": lambda: np.where(np.tri(TOKENS, dtype=bool), 0.0, -65504.0),
    "their shares": weights,
    "tokens before heads": lambda: rotated(given().query).transpose(2, 0, 1, 3).reshape(TOKENS, -1),
    "shares with room for more keys": lambda: np.pad(weights(), ((0, 0),) * 3 + ((0, 9),)),
}


def distance(values: Array) -> float:
    stages = map(Stage, formula_stages(given(), FORMULA))
    found = [stage.distance(values) for stage in stages if stage.tells]
    return min((each for each in found if each is not None), default=1.0)


@pytest.mark.parametrize("what", MADE)
def test_what_another_program_makes_is_a_stage(what: str) -> None:
    assert distance(MADE[what]()) < 1e-12


@pytest.mark.parametrize(
    "values",
    [
        lambda: scores() * 1.1 * FORMULA.scale,
        lambda: np.where(np.tri(TOKENS, k=-2, dtype=bool), -np.inf, masked()),
        lambda: np.concatenate((given().key[..., 4:], given().key[..., :4]), -1),
        lambda: np.pad(weights(), ((0, 0),) * 3 + ((0, 9),), constant_values=0.1),
    ],
    ids=["another scale", "another mask", "no sign", "more keys with shares"],
)
def test_what_the_formula_does_not_make_is_none(values: object) -> None:
    assert callable(values)
    assert distance(values()) > 1e-3


def test_few_numbers_prove_nothing() -> None:
    assert not Stage(np.ones((4, 8))).tells
    assert not Stage(np.array([[1, 0]])).tells
    assert Stage(np.arange(16) % 5).tells
    assert Stage(np.array([0.1, 0.2, 0.3, 0.4])).tells
