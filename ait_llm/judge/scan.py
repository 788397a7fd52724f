"""What the code of a Mamba mixer computes between its projections, for whatever rounds its steps.

A convolution over the latest tokens, and the selective scan: ``h_t = exp(d_t A) h_(t-1) + d_t u_t
B_t``, ``y_t = (C_t h_t + D u_t) silu(z_t)`` with ``d = softplus(W x + b)`` and ``A = -exp(A_log)``.
Source: "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), algorithm 2. Each
channel is scanned by itself, and no token depends on later ones, so a few of both tell enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.judge.attention import Distance, simulated
from ait_llm.judge.attention_formula import Step

# Weights that the code of a mixer reads, by their names in it.
WEIGHTS = ("A_log", "D", "dt_proj.weight", "conv1d.weight")
BIASES = ("dt_proj.bias", "conv1d.bias")
# Tokens, elements of states, and how often rounding is simulated.
_MOST_TOKENS, _MOST_ELEMENTS, _SAMPLES = 64, 1 << 14, 24


@dataclass(frozen=True, slots=True)
class Mixer:
    """What a mixer computes with, of any type: ``B`` requests, ``T`` tokens, ``I`` channels.

    Attributes:
        inner: ``[B, T, 2 I]``, what is convolved, and gates.
        source: ``[B, T, I]``, what is scanned.
        parts: ``[B, T, R + 2 N]``, of which time steps are made, and ``B`` and ``C``.
        result: ``[B, T, I]``, the scan.
        weights: by their names, see :data:`WEIGHTS` and :data:`BIASES`.
        dtypes: in which it convolves and scans; autocast does the former alone in 16 bits.
        widened: weights that are stored in a wider type, and may be rounded to that first.
    """

    inner: Array
    source: Array
    parts: Array
    result: Array
    weights: Mapping[str, Array]
    dtypes: tuple[DType, DType]
    widened: frozenset[str] = frozenset()

    def weight(self, name: str, step: Step) -> Array:
        """A weight, as what computes with it reads it."""
        return step(self.weights[name]) if name in self.widened else self.weights[name]

    @property
    def fits(self) -> bool:
        """True if all shapes are those of a mixer."""
        if any(each.ndim != 3 for each in (self.inner, self.source, self.parts, self.result)):
            return False  # packed requests lie one behind another
        batch, tokens, channels = self.source.shape
        states, rank = self.weights["A_log"].shape[-1], self.weights["dt_proj.weight"].shape[-1]
        shapes = {
            "A_log": (channels, states),
            "D": (channels,),
            "dt_proj.weight": (channels, rank),
            "dt_proj.bias": (channels,),
            "conv1d.weight": (channels, 1, self.weights["conv1d.weight"].shape[-1]),
            "conv1d.bias": (channels,),
        }
        return (
            all(each.shape == shapes[name] for name, each in self.weights.items())
            and self.inner.shape == (batch, tokens, 2 * channels)
            and self.parts.shape == (batch, tokens, rank + 2 * states)
            and self.result.shape == self.source.shape
        )

    def sampled(self) -> tuple[Mixer, Array]:
        """The first request, its first tokens and some channels, as float64; and which they are."""
        channels = self.source.shape[2]
        tokens = min(self.source.shape[1], _MOST_TOKENS)
        most = max(1, _MOST_ELEMENTS // (tokens * self.weights["A_log"].shape[-1]))
        chosen: Array = np.linspace(0, channels - 1, min(channels, most)).round().astype(int)

        def some(values: Array) -> Array:
            return values[:1, :tokens].astype(np.float64)

        return replace(
            self,
            inner=some(self.inner)[..., np.concatenate((chosen, chosen + channels))],
            source=some(self.source)[..., chosen],
            parts=some(self.parts),
            result=some(self.result)[..., chosen],
            weights={name: each[chosen].astype(np.float64) for name, each in self.weights.items()},
        ), chosen


def scanned(mixer: Mixer, step: Step) -> Array:
    """The scan ``[B, T, I]``, from no state, of float64.

    Args:
        mixer: what it computes with.
        step: what happens to each value on the way: nothing, or a rounding.
    """
    weight, decay = mixer.weight("dt_proj.weight", step), -np.exp(mixer.weights["A_log"])
    rank, states = weight.shape[-1], decay.shape[-1]
    steps = step(mixer.parts[..., :rank] @ weight.T)
    bias = mixer.weights.get("dt_proj.bias")
    steps = step(np.logaddexp(0, steps if bias is None else step(steps + bias)))
    before, after = mixer.parts[..., rank : rank + states], mixer.parts[..., rank + states :]
    moved = (steps * mixer.source)[..., None] * before[:, :, None]
    kept = np.exp(steps[..., None] * decay)
    held = np.empty_like(moved)
    state = np.zeros_like(moved[:, 0])
    for token in range(moved.shape[1]):
        state = kept[:, token] * state + moved[:, token]
        held[:, token] = state
    result = step(np.einsum("btin,btn->bti", step(held), after))
    result = step(result + step(mixer.source * mixer.weights["D"]))
    return step(result * step(_silu(mixer.inner[..., mixer.source.shape[2] :])))


def convolved(mixer: Mixer, step: Step) -> Array:
    """What is scanned, ``[B, T, I]``: a causal convolution of each channel, and SiLU.

    Args:
        mixer, step: see :func:`scanned`.
    """
    weight, bias = mixer.weight("conv1d.weight", step)[:, 0], mixer.weights.get("conv1d.bias", 0)
    values = mixer.inner[..., : mixer.source.shape[2]]
    made = np.zeros_like(values) + bias
    tap = step if mixer.dtypes[0].bits > 16 else _as_it_is  # float32 has no wider type to sum in
    for back in range(min(weight.shape[-1], values.shape[1])):
        made[:, back:] += tap(values[:, : values.shape[1] - back] * weight[:, -1 - back])
    return step(_silu(step(made)))


def distances(mixer: Mixer) -> tuple[Distance, Distance] | None:
    """How far what is scanned, and the scan, are from their formulas.

    Returns:
        None where shapes are not those of a mixer, or nothing can be told.
    """
    if not mixer.fits:
        return None
    some, channels = mixer.sampled()
    found = [
        simulated(
            _by_channel(made),
            lambda step, formula=formula: _told(formula(some, step)),  # type: ignore[misc]
            dtype,
            _SAMPLES,
            np.arange(made.shape[1]),
        )
        for made, formula, dtype in zip(
            (some.source, some.result), (convolved, scanned), mixer.dtypes, strict=True
        )
    ]
    one, other = (
        None
        if each is None
        else replace(each, place=(*each.place[:2], int(channels[each.place[2]])))
        for each in found
    )
    return None if one is None or other is None else (one, other)


def _by_channel(values: Array) -> Array:
    """``[B, I, T, 1]``: the errors of no two channels come from the same roundings."""
    found: Array = values.transpose(0, 2, 1)[..., None]
    return found


def _told(values: Array) -> tuple[Array, Array]:
    found = _by_channel(values)
    return found, np.ones(found.shape[:3], bool)


def _as_it_is(values: Array) -> Array:
    return values


def _silu(values: Array) -> Array:
    found: Array = values / (1 + np.exp(-values))
    return found
